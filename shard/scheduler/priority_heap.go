package scheduler

import (
	"iter"

	"carillon/internal/order"
	"carillon/timer"
)

// entry is a timer in a leader's queue, due or about to be. It is a hint: the timer may have
// changed since, which its revision shows.
type entry struct {
	dueMs  int64
	seq    uint64
	rank   uint64 // what it is ordered by first: rankOf its priority, or the tag of its turn
	handle timer.Handle
	rev    uint32
}

// rankOf is the rank of a priority.
func rankOf(priority uint8) uint64 { return uint64(255 - priority) }

// before orders ready timers by rank, then due time, then arrival.
func (e entry) before(o entry) bool {
	if e.rank != o.rank {
		return e.rank < o.rank
	}
	if e.dueMs != o.dueMs {
		return e.dueMs < o.dueMs
	}
	return e.seq < o.seq
}

// ordered is the constraint of a heap's items.
type ordered[T any] interface{ before(T) bool }

var (
	_ ordered[entry]        = entry{}
	_ ordered[*activeLease] = (*activeLease)(nil)
	_ ordered[shutKey]      = shutKey{}
	_ ordered[windowKey]    = windowKey{}
)

// heap is a binary min-heap of values by before; container/heap would box each one. Cost: O(log n)
// for push and pop, O(1) for len, top and at.
type heap[T ordered[T]] struct{ items order.Chunks[T] }

func (h *heap[T]) len() int { return h.items.Len() }

// at is the item at a place: its children are at 2i+1 and 2i+2.
func (h *heap[T]) at(i int) *T { return h.items.At(i) }

// takeLast takes the item at the last place, which needs no order. Most of many keys have one timer,
// once: they keep no memory for a next one.
func (h *heap[T]) takeLast() T {
	v := h.items.TakeLast()
	h.items.ReleaseOne()
	return v
}

func (h *heap[T]) top() T { return *h.at(0) }

// all are the items, in no order.
func (h *heap[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := range h.len() {
			if !yield(*h.at(i)) {
				return
			}
		}
	}
}

func (h *heap[T]) push(v T) {
	i := h.len()
	h.items.Push(v)
	hole := h.at(i)
	for i > 0 {
		i = (i - 1) / 2
		parent := h.at(i)
		if !v.before(*parent) {
			break
		}
		*hole, hole = *parent, parent
	}
	*hole = v
}

func (h *heap[T]) pop() T {
	v, last := h.top(), h.takeLast()
	if h.len() > 0 {
		*h.at(0) = last
		h.down(0)
	}
	return v
}

// filter drops the items for which keep is false. Cost: O(n).
func (h *heap[T]) filter(keep func(T) bool) {
	kept := 0
	for v := range h.all() {
		if keep(v) {
			*h.at(kept) = v
			kept++
		}
	}
	for h.len() > kept {
		h.takeLast()
	}
	for i := kept/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// down puts the item at i where it belongs, at i or below.
func (h *heap[T]) down(i int) {
	n, hole := h.len(), h.at(i)
	v := *hole
	for c := 2*i + 1; c < n; c = 2*i + 1 {
		child := h.at(c)
		if c+1 < n {
			if other := h.at(c + 1); (*other).before(*child) {
				c, child = c+1, other
			}
		}
		if !(*child).before(v) {
			break
		}
		*hole = *child
		i, hole = c, child
	}
	*hole = v
}
