package table

import (
	"carillon/timer"
	"carillon/wheel"
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
	// Values of Table.restamped beyond all slots. noRestamp means that nothing is to be done.
	// seriesAwait means that all slots are restamped and the leader must still correct the series.
	noRestamp   timer.Handle = 1<<32 - 1
	seriesAwait timer.Handle = 1<<32 - 2
)

// setClock sets the table's clock back. It does nothing if the clock is right, because a leader may
// propose it twice.
func (t *Table) setClock(ms int64) {
	if t.clockMs <= ms {
		return
	}
	t.clockMs, t.restamped = ms, 0
	// This replica used the wrong time too.
	if int64(t.wheel.Now())-ms > ClockAheadMs {
		t.wheel = wheel.New(wheel.Tick(ms))
	}
	for i := range t.closedTopics {
		t.closedSum -= t.closedTopics[i].hash()
		t.closedTopics[i].atMs = min(t.closedTopics[i].atMs, ms)
		t.closedSum += t.closedTopics[i].hash()
	}
}

// restamp visits up to budget more slots after the clock was set back. It limits their stamps to
// now and puts their timers back into the wheel.
func (t *Table) restamp(budget int) {
	for ; t.restamped < seriesAwait && budget > 0; budget-- {
		if t.restamped >= t.slab.high {
			t.restamped = seriesAwait
			return
		}
		t.restamped++
		t.restampTimer(t.restamped)
		t.restore(t.restamped, t.slab.at(t.restamped))
	}
}

// restampTimer limits the times of a timer's past events to now. Times that were derived from them
// move by as much: the end of a dead letter's retention and the next attempt.
func (t *Table) restampTimer(h timer.Handle) {
	s := t.slab.at(h)
	if s.state() == 0 {
		return
	}
	now, v := t.clockMs, t.view(s.ref)
	made, ran, lent := max(v.createdMs, v.updatedMs, v.firstMs, v.askedMs) > now, false, false
	if s.run != 0 {
		r := t.runs.at(s.run)
		ran = r.firedMs > now || s.state() != timer.Leased && r.endedMs() > now
		lent = s.state() == timer.Leased && (s.when() > now+int64(r.durMs) || r.attemptDueMs() > max(r.dueMs, now))
		made = made || r.successor != 0 && t.view(r.successor).createdMs > now
	}
	if !made && !ran && !lent {
		return
	}
	s = t.beginUpdate(h)
	asked := v.askedMs
	if made {
		s.ref = t.restampBlob(h, s.ref)
	}
	if s.run != 0 {
		t.restampRun(h, s, asked)
	}
	t.endUpdate(h, s)
}

// restampBlob rewrites a blob of a timer with an open update.
func (t *Table) restampBlob(h timer.Handle, ref uint32) uint32 {
	v := t.view(ref)
	v.createdMs, v.updatedMs = min(v.createdMs, t.clockMs), min(v.updatedMs, t.clockMs)
	v.firstMs, v.askedMs = min(v.firstMs, t.clockMs), min(v.askedMs, t.clockMs)
	t.targets.retain(v.target)
	next := t.putBlob(h, &v)
	t.dropBlob(h, ref)
	return next
}

// restampRun limits the times of an attemptState. asked is when Fire asked for the attempt, by the
// wrong clock.
func (t *Table) restampRun(h timer.Handle, s *slot, asked int64) {
	now, r := t.clockMs, t.run(s)
	if r.successor != 0 {
		r.successor = t.restampBlob(h, r.successor)
	}
	fired := r.firedMs
	r.firedMs = min(fired, now)
	v := t.view(s.ref)
	if from := v.lateFrom(r.dueMs); r.lateness > 0 && from+r.lateness > now {
		r.lateness = max(now-from, 0)
	}
	switch s.state() {
	case timer.Done, timer.Cancelled:
		r.setEndedMs(min(r.endedMs(), now))
		s.setWhen(min(s.when(), now))
	case timer.Dead:
		if late := r.endedMs() - now; late > 0 {
			r.setEndedMs(now)
			t.transition(h, s, timer.Dead, s.when()-late)
		}
	case timer.Leased:
		// A release reschedules the timer at this time.
		at := min(r.attemptDueMs(), max(r.dueMs, now))
		if asked > now && r.attemptDueMs() == asked {
			at = now
		}
		r.setAttemptDueMs(at)
		t.transition(h, s, timer.Leased, min(s.when(), now+int64(r.durMs)))
	case timer.Scheduled:
		if asked > now && s.when() == asked {
			t.transition(h, s, timer.Scheduled, now)
		} else if late := max(fired, r.endedMs()) - now; late > 0 && s.attempts() > 0 && (s.when() > r.dueMs || asked != 0) {
			d := Due{FirstMs: r.dueMs, AskedMs: v.askedMs}
			t.transition(h, s, timer.Scheduled, d.NotBefore(s.when()-late))
		}
		r.setEndedMs(min(r.endedMs(), now))
	}
}

// seriesSeen records that the leader has corrected all series.
func (t *Table) seriesSeen() {
	if t.restamped == seriesAwait {
		t.restamped = noRestamp
	}
}

// Restamping reports whether slots are still being restamped after the clock was set back.
func (t *Table) Restamping() bool { return t.restamped < seriesAwait }

// AwaitsSeries reports whether all slots are restamped and the leader must still correct the
// series.
func (t *Table) AwaitsSeries() bool { return t.restamped == seriesAwait }
