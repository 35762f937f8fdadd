package wheel

import (
	"math"
	"testing"
)

const tenYears Tick = 10 * 365 * 24 * 3_600_000

// tickNow is a time of our days, in no particular slot.
const tickNow Tick = 1_794_000_123_457

func TestJumpOverYearsIsFree(t *testing.T) {
	w := New(tickNow)
	w.Add(1, tickNow+tenYears)
	spent, done := w.Advance(tickNow+tenYears-1, 64)
	if !done || spent > levels || w.Due() != 0 {
		t.Fatalf("spent %d, done %t, due %d", spent, done, w.Due())
	}
	advance(t, w, tickNow+tenYears)
	wantPopped(t, w, 1)
}

func TestNeverEarlyNeverLate(t *testing.T) {
	// Every tick at and around each slot start of each level, alone in its wheel.
	for level := range levels + 1 {
		unit := Tick(1) << (level * slotBits)
		for _, now := range []Tick{0, 1, unit - 1, unit, tickNow} {
			for _, when := range []Tick{unit - 1, unit, unit + 1, 63 * unit, 64*unit - 1, 64 * unit, 64*unit + 1} {
				wantExactly(t, now, now+when)
				wantExactly(t, now, now&^(unit-1)+when)
			}
		}
	}
}

func wantExactly(t *testing.T, now, when Tick) {
	t.Helper()
	if when <= now {
		return
	}
	w := New(now)
	w.Add(1, when)
	for steps := 0; w.Due() == 0; steps++ {
		next, ok := w.Next()
		if !ok || next > when || steps > levels+1+int(when>>spanBits) {
			t.Fatalf("from %d to %d: Next = %d, %t in step %d", now, when, next, ok, steps)
		}
		advance(t, w, next)
	}
	if w.Now() != when {
		t.Fatalf("from %d: due at %d, want %d", now, w.Now(), when)
	}
}

func TestEveryTickOfTheLowLevels(t *testing.T) {
	// One timer on each of 3 × 4096 ticks, the wheel stepped 1 ms at a time.
	w := New(tickNow)
	const n = 3 * slots * slots
	for h := Handle(n); h > 0; h-- {
		w.Add(h, tickNow+Tick(h))
	}
	for h := Handle(1); h <= n; h++ {
		w.Advance(tickNow+Tick(h), math.MaxInt)
		if got := popAll(w); len(got) != 1 || got[0] != h {
			t.Fatalf("at +%d popped %v", h, got)
		}
	}
	audit(t, w)
}

func TestBeyondTheSpan(t *testing.T) {
	const span = Tick(1) << spanBits
	w := New(tickNow)
	times := []Tick{span - 1, span, span + 1, 2*span - 1, 2 * span, 3*span + 5, math.MaxInt64 - 1, math.MaxInt64}
	for i, when := range times {
		w.Add(Handle(i+1), when)
	}
	for i, when := range times[:6] {
		advance(t, w, when-1)
		if w.Due() != 0 {
			t.Fatalf("timer %d early", i+1)
		}
		advance(t, w, when)
		wantPopped(t, w, Handle(i+1))
	}
	advance(t, w, 100*span)
	if when, in := w.When(8); !in || when != math.MaxInt64 || w.Due() != 0 || w.Len() != 2 {
		t.Fatalf("the last timer: %d, %t; due %d", when, in, w.Due())
	}
}

func TestFarCascadeInSlices(t *testing.T) {
	const span = Tick(1) << spanBits
	tw := newTwin(t, span-3)
	for h := Handle(1); h <= 20; h++ {
		tw.add(h, span*Tick(1+h%3)+Tick(h%2))
	}
	for h := Handle(21); !tw.advance(span+1, 3); h++ {
		tw.check()
		tw.add(h, span*Tick(1+h%3)) // into the half-moved lists
		tw.remove(h - 15)
	}
	tw.check()
	for _, to := range []Tick{2 * span, 3*span + 1} {
		for !tw.advance(to, 2) {
			tw.check()
		}
		tw.pop(9)
	}
	tw.drain()
}

