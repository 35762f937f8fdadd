package scheduler

import "carillon/timer"

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

// heap is a binary min-heap of values by before; container/heap would box each one.
type heap[T ordered[T]] struct{ items []T }

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) top() T { return h.items[0] }

func (h *heap[T]) push(v T) {
	h.items = append(h.items, v)
	i := len(h.items) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h.items[i].before(h.items[parent]) {
			break
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

func (h *heap[T]) pop() T {
	v := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	h.down(0)
	if cap(h.items) > 1024 && len(h.items) < cap(h.items)/4 {
		h.items = append(make([]T, 0, cap(h.items)/2), h.items...) // give a drained backlog's memory back
	}
	return v
}

// filter drops the items for which keep is false.
func (h *heap[T]) filter(keep func(T) bool) {
	var kept []T
	for _, v := range h.items {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	h.items = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// down puts the item at i where it belongs, at i or below.
func (h *heap[T]) down(i int) {
	n := len(h.items)
	if i >= n {
		return
	}
	v := h.items[i]
	for c := 2*i + 1; c < n; c = 2*i + 1 {
		if c+1 < n && h.items[c+1].before(h.items[c]) {
			c++
		}
		if !h.items[c].before(v) {
			break
		}
		h.items[i] = h.items[c]
		i = c
	}
	h.items[i] = v
}
