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
//   - This process, in a former leadership: at once, unless its active lease says that the call
//     still runs.
//   - A process that the meta group has fenced since this leadership began, which may be wrong: if
//     its call may be repeated as after a crash, StartWithin after the takeover. By then it starts
//     no call any more, so that no more than what was in flight is repeated even if it lives.
//   - Any other process may be only paused or cut off: the lease is waited out in full, on this
//     node's monotonic clock from the takeover on.

const scanBudget = 4096

// inheritedLeases is the progress of scanInherited.
type inheritedLeases struct {
	scanning bool
	from     timer.Handle
	fences   map[table.Incarnation]bool // those asked for in this leadership; true: committed
}

// Interrupted is the last error of an attempt whose leader ended before it reported.
const Interrupted = "interrupted: the node that made this call stopped before it could report; the call may or may not have arrived"

// scanInherited walks the table in slices. It resolves leases that are over, and arms the wheel or
// counts down on the monotonic clock for the others: the times in the table may be by a wrong wall
// clock.
func (l *Scheduler) scanInherited() {
	if !l.inherited.scanning {
		return
	}
	next, done := l.table.ScanLeased(l.inherited.from, scanBudget, func(h timer.Handle) {
		d := l.table.Due(h)
		if d.Holder != table.ByCall {
			l.hold(h, &d, l.holdsUntil(h, &d))
			return
		}
		switch wait := l.inheritedWait(h, &d); {
		case wait == 0:
			l.resolve(h, &d)
		case wait > 0: // the wall clock of the process that took it may have been wrong
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

// ScanAgain restarts scanInherited: a process has ended or seems to be gone, or an outcome was
// dropped.
func (l *Scheduler) ScanAgain() {
	if l.active {
		l.inherited.scanning, l.inherited.from = true, 0
		l.env.Wake()
	}
}

// inheritedWait returns how long its owner may still use a lease; 0 if it is over, negative if it
// is this process's own active lease.
func (l *Scheduler) inheritedWait(h timer.Handle, d *table.Due) time.Duration {
	if l.isActive(h, d) {
		return -1
	}
	owner := l.table.LeaseOwner(d.Fence)
	if owner.Node() == l.cfg.Owner.Node() || l.env.Ended(owner) {
		return 0
	}
	lasts := time.Duration(d.LeaseMs) * time.Millisecond
	if owner != 0 && l.mayRepeat(h, d) && l.fenced(owner) {
		lasts = min(lasts, StartWithin+startMargin)
	}
	return max(0, l.since+lasts-l.now.Mono)
}

// startMargin is for clocks that run at different rates.
const startMargin = StartWithin / 10

// fenced reports that the meta group has fenced a process since this leadership began, and asks for
// that the first time. A fence of before says nothing: the process may have led again since.
func (l *Scheduler) fenced(owner table.Incarnation) bool {
	committed, asked := l.inherited.fences[owner]
	if asked {
		return committed
	}
	l.inherited.fences[owner] = false
	leadership := l.leadership
	l.env.Fence(owner, func(err error) {
		switch {
		case !l.active || l.leadership != leadership:
		case err != nil:
			delete(l.inherited.fences, owner) // a later hint asks again
		default:
			l.inherited.fences[owner] = true
			l.ScanAgain()
		}
	})
	return false
}

// mayRepeat reports that a call may be made again although its process may live: nobody relies on
// it to be alone, and it is not the last one.
func (l *Scheduler) mayRepeat(h timer.Handle, d *table.Due) bool {
	topic := l.topic(d.Topic)
	if topic == nil || topic.Policy.Serial || topic.Policy.Concurrency > 0 {
		return false
	}
	own := l.table.RetryOf(h)
	return judge(&topic.Policy, &own, d.Attempts, &delivery.Outcome{Err: Interrupted}, 0).Kind == table.RetryLater
}

// isActive reports that the lease is this process's own and has not ended.
func (l *Scheduler) isActive(h timer.Handle, d *table.Due) bool {
	f := l.leases.byTimer[h]
	return f != nil && f.seq == d.Seq && f.fence == d.Fence
}

// rearm walks the table once, in slices, and puts popped timers back into the wheel, as after a
// former leadership.
func (l *Scheduler) rearm() {
	if !l.due.rearming {
		return
	}
	next, done := l.table.RearmRange(l.due.rearmFrom, scanBudget)
	for h := l.due.rearmFrom + 1; h <= next && len(l.keys.refs) > 0; h++ {
		l.keyRefOf(h) // drops refs of topics that are not serial any more
	}
	l.due.rearmFrom, l.due.rearming = next, !done
	if !done {
		l.env.WakeNext()
	}
}

// leaseEnded handles a leased timer that left the wheel: by the wall clock its lease is over.
func (l *Scheduler) leaseEnded(h timer.Handle, d *table.Due) {
	if d.Holder != table.ByCall { // a consumer's lease ends by the monotonic clock
		l.hold(h, d, l.holdsUntil(h, d))
		return
	}
	horizon := l.now.WallMs + l.due.lookAhead.Milliseconds()
	switch wait := l.inheritedWait(h, d); {
	case wait < 0:
		l.table.Arm(h, horizon+CallMargin.Milliseconds()) // our own: its call will end
	case wait > 0:
		l.table.Arm(h, horizon+wait.Milliseconds()+1)
	default:
		l.resolve(h, d)
	}
}

// resolve ends the attempt of an inherited lease. The attempt counts: its call may have been made.
func (l *Scheduler) resolve(h timer.Handle, d *table.Due) {
	now := l.now.WallMs
	if !l.canJudge(h, d) {
		l.table.Arm(h, now+l.due.lookAhead.Milliseconds()+unknownWait.Milliseconds())
		return
	}
	out := l.judge(h, d, &delivery.Outcome{Err: Interrupted, StartedMs: now, EndedMs: now}, 0)
	if out.Kind == table.RetryLater {
		out.NextMs = l.notBeforeDue(h, now) // no backoff: the receiver did nothing wrong
	}
	out.CallOnly = out.Kind == table.RetryLater || out.Kind == table.Kill
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, nil})
}

// unknownWait is the delay until a timer whose topic is not known yet is looked at again.
const unknownWait = 500 * time.Millisecond

// canJudge reports whether this node knows the timer's topic, and the zone of its series. A node
// that has just started may lead a shard before it has learned the topics again. The default policy
// would be wrong: it has other attempts and another backoff (I17).
func (l *Scheduler) canJudge(h timer.Handle, d *table.Due) bool {
	return l.topic(d.Topic) != nil && l.HasZone(h, d)
}

// judge decides the outcome of a leased timer's attempt, by its topic as this node knows it.
func (l *Scheduler) judge(h timer.Handle, d *table.Due, a *delivery.Outcome, random float64) table.Outcome {
	policy := timer.DefaultPolicy()
	if topic := l.topic(d.Topic); topic != nil {
		policy = topic.Policy
	}
	own := l.table.RetryOf(h)
	out := judge(&policy, &own, d.Attempts, a, random)
	out.Handle, out.Seq, out.Fence = h, d.Seq, d.Fence
	if out.Kind == table.RetryLater { // the clock of a former leader may have been ahead (I4)
		out.NextMs = l.notBeforeDue(h, out.NextMs)
	}
	if out.Kind == table.Ack || out.Kind == table.Kill {
		out.AgainMs = l.again(h, a.StartedMs)
	}
	return out
}

// notBeforeDue returns the time of a leased timer's next attempt, ms or later; see table.Due.
func (l *Scheduler) notBeforeDue(h timer.Handle, ms int64) int64 {
	d := l.table.Due(h)
	return d.NotBefore(ms)
}

// RearmAll restarts rearm: queued timers were dropped, or the log did not take an item.
func (l *Scheduler) RearmAll() { l.due.rearming, l.due.rearmFrom = true, 0 }
