package table

import (
	"carillon/shard/table/content"
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
	ahead := t.dueMs(s) > now && t.DueByClock(h)
	// An occurrence that was resumed late by the wrong time alone is not to be skipped.
	missed := s.Missed() && s.When() > now
	if !made && !ran && !lent && !ahead && !missed {
		return
	}
	s = t.beginUpdate(h)
	asked := v.AskedMs
	if made {
		s.Ref = r.blob(t, h, s.Ref)
	}
	if ahead {
		r.due(t, h, s)
	}
	if s.Attempt != 0 {
		r.stamps(t, h, s, asked)
	}
	if missed {
		unmiss(s)
	}
	t.endUpdate(h, s)
}

// due makes a timer with an open update due now that is due by a wrong clock; see DueByClock.
func (r *restamping) due(t *Table, h timer.Handle, s *slab.Slot) {
	t.setDue(s, t.clockMs)
	if s.State() == timer.Scheduled && s.Attempts() == 0 {
		t.transition(h, s, timer.Scheduled, min(s.When(), t.clockMs))
	}
}

// DueByClock reports whether the shard's clock had reached a timer's due time when it became due:
// an outcome is due at once, an array when it is full, and an occurrence that its series has left
// was called. If such a time is later than now, a wrong clock has set it, and it means now. All
// other times are those of clients and calendars, which stay, or which the leader sets again: see
// SeriesByRule.
func (t *timers) DueByClock(h timer.Handle) bool {
	v, next := t.viewOf(h), t.viewOf(t.chains[h].newer)
	return t.get(h) != nil && (isOutcome(&v) || t.arrays[h].Closed || isLeft(&v, &next))
}

// isLeft reports whether a timer is an occurrence that its series has left, and whose due time the
// series has set. A client has set that of the first one, which shows as long as the next one is
// the second, and of one that was changed or fired. A series that catches up with all has no other
// occurrence for that time, so it stays, too.
func isLeft(v, next *content.Blob) bool {
	if v.Flags&content.IsSeries == 0 || v.Flags&content.NoExpiry != 0 || v.Occurrence != 0 || v.Version != 1 || v.AskedMs != 0 {
		return false
	}
	p := restRepeat(v.Rest)
	return p != nil && p.Overlap && p.CatchUp != timer.CatchUpAll && next.Occurrence != 2
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

// Restamping reports whether slots are still being restamped after the clock was set back.
func (r *restamping) Restamping() bool { return r.restamped < seriesAwait }

// AwaitsSeries reports whether all slots are restamped and the leader must still correct the
// series.
func (r *restamping) AwaitsSeries() bool { return r.restamped == seriesAwait }
