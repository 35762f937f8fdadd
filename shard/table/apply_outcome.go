package table

import "carillon/timer"

// EndSlackMs is how far an attempt's reported end may lie before the entry that reports it; the end
// of what lies elsewhere is the entry's time. So the list of finished timers is in order of their
// ends but for this much.
const EndSlackMs = 60_000

func (t *Table) endMs(o *Outcome) int64 {
	if o.EndedMs > t.clockMs || o.EndedMs < t.clockMs-EndSlackMs {
		return t.clockMs
	}
	return max(o.EndedMs, 0)
}

// outcome ends a lease, if it is still the timer's.
func (t *Table) outcome(o *Outcome) timer.Result {
	s := t.live(o.Handle, o.Seq)
	if s == nil || s.state() != timer.Leased || t.runs.at(s.run).fence != o.Fence {
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
	t.dropIfSuperseded(o.Handle)
	return timer.Result{Code: timer.OK, Handle: o.Handle}
}

// prolong leaves a lease with its consumer: the receiver that accepted it, or who has it already.
// Who waits for the attempt's end goes on waiting, and so does a cancel.
func (t *Table) prolong(o *Outcome) timer.Result {
	s := t.beginUpdate(o.Handle)
	r := t.runs.at(s.run)
	if o.Kind == Accepted {
		t.record(o, s)
		if r.holder == byReport && o.LeaseMs <= int64(r.durMs) {
			t.endUpdate(o.Handle, s) // a former leader tells of the 202 that its receiver has built on meanwhile: what that was given stays
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

// record keeps what the attempt was.
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

// started keeps when the attempt began.
func (t *Table) started(s *slot, r *attemptState, ms int64) {
	r.firedMs = timer.ClampMs(ms)
	if r.lateness < 0 {
		created := t.view(s.ref).createdMs
		r.lateness = max(r.firedMs-max(r.dueMs, created), 0)
	}
}

// conclude moves the timer on. One whose cancel was asked for while it was leased gets no further
// attempt (I5).
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
