package table

import "carillon/timer"

// EndSlackMs is how far an attempt's reported end may be before the time of the entry that reports
// it. An end outside of this range is replaced by the entry's time. The list of finished timers is
// therefore ordered by end time up to this slack.
const EndSlackMs = 60_000

func (t *Table) endMs(o *Outcome) int64 {
	if o.EndedMs > t.clockMs || o.EndedMs < t.clockMs-EndSlackMs {
		return t.clockMs
	}
	return max(o.EndedMs, 0)
}

// outcome ends or extends a lease, if the timer still has it.
func (t *Table) outcome(o *Outcome) timer.Result {
	s := t.live(o.Handle, o.Seq)
	if s == nil || s.state() != timer.Leased || t.runs.at(s.run).fence != o.Fence {
		return timer.Result{Code: timer.Skipped, Handle: o.Handle}
	}
	if o.CallOnly && t.runs.at(s.run).holder != ByCall {
		return timer.Result{Code: timer.Skipped, Handle: o.Handle}
	}
	if o.Kind == Accepted || o.Kind == Extended {
		return t.prolong(o)
	}
	s = t.beginUpdate(o.Handle)
	successor := t.takeSuccessor(s)
	t.record(o, s)
	if t.events != nil {
		t.events.byAttempt = o.Kind != Release
	}
	t.conclude(o, s)
	if t.events != nil {
		t.events.byAttempt = false
		t.tellAttempt(o, s)
	}
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
	r := t.runs.at(s.run)
	if o.Kind == Accepted {
		t.record(o, s)
		if r.holder == byReport && o.LeaseMs <= int64(r.durMs) {
			// A former leader reports a 202 late, and the receiver has acted on it since. Keep the
			// lease that the receiver has.
			t.endUpdate(o.Handle, s)
			return timer.Result{Code: timer.OK, Handle: o.Handle}
		}
		if t.Delivers(t.topics.rows[s.topic].id, false) {
			r.holder = byReport
		}
	}
	r.durMs = uint32(min(o.LeaseMs, 1<<32-1))
	t.transition(o.Handle, s, timer.Leased, t.clockMs+timer.ClampMs(o.LeaseMs))
	t.endUpdate(o.Handle, s)
	return timer.Result{Code: timer.OK, Handle: o.Handle}
}

// record stores the attempt's status, error and start.
func (t *Table) record(o *Outcome, s *slot) {
	if o.Kind == Release {
		s.setAttempts(s.attempts() - 1)
		return
	}
	r := t.runs.at(s.run)
	r.status = uint16(min(max(o.Status, 0), 1<<16-1))
	t.setError(o.Handle, r, o.Err)
	t.started(s, r, o.StartedMs)
}

// started stores the start of the attempt and, for the first attempt, its lateness.
func (t *Table) started(s *slot, r *attemptState, ms int64) {
	r.firedMs = timer.ClampMs(ms)
	if r.lateness < 0 {
		v := t.view(s.ref)
		r.lateness = max(r.firedMs-v.lateFrom(r.dueMs), 0)
	}
}

// conclude moves the timer to its next state. If its cancel was requested while it was leased, it
// gets no further attempt (I5).
func (t *Table) conclude(o *Outcome, s *slot) {
	h := o.Handle
	switch {
	case o.Kind == Ack:
		t.end(h, s, timer.Done, t.endMs(o))
	case s.cancelled():
		t.end(h, s, timer.Cancelled, t.endMs(o))
	case o.Kind == RetryLater:
		t.runs.at(s.run).setEndedMs(t.clockMs)
		t.transition(h, s, timer.Scheduled, o.NextMs)
	case o.Kind == Release:
		r := t.runs.at(s.run)
		t.transition(h, s, timer.Scheduled, r.attemptDueMs())
		r.setEndedMs(t.clockMs)
	default:
		t.kill(h, s, o.Reason, t.endMs(o), o.RetainUntilMs)
	}
}