func TestHalfCascadedSlot(t *testing.T) {
	// At 64·64 a slot of level 2 cascades. Meddle with it after every single move.
	const start = slots * slots
	tw := newTwin(t, 1)
	for h := Handle(1); h <= 40; h++ {
		tw.add(h, start+Tick(h%4)*50)
	}
	for h := Handle(41); !tw.advance(start+7, 1); h++ {
		tw.check()
		if h%3 == 0 {
			tw.add(h, start+Tick(h%4)*50)
		} else if h < 80 {
			tw.remove(h - 40)
			tw.put(h-30, start)
		}
	}
	tw.check()
	tw.drain()
}

func TestRemoveAllDuringCascade(t *testing.T) {
	w := New(0)
	for h := Handle(1); h <= 10; h++ {
		w.Add(h, 64+Tick(h%2))
	}
	if spent, done := w.Advance(70, 4); spent != 4 || done || w.Now() != 63 {
		t.Fatalf("spent %d, done %t at %d", spent, done, w.Now())
	}
	for h := Handle(1); h <= 10; h++ {
		w.Remove(h)
		audit(t, w)
	}
	if next, ok := w.Next(); !ok || next != 64 {
		t.Fatalf("Next = %d, %t amid a cascade", next, ok)
	}
	advance(t, w, 70)
	if _, ok := w.Next(); ok || w.Len() != 0 {
		t.Fatal("not empty")
	}
}

func TestNoBudgetNoWork(t *testing.T) {
	w := New(0)
	w.Add(1, 10)
	for _, budget := range []int{0, -1} {
		if spent, done := w.Advance(20, budget); spent != 0 || done || w.Now() != 9 {
			t.Fatalf("spent %d, done %t at %d", spent, done, w.Now())
		}
	}
	if _, done := w.Advance(9, 0); !done {
		t.Fatal("budget asked for a step without work")
	}
	advance(t, w, 10)
	wantPopped(t, w, 1)
}

// A slot of a million timers moves down in bounded slices, is due in one step,
// and comes out whole and in order, although a tenth has left and as many joined.
func TestMillionInOneSlot(t *testing.T) {
	n := Handle(1_000_000)
	if testing.Short() {
		n = 50_000
	}
	const budget = 1_000
	w := New(tickNow)
	at := tickNow + 3_600_000
	for h := Handle(1); h <= n; h++ {
		w.Add(h, at)
	}
	slices, added, removed := 0, n, Handle(0)
	for done := false; !done; slices++ {
		var spent int
		if spent, done = w.Advance(at, budget); spent > budget {
			t.Fatalf("spent %d of %d", spent, budget)
		}
		if !done && w.Due() != 0 {
			t.Fatalf("%d due before the slot is whole", w.Due())
		}
		if removed < n/10 && !done {
			for range 100 {
				added++
				removed++
				w.Add(added, at)
				w.Remove(removed)
			}
		}
	}
	if least := int(n-n/10) / budget; slices < least {
		t.Fatalf("%d slices, want at least %d", slices, least)
	}
	audit(t, w)
	if w.Due() != w.Len() || w.Len() != int(n) {
		t.Fatalf("Due, Len = %d, %d, want %d", w.Due(), w.Len(), n)
	}
	for i, h := range popAll(w) {
		if h != removed+1+Handle(i) {
			t.Fatalf("place %d: handle %d, want %d", i, h, removed+1+Handle(i))
		}
	}
}

func TestDueStepIsConstant(t *testing.T) {
	w := New(0)
	for h := Handle(1); h <= 50_000; h++ {
		w.Add(h, 40)
	}
	if spent, done := w.Advance(40, 1); spent != 1 || !done || w.Due() != 50_000 {
		t.Fatalf("spent %d, done %t, due %d", spent, done, w.Due())
	}
}

func TestNoAllocationPerTimer(t *testing.T) {
	w := New(tickNow)
	w.Add(chunkLen-1, tickNow+1)
	out := make([]Handle, 64)
	if allocs := testing.AllocsPerRun(100, func() {
		now := w.Now()
		for h := Handle(1); h <= 64; h++ {
			w.Add(h, now+Tick(h*h*h))
		}
		w.Move(3, now+9)
		w.Remove(4)
		w.Advance(now+1<<20, 1<<20)
		for w.Pop(out) > 0 {
		}
	}); allocs != 0 {
		t.Fatalf("%v allocations", allocs)
	}
}
