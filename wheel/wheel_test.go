package wheel

import (
	"math"
	"slices"
	"testing"
	"unsafe"
)

func advance(t *testing.T, w *Wheel, to Tick) {
	t.Helper()
	if _, done := w.Advance(to, math.MaxInt); !done || w.Now() != to {
		t.Fatalf("Advance(%d) stopped at %d, done %t", to, w.Now(), done)
	}
	audit(t, w)
}

func audit(t *testing.T, w *Wheel) {
	t.Helper()
	if err := w.Audit(); err != nil {
		t.Fatal(err)
	}
}

func popAll(w *Wheel) []Handle {
	out := make([]Handle, w.Due()+1)
	return out[:w.Pop(out)]
}

func wantPopped(t *testing.T, w *Wheel, want ...Handle) {
	t.Helper()
	if got := popAll(w); !slices.Equal(got, want) {
		t.Fatalf("at %d popped %v, want %v", w.Now(), got, want)
	}
	audit(t, w)
}

func wantPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

func TestNodeSize(t *testing.T) {
	if size := unsafe.Sizeof(node{}); size > 24 {
		t.Fatalf("node has %d bytes, want at most 24", size)
	}
}

func TestEmpty(t *testing.T) {
	w := New(-5)
	if w.Now() != 0 || w.Len() != 0 || w.Due() != 0 || w.Remove(1) {
		t.Fatalf("Now, Len, Due = %d, %d, %d", w.Now(), w.Len(), w.Due())
	}
	if _, ok := w.Next(); ok {
		t.Fatal("Next of an empty wheel")
	}
	if _, in := w.When(77); in {
		t.Fatal("When of a handle never seen")
	}
	advance(t, w, math.MaxInt64)
	if spent, done := w.Advance(3, 0); spent != 0 || !done || w.Now() != math.MaxInt64 {
		t.Fatalf("time went back to %d", w.Now())
	}
	wantPopped(t, w)
}

func TestMisusePanics(t *testing.T) {
	w := New(0)
	w.Add(5, 10)
	wantPanic(t, func() { w.Add(5, 11) })
	wantPanic(t, func() { w.Add(0, 11) })
	wantPanic(t, func() { w.Add(MaxHandle+1, 11) })
	wantPanic(t, func() { w.Move(6, 11) })
	audit(t, w)
	if when, _ := w.When(5); when != 10 || w.Len() != 1 {
		t.Fatalf("When, Len = %d, %d after refused calls", when, w.Len())
	}
}

func TestSparseHandles(t *testing.T) {
	w := New(0)
	far := Handle(5 * chunkLen)
	w.Add(far, 3)
	if w.Remove(far-chunkLen) || w.Remove(far+chunkLen) || w.Remove(far-1) {
		t.Fatal("removed what was never added")
	}
	w.Add(1, 3)
	advance(t, w, 3)
	wantPopped(t, w, far, 1)
}

func TestPastIsDueBehindTheDue(t *testing.T) {
	w := New(100)
	w.Add(1, 101)
	advance(t, w, 102)
	w.Add(2, 99)
	w.Add(3, -7)
	w.Add(4, 102)
	w.Move(4, math.MinInt64)
	if w.Due() != 4 {
		t.Fatalf("Due = %d", w.Due())
	}
	if when, in := w.When(3); when != 0 || !in {
		t.Fatalf("When(3) = %d, %t", when, in)
	}
	wantPopped(t, w, 1, 2, 3, 4)
}

func TestDueListIsRemovable(t *testing.T) {
	w := New(0)
	for h := Handle(1); h <= 6; h++ {
		w.Add(h, Tick(h+1)/2) // 1 1 2 2 3 3
	}
	advance(t, w, 50) // a follower: no Pop
	for _, h := range []Handle{3, 1, 6} {
		if !w.Remove(h) || w.Remove(h) {
			t.Fatalf("Remove(%d) twice", h)
		}
		audit(t, w)
	}
	w.Move(2, 60)
	w.Add(1, 1)
	if w.Due() != 3 || w.Len() != 4 {
		t.Fatalf("Due, Len = %d, %d", w.Due(), w.Len())
	}
	wantPopped(t, w, 4, 5, 1)
	advance(t, w, 60)
	wantPopped(t, w, 2)
}

func TestPopInPieces(t *testing.T) {
	w := New(0)
	for h := Handle(1); h <= 5; h++ {
		w.Add(h, 9)
	}
	advance(t, w, 9)
	if n := w.Pop(nil); n != 0 {
		t.Fatalf("Pop(nil) = %d", n)
	}
	for _, want := range []int{2, 2, 1, 0} {
		if n := w.Pop(make([]Handle, 2)); n != want {
			t.Fatalf("Pop = %d, want %d", n, want)
		}
		audit(t, w)
	}
}

func TestAuditFindsDamage(t *testing.T) {
	damage := map[string]func(w *Wheel){
		"bitmap":     func(w *Wheel) { w.bitmaps[2] = 1 },
		"lost":       func(w *Wheel) { w.node(2).next, w.node(2).prev = 0, 0 },
		"half":       func(w *Wheel) { w.node(9).next = 4 },
		"stray":      func(w *Wheel) { w.node(9).next, w.node(9).prev = 4, 4 },
		"loop":       func(w *Wheel) { w.node(3).next = 2 },
		"tick":       func(w *Wheel) { w.node(2).stampLow++ },
		"flag":       func(w *Wheel) { w.node(2).stampHigh &^= lowestFlag >> 32 },
		"slot count": func(w *Wheel) { w.lowest[5]++ },
		"due count":  func(w *Wheel) { w.due++ },
		"count":      func(w *Wheel) { w.count++ },
		"tail":       func(w *Wheel) { w.lists[5].tail = 1 },
		"early":      func(w *Wheel) { w.now = 1 },
	}
	for name, harm := range damage {
		w := New(3)
		for h := Handle(1); h <= 3; h++ {
			w.Add(h, 5)
		}
		w.Add(4, 2)
		audit(t, w)
		if harm(w); w.Audit() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
