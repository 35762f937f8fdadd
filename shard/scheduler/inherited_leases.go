package scheduler

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// Inherited leases are leases that former leaders took for calls, and that have not ended. When is
// such a lease over? (A consumer's is its own: see consumer_lease.go.)
//
// Its process is gone (this node's own former one, or one that another node is known to have lost):
// at once, its calls are gone with it. This process took it in a former leadership: at once too,
// unless its call still runs, which its active lease says. Any other may belong to a leader that is
// only paused or cut off: it is waited out in full, on this node's monotonic clock from the
// takeover on.

const scanBudget = 4096

// inheritedLeases is how far the walk over the table has come that looks for them.
type inheritedLeases struct {
	scanning bool
	from     timer.Handle
}

// Interrupted is the last error of an attempt whose leader died before it reported.
const Interrupted = "interrupted: the node that made this call stopped before it could report; the call may or may not have arrived"

// scanInherited walks the table in slices for leases that are over already, or that are over before
// the wall clock says so.
func (l *Scheduler) scanInherited() {
	if !l.inherited.scanning {
		return
	}
	next, done := l.table.ScanLeased(l.inherited.from, scanBudget, func(h timer.Handle) {
		d := l.table.Due(h)
		l.HasZone(h, &d)
		if d.Holder != table.ByCall {
			l.hold(h, &d, l.holdsUntil(h, &d))
			return
		}
		switch wait := l.inheritedWait(h, &d); {
		case wait == 0:
			l.resolve(h, &d)
		case wait > 0: // the wall clock of who took it may have been anywhere
			l.table.Arm(h, l.now.WallMs+l.due.lookAhead.Milliseconds()+wait.Milliseconds()+1)
		}
	})
	l.inherited.from = next
	if done {
		l.inherited.scanning = false
		return
	}
	l.env.WakeNext()
}

// ScanAgain has all leases looked at anew: a process is known to be gone.
func (l *Scheduler) ScanAgain() {
	if l.active {
		l.inherited.scanning, l.inherited.from = true, 0
		l.env.Wake()
	}
}

// inheritedWait is how long a lease may still be somebody's; 0: it is over; negative: it is this
// process's own and has not ended.
func (l *Scheduler) inheritedWait(h timer.Handle, d *table.Due) time.Duration {
	if l.isActive(h, d) {
		return -1
	}
	owner := l.table.LeaseOwner(d.Fence)
	if owner.Node() == l.cfg.Owner.Node() || l.env.Ended(owner) {
		return 0
	}
	return max(0, l.since+time.Duration(d.LeaseMs)*time.Millisecond-l.now.Mono)
}

// isActive reports that the lease is this process's own and has not ended.
func (l *Scheduler) isActive(h timer.Handle, d *table.Due) bool {
	f := l.leases.byTimer[h]
	return f != nil && f.seq == d.Seq && f.fence == d.Fence
}

// rearm walks the table once, in slices, for timers that left the wheel in a former leadership.
func (l *Scheduler) rearm() {
	if !l.due.rearming {
		return
	}
	next, done := l.table.RearmRange(l.due.rearmFrom, scanBudget)
	for h := l.due.rearmFrom + 1; h <= next && len(l.keys.refs) > 0; h++ {
		l.keyRefOf(h) // a topic may have ended to be serial
	}
	l.due.rearmFrom, l.due.rearming = next, !done
	if !done {
		l.env.WakeNext()
	}
}

// leaseEnded is called when the wall clock has passed a lease's end.
func (l *Scheduler) leaseEnded(h timer.Handle, d *table.Due) {
	if d.Holder != table.ByCall { // it ends by the monotonic clock
		l.hold(h, d, l.holdsUntil(h, d))
		return
	}
	horizon := l.now.WallMs + l.due.lookAhead.Milliseconds()
	switch wait := l.inheritedWait(h, d); {
	case wait < 0:
		l.table.Arm(h, horizon+CallMargin.Milliseconds()) // ours: its call ends by itself
	case wait > 0:
		l.table.Arm(h, horizon+wait.Milliseconds()+1)
	default:
		l.resolve(h, d)
	}
}

// resolve ends an inherited lease's attempt: it counts, since its call may have been made.
func (l *Scheduler) resolve(h timer.Handle, d *table.Due) {
	now := l.now.WallMs
	if !l.canJudge(h, d) {
		l.table.Arm(h, now+l.due.lookAhead.Milliseconds()+unknownWait.Milliseconds())
		return
	}
	out := l.judge(h, d, &Attempt{Err: Interrupted, StartedMs: now, EndedMs: now}, 0)
	if out.Kind == table.RetryLater {
		out.NextMs = l.notBeforeDue(h, now) // its receiver did nothing wrong: no backoff
	}
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, nil})
}

// unknownWait is after what a timer is looked at again whose topic is not known yet.
const unknownWait = 500 * time.Millisecond

// canJudge says whether this node knows the timer's topic. One that has just started may lead a
// shard before it has heard of the topics again, and the default policy would not do: it has other
// attempts and another backoff (I17). Nor may it have read the zone by which the timer goes on.
func (l *Scheduler) canJudge(h timer.Handle, d *table.Due) bool {
	return l.topic(d.Topic) != nil && l.HasZone(h, d)
}

// judge decides what becomes of a leased timer after an attempt, by its topic as this node knows
// it.
func (l *Scheduler) judge(h timer.Handle, d *table.Due, a *Attempt, random float64) table.Outcome {
	policy := timer.DefaultPolicy()
	if topic := l.topic(d.Topic); topic != nil {
		policy = topic.Policy
	}
	own := l.table.RetryOf(h)
	out := judge(&policy, &own, d.Attempts, a, random)
	out.Handle, out.Seq, out.Fence = h, d.Seq, d.Fence
	if out.Kind == table.RetryLater { // by this node's clock a former leader's attempt may have been early (I4)
		out.NextMs = l.notBeforeDue(h, out.NextMs)
	}
	if out.Kind == table.Ack || out.Kind == table.Kill {
		out.AgainMs = l.again(h, a.StartedMs)
	}
	return out
}

// notBeforeDue is the moment of a leased timer's next attempt, which is never before its due time.
// Where the clock of who called it was ahead that is a moment after it: what is next tried just
// when it is due counts as moved by a client, and blocks its key no more.
func (l *Scheduler) notBeforeDue(h timer.Handle, ms int64) int64 {
	if due := l.table.Due(h).FirstMs; ms < due {
		return due + 1
	}
	return ms
}

// RearmAll begins that walk: what was proposed, and was not told of by its item, may be lost.
func (l *Scheduler) RearmAll() { l.due.rearming, l.due.rearmFrom = true, 0 }
