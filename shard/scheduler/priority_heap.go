package scheduler

import (
	"iter"

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

// heap is a binary min-heap of values by before; container/heap would box each one. It is made of
// chunks, so that no step copies or clears more than one of them, however many items there are.
// Cost: O(log n) for push and pop, O(1) for len, top and at.
type heap[T ordered[T]] struct {
	chunks [][]T // full but for the last
}

// chunkItems is how many items a chunk has.
const chunkItems = 1024

func (h *heap[T]) len() int {
	last := len(h.chunks) - 1
	if last < 0 {
		return 0
	}
	return chunkItems*last + len(h.chunks[last])
}

// at is the item at a place: its children are at 2i+1 and 2i+2.
func (h *heap[T]) at(i int) *T { return &h.chunks[i/chunkItems][i%chunkItems] }

func (h *heap[T]) top() T { return h.chunks[0][0] }

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
	h.extend(v)
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

// extend puts an item last.
func (h *heap[T]) extend(v T) {
	n := len(h.chunks)
	if n == 0 || len(h.chunks[n-1]) == chunkItems {
		if n == cap(h.chunks) {
			h.chunks = append(h.chunks, nil)
		}
		if h.chunks = h.chunks[:n+1]; n > 0 && h.chunks[n] == nil {
			h.chunks[n] = make([]T, 0, chunkItems)
		}
		n++
	}
	h.chunks[n-1] = append(h.chunks[n-1], v)
}

// takeLast takes the item at the last place, which needs no order. One empty chunk is kept, so that
// a heap about a bound does not make one again and again.
func (h *heap[T]) takeLast() T {
	n := len(h.chunks)
	chunk := h.chunks[n-1]
	last := len(chunk) - 1
	v := chunk[last]
	var zero T
	chunk[last] = zero
	h.chunks[n-1] = chunk[:last]
	switch {
	case last > 0:
	case n > 1:
		if n < cap(h.chunks) {
			h.chunks[:n+1][n] = nil
		}
		h.chunks = h.chunks[:n-1]
	case cap(chunk) == 1: // most of many keys have one timer, once
		h.chunks = nil
	}
	return v
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
