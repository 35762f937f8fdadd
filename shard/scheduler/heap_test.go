package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var h heap[entry]
	var want []entry
	order := func(a, b entry) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	}
	for n := range 20_000 {
		if rng.IntN(5) < 3 || len(want) == 0 {
			e := entry{dueMs: rng.Int64N(1000), seq: uint64(n), rank: uint64(rng.IntN(3))}
			h.push(e)
			at, _ := slices.BinarySearchFunc(want, e, order)
			want = slices.Insert(want, at, e)
			continue
		}
		if got := h.pop(); got != want[0] {
			t.Fatalf("popped %+v, want %+v", got, want[0])
		}
		want = want[1:]
	}
	odd := func(e entry) bool { return e.seq%2 == 1 }
	h.filter(odd)
	want = slices.DeleteFunc(want, func(e entry) bool { return !odd(e) })
	for _, w := range want {
		if got := h.pop(); got != w {
			t.Fatalf("after a filter: popped %+v, want %+v", got, w)
		}
	}
	if h.len() != 0 || cap(h.items) > 4096 {
		t.Errorf("%d left, room for %d: a drained backlog keeps its memory", h.len(), cap(h.items))
	}
}
