package table

import (
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/wheel"
)

// WheelWaits counts scheduled timers that are due, or between attempts, and wait in the wheel.
type WheelWaits struct {
	Backoff int64 // for their next attempt
	Refused int64 // the same; their last call was refused an address
	Spread  int64 // see Delay
	Paused  int64 // until a client resumes them; see Hold
	Order   int64 // until those of their id before them have ended; see Hold
}

// wheelWaits knows which timers are counted in a WheelWaits. What was popped is not: it waits for
// something else. The counts are local to a replica, as the wheel is.
type wheelWaits struct {
	counted []uint64 // a bit for each handle
	all     WheelWaits
}

func (r *wheelWaits) bit(h timer.Handle) (word *uint64, mask uint64) {
	if n := int(h >> 6); n < len(r.counted) {
		return &r.counted[n], 1 << (h & 63)
	}
	return nil, 0
}

// WheelWaits returns the counts of a topic, and those of all topics.
func (t *timetable) WheelWaits(topic timer.TopicID) (of, all WheelWaits) {
	if row, ok := t.topics.rowOf[topic]; ok {
		of = t.topics.rows[row].wheelWaits
	}
	return of, t.wheelWaits.all
}

// waitsForRetry reports whether a timer waits in the wheel for its next attempt. See Due.InBackoff.
func (t *timetable) waitsForRetry(h timer.Handle, s *slab.Slot) bool {
	if s.State() != timer.Scheduled || s.Attempts() == 0 || s.When() == t.dueMs(s) {
		return false
	}
	at, in := t.wheel.When(wheel.Handle(h))
	wake, _ := t.wakeMs(h, s)
	return in && int64(at) == wake
}

// countWait counts a timer that has its place in the wheel, if it waits there for its next
// attempt.
func (t *timetable) countWait(h timer.Handle, s *slab.Slot) {
	if t.waitsForRetry(h, s) && !t.foreign(h) {
		t.setWait(h, s)
	}
}

// setWait counts a timer that waits in the wheel, and nowhere else.
func (t *timetable) setWait(h timer.Handle, s *slab.Slot) {
	t.WaitIn(h, nil)
	for int(h>>6) >= len(t.wheelWaits.counted) {
		t.wheelWaits.counted = append(t.wheelWaits.counted, 0)
	}
	if word, mask := t.wheelWaits.bit(h); *word&mask == 0 {
		*word |= mask
		t.addWait(h, s, +1)
	}
}

func (t *timetable) countsWait(h timer.Handle) bool {
	word, mask := t.wheelWaits.bit(h)
	return word != nil && *word&mask != 0
}

// Delay is Arm for a timer that is due and whose first attempt is spread.
func (t *timetable) Delay(h timer.Handle, atMs int64) {
	if s := t.get(h); s != nil && s.Attempts() == 0 {
		t.Arm(h, atMs)
		t.setWait(h, s)
	}
}

// Hold counts a timer that is due, has left the wheel, and is held by a client or waits behind
// another of its id. It is armed for its expiry, if it has one; 0: none.
func (t *timetable) Hold(h timer.Handle, expiresMs int64) {
	s := t.get(h)
	if s == nil || !s.Paused() && !t.isBehind(h, s) {
		return
	}
	if expiresMs != 0 {
		t.Arm(h, expiresMs)
	}
	t.setWait(h, s)
}

// uncountWait comes before any change of a timer, and when it leaves the wheel.
func (t *timetable) uncountWait(h timer.Handle) {
	if word, mask := t.wheelWaits.bit(h); word != nil && *word&mask != 0 {
		*word &^= mask
		t.addWait(h, t.slots.At(h), -1)
	}
}

func (t *timetable) addWait(h timer.Handle, s *slab.Slot, by int64) {
	for _, r := range [...]*WheelWaits{&t.topics.rows[s.Topic].wheelWaits, &t.wheelWaits.all} {
		switch {
		case s.Paused():
			r.Paused += by
		case t.isBehind(h, s):
			r.Order += by
		case s.Attempts() == 0:
			r.Spread += by
		case t.wasRefused(s):
			r.Refused += by
		default:
			r.Backoff += by
		}
	}
}

// Overdue returns about how many clients' timers are due, in a table whose wheel moves on and from
// which nothing is popped.
func (t *timetable) Overdue() int64 {
	canary, all := t.Counts(CanaryTopic), t.Totals()
	own := canary.Scheduled + canary.Leased
	return max(0, min(int64(t.wheel.Due()), all.Scheduled+all.Leased)-own)
}
