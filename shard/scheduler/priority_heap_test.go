package scheduler

import (
	"fmt"
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
	for n := range 40_000 {
		grows := n/10_000%2 == 0
		if rng.IntN(5) < 3 == grows || len(want) == 0 {
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
	for n := range 5000 {
		e := entry{seq: uint64(1_000_000 + n)}
		h.push(e)
		want = append(want, e)
	}
	slices.SortFunc(want, order)
	all := slices.SortedFunc(h.all(), order)
	if !slices.Equal(all, want) || h.len() != len(want) {
		t.Fatalf("%d items, want %d", len(all), len(want))
	}
	for range 2500 {
		e := h.takeLast()
		at, found := slices.BinarySearchFunc(want, e, order)
		if !found {
			t.Fatalf("the last is %+v, which is not in it", e)
		}
		want = slices.Delete(want, at, at+1)
	}
	odd := func(e entry) bool { return e.seq%2 == 1 }
	h.filter(odd)
	want = slices.DeleteFunc(want, func(e entry) bool { return !odd(e) })
	for _, w := range want {
		if got := h.pop(); got != w {
			t.Fatalf("after a filter: popped %+v, want %+v", got, w)
		}
	}
	if h.len() != 0 {
		t.Errorf("%d left", h.len())
	}
}

func BenchmarkHeap(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var h heap[entry]
			rng := rand.New(rand.NewPCG(1, 1))
			for i := range n {
				h.push(entry{dueMs: rng.Int64N(1000), seq: uint64(i)})
			}
			for b.Loop() {
				e := h.pop()
				e.dueMs += rng.Int64N(1000)
				h.push(e)
			}
		})
	}
}
