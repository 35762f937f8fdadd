package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// An inherited lease is one that a former leader took for a call and that has not ended.
// (Consumers' leases are in consumer_lease.go.) When it is over depends on the process that took
// it:
//
//   - A process that has surely ended (this node's own former one, or one whose node has registered
//     a later one): at once, since its calls ended with it.
//   - This process, in a former leadership: at once, unless its active lease shows that the call
//     still runs.
//   - A process that the meta group has fenced since this leadership began, which may be wrong: if
//     its call may be repeated as after a crash, StartWithinOf after the takeover. By then it
//     starts no call any more, so that no more than what was in flight is repeated even if it lives.
//   - Any other process may be only paused or cut off: the lease is waited out in full, on this
//     node's monotonic clock from the takeover on.

// inheritedLeases is the progress of inheritedLeases.scan.
type inheritedLeases struct {
	scanning bool
	from     timer.Handle
	fences   map[table.Incarnation]bool // those asked for in this leadership; true: committed

	*leader
	consumers *consumerLeases
	due       *dueQueues
	leases    *activeLeases
	out       *outcomes
}

func newInheritedLeases(s *Scheduler) inheritedLeases {
	return inheritedLeases{
		fences: map[table.Incarnation]bool{}, leader: &s.leader,
		consumers: &s.Consumers, due: &s.due, leases: &s.Leases, out: &s.Outcomes,
	}
}

// Interrupted is the last error of an attempt whose leader ended before it reported.
const Interrupted = "interrupted: the node that made this call stopped before it could report; the call may or may not have arrived"

// scan walks the table in slices. It resolves leases that are over, and arms the wheel or
// counts down on the monotonic clock for the others: the times in the table may be by a wrong wall
// clock.
func (il *inheritedLeases) scan() {
	if !il.scanning {
		return
	}
	found := func(h timer.Handle) {
		il.env.Spent(1)
		d := il.table.Due(h)
		if d.Holder != table.ByCall {
			il.consumers.hold(h, &d, il.consumers.holdsUntil(h, &d))
			return
		}
		switch wait := il.wait(h, &d); {
		case wait == 0:
			il.resolve(h, &d)
		case wait > 0: // the wall clock of the process that took it may have been wrong
			il.table.Arm(h, il.now.WallMs+il.due.lookAhead.Milliseconds()+wait.Milliseconds()+1)
		}
	}
	var done bool
	il.from, done = il.inSlices(il.from, func(from timer.Handle, slots int) (timer.Handle, bool) {
		return il.table.ScanLeased(from, slots, false, found)
	})
	il.scanning = !done
}

// scanAgain restarts scan: a process has ended or seems to be gone, or an outcome was dropped.
func (il *inheritedLeases) scanAgain() {
	if il.active {
		il.scanning, il.from = true, 0
		il.env.Wake()
	}
}

// wait returns how long its owner may still use a lease; 0 if it is over, negative if it
// is this process's own active lease.
func (il *inheritedLeases) wait(h timer.Handle, d *table.Due) time.Duration {
	if il.leases.calling(h, d) != nil {
		return -1
	}
	owner := il.table.LeaseOwner(d.Fence)
	if owner.Node() == il.cfg.Owner.Node() || il.env.Ended(owner) {
		return 0
	}
	lasts := time.Duration(d.LeaseMs) * time.Millisecond
	if owner != 0 && il.out.mayRepeat(h, d) && il.fenced(owner) {
		within := StartWithinOf(il.table, d.Fence)
		lasts = min(lasts, within+within/10) // clocks may run at different rates
	}
	return max(0, il.since+lasts-il.now.Mono)
}

// fenced reports that the meta group has fenced a process since this leadership began, and asks for
// that the first time. A fence of before proves nothing: the process may have led again since.
func (il *inheritedLeases) fenced(owner table.Incarnation) bool {
	committed, asked := il.fences[owner]
	if asked {
		return committed
	}
	il.fences[owner] = false
	leadership := il.leadership
	il.env.Fence(owner, func(err error) {
		switch {
		case !il.active || il.leadership != leadership:
		case err != nil:
			delete(il.fences, owner) // a later hint asks again
		default:
			il.fences[owner] = true
			il.scanAgain()
		}
	})
	return false
}

// leaseEnded handles a leased timer that left the wheel: by the wall clock its lease is over.
func (il *inheritedLeases) leaseEnded(h timer.Handle, d *table.Due) {
	if d.Holder != table.ByCall { // a consumer's lease ends by the monotonic clock
		il.consumers.hold(h, d, il.consumers.holdsUntil(h, d))
		return
	}
	horizon := il.now.WallMs + il.due.lookAhead.Milliseconds()
	switch wait := il.wait(h, d); {
	case wait < 0:
		il.table.Arm(h, horizon+CallMargin.Milliseconds()) // our own: its call will end
	case wait > 0:
		il.table.Arm(h, horizon+wait.Milliseconds()+1)
	default:
		il.resolve(h, d)
	}
}

// resolve ends the attempt of an inherited lease. The attempt counts: its call may have been made.
func (il *inheritedLeases) resolve(h timer.Handle, d *table.Due) {
	now := il.now.WallMs
	if !il.out.CanJudge(h, d) {
		il.table.Arm(h, now+il.due.lookAhead.Milliseconds()+unknownWait.Milliseconds())
		return
	}
	out := il.out.judge(h, d, &delivery.Outcome{Err: Interrupted, StartedMs: now, EndedMs: now}, 0)
	if out.Kind == table.RetryLater {
		out.NextMs = il.out.notBeforeDue(h, now) // no backoff: the receiver did nothing wrong
	}
	out.CallOnly = out.Kind == table.RetryLater || out.Kind == table.Kill
	il.out.add(out, nil)
}

// unknownWait is the delay until a timer whose topic is not known yet is looked at again.
const unknownWait = 500 * time.Millisecond
