package table

import (
	"cmp"
	"slices"

	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/wheel"
)

// timetable knows when each timer wakes. It is local to a leader: it changes neither the replicated
// state nor its hash. To arm a timer is O(1).
//
// A popped timer is out of the wheel until its schedule changes or Arm or Rearm puts it back. A
// leader that steps down and may lead again must Rearm the popped timers that it still holds.
type timetable struct {
	timers
	wheel      *wheel.Wheel
	wheelWaits wheelWaits
	queued     queuedTimers
}

// MemoryBytes returns the bytes allocated for timers, in use or not.
func (t *timetable) MemoryBytes() int64 {
	const wheelNode, wheelChunk, chainEntry, namingEntry = 20, 1024, 72, 32
	wheelNodes := (int64(t.slots.Rows()) + wheelChunk) &^ (wheelChunk - 1)
	return t.slots.Memory() + t.attempts.Memory() + t.content.Memory() + t.ids.Memory() + t.chainRoom.of(len(t.chains))*chainEntry + t.naming.room.of(len(t.naming.of))*namingEntry +
		t.collections.memory() + t.division.memory() + wheelNodes*wheelNode + int64(cap(t.wheelWaits.counted)+cap(t.wheelWaits.spread))*8 + t.queued.memory()
}

// Full reports that hardly anything more finds a place in this table, however much memory there is.
func (t *timetable) Full() bool { return t.content.Full() }

// Advance moves the wheel to nowMs with at most budget units of work. It reports whether the wheel
// has reached nowMs.
func (t *timetable) Advance(nowMs int64, budget int) (done bool) {
	_, done = t.wheel.Advance(wheel.Tick(nowMs), budget)
	return done
}

// Rewind sets the wheel back to nowMs if it is far ahead, since a wrong clock has moved it. By such
// a wheel all that comes into it is due at once, again and again. It reports whether it did: then
// all timers must be rearmed. Where that clock is in an entry, too, setClock does it. Cost: O(1).
func (t *timetable) Rewind(nowMs int64) bool {
	if int64(t.wheel.Now())-nowMs <= ClockAheadMs {
		return false
	}
	t.wheel = wheel.New(wheel.Tick(nowMs))
	return true
}

// Pop takes due timers out of the wheel and returns their number: less than len(dst) when no more
// are due. Half of them are those that became due last, which need not wait until all of a herd has
// left the wheel.
func (t *timetable) Pop(dst []wheel.Handle) int {
	n := t.wheel.Pop(dst[:(len(dst)+1)/2])
	n += t.wheel.PopLast(dst[n:])
	for i, row := range dst[:n] {
		h := t.slots.Handle(uint32(row))
		dst[i] = wheel.Handle(h)
		t.uncountWait(h)
	}
	return n
}

// NextDue returns the earliest time at which Advance or Pop has work.
func (t *timetable) NextDue() (ms int64, ok bool) {
	if t.wheel.Due() > 0 {
		return int64(t.wheel.Now()), true
	}
	next, ok := t.wheel.Next()
	return int64(next), ok
}

// wheelHandle returns a timer's handle in the wheel, whose nodes are as many as the rows.
func wheelHandle(s *slab.Slots, h timer.Handle) wheel.Handle { return wheel.Handle(s.Row(h)) }

// pack packs the slots, if that saves memory, and returns a wheel with the same timers by their new
// rows. What is due leaves it in the order of its times. Cost: O(slots), and O(n log n) of what is
// due.
func pack(s *slab.Slots, w *wheel.Wheel) *wheel.Wheel {
	if !s.CanPack() {
		return w
	}
	type armed struct {
		h  timer.Handle
		at wheel.Tick
	}
	var due []armed
	later := make([]armed, 0, w.Len())
	for h := timer.Handle(1); h <= s.High; h++ {
		switch at, in := w.When(wheelHandle(s, h)); {
		case in && at <= w.Now():
			due = append(due, armed{h, at})
		case in:
			later = append(later, armed{h, at})
		}
	}
	slices.SortStableFunc(due, func(a, b armed) int { return cmp.Compare(a.at, b.at) })
	s.Pack()
	w = wheel.New(w.Now())
	for _, a := range append(due, later...) {
		w.Add(wheelHandle(s, a.h), a.at)
	}
	return w
}

// Arm adds a timer to the wheel at atMs, or moves it there.
func (t *timetable) Arm(h timer.Handle, atMs int64) {
	if t.get(h) == nil {
		return
	}
	at := wheel.Tick(timer.ClampMs(atMs))
	in := wheelHandle(&t.slots, h)
	if _, is := t.wheel.When(in); is {
		t.wheel.Move(in, at)
		return
	}
	t.wheel.Add(in, at)
}

// place arms the wheel for a timer according to its state:
//
//	Scheduled  at its next attempt, or right after its expiry if that is earlier
//	Leased     at the end of the lease
//	Dead       at the end of its retention
//	Done, Cancelled  not armed
func (t *timetable) place(h timer.Handle, s *slab.Slot) {
	if at, wakes := t.wakeMs(h, s); wakes {
		t.Arm(h, at)
	} else {
		t.wheel.Remove(wheelHandle(&t.slots, h))
	}
}

// RearmRange puts popped timers back into the wheel according to their state. It visits at most
// budget slots after from (0 at first) and returns the slot to continue after.
func (t *timetable) RearmRange(from timer.Handle, budget int) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slots.High; budget-- {
		var s *slab.Slot
		from, s = t.slots.Visit(from, t.slots.High)
		t.restore(from, s)
	}
	return from, from >= t.slots.High
}

// Rearm is RearmRange for one timer, if the handle still holds that number.
func (t *timetable) Rearm(h timer.Handle, seq uint64) {
	if s := t.live(h, seq); s != nil {
		t.restore(h, s)
	}
}

// restore puts a timer back. One that is armed for its expiry alone was popped too.
func (t *timetable) restore(h timer.Handle, s *slab.Slot) {
	if at, wakes := t.wakeMs(h, s); wakes {
		if armed, in := t.wheel.When(wheelHandle(&t.slots, h)); !in || int64(armed) > at {
			t.Arm(h, at)
			t.countWait(h, s)
		}
	}
}
