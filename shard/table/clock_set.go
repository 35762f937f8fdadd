package table

import (
	"carillon/shard/table/slab"
	"carillon/timer"
)

// A leader that trusts its wall clock sets the shard's clock back if that has run ahead. This
// happens after an earlier leader's clock was wrong and no other node could correct it. Stamps by
// the wrong time would be later than all new ones, so they are corrected ("restamped").

const (
	// ClockAheadMs is how far the shard's clock may be ahead of its leader's without being set
	// back. A smaller difference disappears by itself: two leaders with valid clocks may differ by
	// as much.
	ClockAheadMs = 2_000

	// restampsPerEntry is the number of slots that one entry restamps.
	restampsPerEntry = 4096
	// Values of restamped beyond all slots. noRestamp means that nothing is to be done.
	// seriesAwait means that all slots are restamped and the leader must still correct the series.
	noRestamp   timer.Handle = 1<<32 - 1
	seriesAwait timer.Handle = 1<<32 - 2
)

// restamping corrects the stamps after the clock was set back, some slots with each entry: O(1) for
// each.
type restamping struct {
	// restamped is the last slot visited since the clock was set back. It is noRestamp if there is
	// nothing left to visit.
	restamped timer.Handle
}

// setClock sets the table's clock back. It does nothing if the clock is right, because a leader may
// propose it twice.
func (t *Table) setClock(ms int64) {
	if t.clockMs <= ms {
		return
	}
	t.clockMs, t.restamped = ms, 0
	t.Rewind(ms) // this replica used the wrong time too; visit rearms all timers
	t.closedTopics.setBack(ms)
}

// visit visits up to budget more slots after the clock was set back. It limits their stamps to
// now and puts their timers back into the wheel.
func (r *restamping) visit(t *Table, budget int) {
	for ; r.restamped < seriesAwait && budget > 0; budget-- {
		if r.restamped >= t.slots.High {
			r.restamped = seriesAwait
			return
		}
		r.restamped++
		r.timer(t, r.restamped)
		t.restore(r.restamped, t.slots.At(r.restamped))
	}
}

// timer limits the times of a timer's past events to now. Times that were derived from them move by
// as much: the end of a dead letter's retention and the next attempt.
func (r *restamping) timer(t *Table, h timer.Handle) {
	s := t.slots.At(h)
	if s.State() == 0 || t.foreign(h) {
		return
	}
	now, v := t.clockMs, t.content.View(s.Ref)
	made, ran, lent := max(v.CreatedMs, v.UpdatedMs, v.FirstMs, v.AskedMs) > now, false, false
	if s.Attempt != 0 {
		a := t.attempts.At(s.Attempt)
		ran = a.FiredMs > now || s.State() != timer.Leased && a.EndedMs() > now
		lent = s.State() == timer.Leased && (s.When() > now+int64(a.DurMs) || a.AttemptDueMs() > max(earliestMs(a.DueMs, v.AskedMs), now))
		made = made || a.Successor != 0 && t.content.View(a.Successor).CreatedMs > now
	}
	// An array that became full by the wrong time was due at that moment.
	full := t.arrays[h].Closed && s.State() == timer.Scheduled && s.Attempts() == 0 && t.dueMs(s) > now
	// An occurrence that was resumed late by the wrong time alone is not to be skipped.
	missed := s.Missed() && s.When() > now
	if !made && !ran && !lent && !full && !missed {
		return
	}
	s = t.beginUpdate(h)
	asked := v.AskedMs
	if made {
		s.Ref = r.blob(t, h, s.Ref)
	}
	if isOutcome(&v) {
		r.outcome(t, h, s)
	}
	if s.Attempt != 0 {
		r.stamps(t, h, s, asked)
	}
	if full {
		t.moveTo(h, s, now)
	}
	if missed {
		unmiss(s)
	}
	t.endUpdate(h, s)
}

// outcome makes an outcome due now that was due at once by the wrong clock.
func (r *restamping) outcome(t *Table, h timer.Handle, s *slab.Slot) {
	if t.dueMs(s) <= t.clockMs {
		return
	}
	t.setDue(s, t.clockMs)
	if s.State() == timer.Scheduled && s.Attempts() == 0 {
		t.transition(h, s, timer.Scheduled, t.clockMs)
	}
}

// blob rewrites a blob of a timer with an open update.
func (r *restamping) blob(t *Table, h timer.Handle, ref uint32) uint32 {
	v := t.content.View(ref)
	v.CreatedMs, v.UpdatedMs = min(v.CreatedMs, t.clockMs), min(v.UpdatedMs, t.clockMs)
	v.FirstMs, v.AskedMs = min(v.FirstMs, t.clockMs), min(v.AskedMs, t.clockMs)
	t.content.Retain(v.Target)
	return t.content.Replace(h, ref, &v)
}

// stamps limits the times of an attempt. asked is when Fire asked for the attempt, by the wrong
// clock.
func (r *restamping) stamps(t *Table, h timer.Handle, s *slab.Slot, asked int64) {
	now, a := t.clockMs, t.attemptOf(s)
	if a.Successor != 0 {
		a.Successor = r.blob(t, h, a.Successor)
	}
	fired := a.FiredMs
	a.FiredMs = min(fired, now)
	v := t.content.View(s.Ref)
	if from := v.LateFrom(a.DueMs); a.Lateness > 0 && from+a.Lateness > now {
		a.Lateness = max(now-from, 0)
	}
	switch s.State() {
	case timer.Done, timer.Cancelled:
		a.SetEndedMs(min(a.EndedMs(), now))
		s.SetWhen(min(s.When(), now))
	case timer.Dead:
		if late := a.EndedMs() - now; late > 0 {
			a.SetEndedMs(now)
			t.transition(h, s, timer.Dead, s.When()-late)
		}
	case timer.Leased:
		// A release reschedules the timer at this time.
		a.SetAttemptDueMs(min(a.AttemptDueMs(), max(earliestMs(a.DueMs, v.AskedMs), now)))
		t.transition(h, s, timer.Leased, min(s.When(), now+int64(a.DurMs)))
	case timer.Scheduled:
		if asked > now && s.When() == asked {
			t.transition(h, s, timer.Scheduled, now)
		} else if late := max(fired, a.EndedMs()) - now; late > 0 && s.Attempts() > 0 && (s.When() > a.DueMs || asked != 0) {
			d := Due{FirstMs: a.DueMs, AskedMs: v.AskedMs}
			t.transition(h, s, timer.Scheduled, d.NotBefore(s.When()-late))
		}
		a.SetEndedMs(min(a.EndedMs(), now))
	}
}

// seriesSeen records that the leader has corrected all series.
func (r *restamping) seriesSeen() {
	if r.restamped == seriesAwait {
		r.restamped = noRestamp
	}
}

// Restamping reports whether slots are still being restamped after the clock was set back.
func (r *restamping) Restamping() bool { return r.restamped < seriesAwait }

// AwaitsSeries reports whether all slots are restamped and the leader must still correct the
// series.
func (r *restamping) AwaitsSeries() bool { return r.restamped == seriesAwait }
