package table

import (
	"carillon/timer"
	"carillon/wheel"
)

// A leader that is sure of its wall clock sets the shard's own clock back where that ran ahead: an
// earlier leader's clock was wrong, and everybody who could have said so was wrong too, or there
// was nobody. Whatever was stamped by the wrong time would count as later than all that comes: it
// is stamped anew.

const (
	// ClockAheadMs is by how much the shard's clock may be ahead of its leader's. Less passes by
	// itself: as far as this the clocks of two leaders may differ that both go by theirs.
	ClockAheadMs = 2_000

	// restampsPerEntry is how many slots one entry goes through.
	restampsPerEntry = 4096
	// What Table.restamped says when it is no slot's number: there is nothing to do, or all slots
	// were gone through and the leader is to see to the series.
	noRestamp   timer.Handle = 1<<32 - 1
	seriesAwait timer.Handle = 1<<32 - 2
)

// setClock sets the table's clock back. A leader may propose it twice: the second finds the clock
// right.
func (t *Table) setClock(ms int64) {
	if t.clockMs <= ms {
		return
	}
	t.clockMs, t.restamped = ms, 0
	if int64(t.wheel.Now())-ms > ClockAheadMs { // this replica went by the wrong time too
		t.wheel = wheel.New(wheel.Tick(ms))
	}
	for i := range t.closedTopics {
		t.closedSum -= t.closedTopics[i].hash()
		t.closedTopics[i].atMs = min(t.closedTopics[i].atMs, ms)
		t.closedSum += t.closedTopics[i].hash()
	}
}

// restamp goes through some more slots after the clock was set back: no stamp is to be later than
// now, and each timer is in the wheel again.
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

// restampTimer has nothing of a timer be later than now that has happened, and counts from now on
// what was counted from it: how long a dead letter stays, and how long the next attempt waits.
func (t *Table) restampTimer(h timer.Handle) {
	s := t.slab.at(h)
	if s.state() == 0 {
		return
	}
	now, v := t.clockMs, t.view(s.ref)
	made, ran, lent := max(v.createdMs, v.updatedMs, v.firstMs) > now, false, false
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
	if made {
		s.ref = t.restampBlob(h, s.ref)
	}
	if s.run != 0 {
		t.restampRun(h, s)
	}
	t.endUpdate(h, s)
}

// restampBlob writes a blob of a touched timer anew.
func (t *Table) restampBlob(h timer.Handle, ref uint32) uint32 {
	v := t.view(ref)
	v.createdMs, v.updatedMs, v.firstMs = min(v.createdMs, t.clockMs), min(v.updatedMs, t.clockMs), min(v.firstMs, t.clockMs)
	t.targets.retain(v.target)
	next := t.putBlob(h, &v)
	t.dropBlob(h, ref)
	return next
}

func (t *Table) restampRun(h timer.Handle, s *slot) {
	now, r := t.clockMs, t.run(s)
	if r.successor != 0 {
		r.successor = t.restampBlob(h, r.successor)
	}
	fired := r.firedMs
	r.firedMs = min(fired, now)
	if due := max(r.dueMs, t.view(s.ref).createdMs); r.lateness > 0 && due+r.lateness > now {
		r.lateness = max(now-due, 0)
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
		r.setAttemptDueMs(min(r.attemptDueMs(), max(r.dueMs, now))) // where a release takes it back to
		t.transition(h, s, timer.Leased, min(s.when(), now+int64(r.durMs)))
	case timer.Scheduled:
		if late := max(fired, r.endedMs()) - now; late > 0 && s.when() > r.dueMs {
			next := s.when() - late
			if next < r.dueMs {
				next = r.dueMs + 1 // see notBeforeDue
			}
			t.transition(h, s, timer.Scheduled, next)
		}
		r.setEndedMs(min(r.endedMs(), now))
	}
}

// seriesSeen says that the leader has seen to all series.
func (t *Table) seriesSeen() {
	if t.restamped == seriesAwait {
		t.restamped = noRestamp
	}
}

// Restamping reports that slots are still gone through after the clock was set back.
func (t *Table) Restamping() bool { return t.restamped < seriesAwait }

// AwaitsSeries reports that all were, and the leader is to see to the series.
func (t *Table) AwaitsSeries() bool { return t.restamped == seriesAwait }
