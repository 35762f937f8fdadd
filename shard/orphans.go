package shard

import "time"

// orphanRule says when the leases of former leaders may be taken as ended.
//
// A lease that this node's own former process took is over: the process is gone, its calls with it. So is one that this process
// took in a former reign, unless its call still runs, which its flight says. Any other may belong to a leader
// that is only paused; it is waited out in full, on this node's monotonic clock, from the takeover on.
type orphanRule struct {
	ownFrom   uint64        // leases with this fence or a higher one were taken by this node; 0: none
	waitUntil time.Duration // monotonic; all others have run out by then
}

const orphanBudget = 4096

// interrupted is the last error of an attempt whose leader died before it reported.
const interrupted = "interrupted: the node that made this call stopped before it could report; the call may or may not have arrived"

// scanOrphans walks the table once, in slices, for leases that are over already.
func (l *lead) scanOrphans() {
	if !l.scanning {
		return
	}
	t := l.group.table
	next, done := t.ScanLeased(l.orphansFrom, orphanBudget, func(h Handle) {
		if d := t.Due(h); !l.flies(h, &d) && d.Fence >= l.orphan.ownFrom {
			l.resolve(h, &d)
		}
	})
	l.orphansFrom = next
	if done {
		l.scanning = false
		return
	}
	l.group.w.touchNext(l.group)
}

// flies reports that the lease is this process's own and has not ended.
func (l *lead) flies(h Handle, d *Due) bool {
	f := l.flights[h]
	return f != nil && f.seq == d.Seq && f.fence == d.Fence
}

// rewatch walks the table once, in slices, for timers that left the wheel in a former reign.
func (l *lead) rewatch() {
	if !l.rewatching {
		return
	}
	next, done := l.group.table.Rewatch(l.rewatchFrom, orphanBudget)
	l.rewatchFrom, l.rewatching = next, !done
	if !done {
		l.group.w.touchNext(l.group)
	}
}

// leaseEnded is called when the wall clock has passed a lease's end.
func (l *lead) leaseEnded(h Handle, d *Due) {
	g := l.group
	horizon := g.w.nowMs + l.lookAhead.Milliseconds()
	switch wait := l.orphan.waitUntil - g.w.mono; {
	case l.flies(h, d):
		g.table.Watch(h, horizon+callMargin.Milliseconds()) // ours: its call ends by itself
	case wait > 0:
		g.table.Watch(h, horizon+wait.Milliseconds()+1)
	default:
		l.resolve(h, d)
	}
}

// resolve ends an orphan's attempt: it counts, since its call may have been made.
func (l *lead) resolve(h Handle, d *Due) {
	policy := DefaultPolicy()
	if topic := l.topic(d.Topic); topic != nil {
		policy = topic.Policy
	}
	own := l.group.table.RetryOf(h)
	now := l.group.w.nowMs
	out := judge(&policy, &own, d.Attempts, &Attempt{Err: interrupted, StartedMs: now, EndedMs: now}, 0)
	if out.Kind == RetryLater {
		out.NextMs = now // its receiver did nothing wrong: no backoff
	}
	out.Handle, out.Seq, out.Fence = h, d.Seq, d.Fence
	l.outcomes = append(l.outcomes, outcomeItem{out, nil})
}
