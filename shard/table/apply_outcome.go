package table

import (
	"carillon/shard/table/slab"
	"carillon/timer"
)

// EndSlackMs is how far an attempt's reported end may be before the time of the entry that reports
// it. An end outside of this range is replaced by the entry's time. The list of finished timers is
// therefore ordered by end time up to this slack.
const EndSlackMs = 60_000

func (o *Outcome) endMs(nowMs int64) int64 {
	if o.EndedMs > nowMs || o.EndedMs < nowMs-EndSlackMs {
		return nowMs
	}
	return max(o.EndedMs, 0)
}

// outcome ends or extends a lease, if the timer still has it.
func (t *Table) outcome(o *Outcome) timer.Result {
	s := t.live(o.Handle, o.Seq)
	if s == nil || s.State() != timer.Leased || t.attempts.At(s.Attempt).Fence != o.Fence ||
		o.CallOnly && t.attempts.At(s.Attempt).Holder != ByCall {
		return timer.Result{Code: timer.Skipped, Handle: o.Handle}
	}
	if o.Kind == Accepted || o.Kind == Extended {
		return t.prolong(o)
	}
	s = t.beginUpdate(o.Handle)
	r := t.attempts.At(s.Attempt)
	successor := r.Successor // its blob is this function's from here on
	r.Successor = 0
	t.record(o, s)
	t.byAttempt = o.Kind != Release
	t.conclude(o, s)
	t.byAttempt = false
	t.events.addAttempt(&t.timers, o, s, o.endMs(t.clockMs))
	t.endUpdate(o.Handle, s)
	if successor != 0 {
		t.promote(o.Handle, successor)
	} else {
		t.continueSeries(o.Handle, o.AgainMs)
	}
	t.rankEnded(o.Handle)
	return timer.Result{Code: timer.OK, Handle: o.Handle}
}

// prolong extends a lease: of a receiver that accepted the timer, or of a consumer that already
// holds it. Clients that wait for the attempt's end keep waiting, and a requested cancel stays
// pending.
func (t *Table) prolong(o *Outcome) timer.Result {
	s := t.beginUpdate(o.Handle)
	r := t.attempts.At(s.Attempt)
	if o.Kind == Accepted {
		t.record(o, s)
		if r.Holder == slab.ByReport && o.LeaseMs <= int64(r.DurMs) {
			// A former leader reports a 202 late, and the receiver has acted on it since. Keep the
			// lease that the receiver has.
			t.endUpdate(o.Handle, s)
			return timer.Result{Code: timer.OK, Handle: o.Handle}
		}
		if t.Delivers(t.topics.rows[s.Topic].id, false) {
			r.Holder = slab.ByReport
		}
	}
	r.DurMs = uint32(min(o.LeaseMs, 1<<32-1))
	t.transition(o.Handle, s, timer.Leased, t.clockMs+timer.ClampMs(o.LeaseMs))
	t.endUpdate(o.Handle, s)
	return timer.Result{Code: timer.OK, Handle: o.Handle}
}

// conclude moves the timer to its next state. If its cancel was requested while it was leased, it
// gets no further attempt (I5).
func (t *Table) conclude(o *Outcome, s *slab.Slot) {
	h := o.Handle
	switch {
	case o.Kind == Ack:
		t.end(h, s, timer.Done, o.endMs(t.clockMs))
	case s.Cancelled():
		t.end(h, s, timer.Cancelled, o.endMs(t.clockMs))
	case o.Kind == RetryLater:
		t.attempts.At(s.Attempt).SetEndedMs(t.clockMs)
		t.transition(h, s, timer.Scheduled, o.NextMs)
	case o.Kind == Release:
		r := t.attempts.At(s.Attempt)
		t.transition(h, s, timer.Scheduled, r.AttemptDueMs())
		r.SetEndedMs(t.clockMs)
	default:
		t.kill(h, s, o.Reason, o.endMs(t.clockMs), o.RetainUntilMs)
	}
}
