// Package order keeps items in order, each knowing its place, in a heap and a ring, and lists in
// chunks. Every operation costs O(log n) in the heap and O(1) in the others, for n items in it.
// Nothing allocates but chunks. All are pure: no clock, lock or goroutine.
package order

// Ranked is an item of a Heap.
type Ranked[T any] interface {
	Before(T) bool
	// Place is where the heap keeps the item's position. 0: it is in no heap. An item is in one
	// heap at most for each place that it has.
	Place() *int
}

// Heap is a heap of items that can be moved and removed. The zero Heap is empty.
type Heap[T Ranked[T]] struct{ items Chunks[T] }

// Len is the number of items.
func (h *Heap[T]) Len() int { return h.items.Len() }

// First is the item that comes first. The heap must not be empty.
func (h *Heap[T]) First() T { return *h.items.At(0) }

// At is the item at a position, in no order. It serves walks over all items.
func (h *Heap[T]) At(i int) T { return *h.items.At(i) }

// Push adds an item that is in no heap.
func (h *Heap[T]) Push(v T) {
	if *v.Place() != 0 {
		panic("order: an item is pushed twice")
	}
	h.items.Push(v)
	*v.Place() = h.Len()
	h.up(h.Len() - 1)
}

// Fix restores the order after an item of the heap has changed.
func (h *Heap[T]) Fix(v T) {
	i := *v.Place() - 1
	if !h.up(i) {
		h.down(i)
	}
}

// Remove takes an item of the heap out.
func (h *Heap[T]) Remove(v T) {
	i, last := *v.Place()-1, h.Len()-1
	h.swap(i, last)
	h.items.TakeLast()
	*v.Place() = 0
	if i < last && !h.up(i) {
		h.down(i)
	}
}

func (h *Heap[T]) swap(i, j int) {
	a, b := h.items.At(i), h.items.At(j)
	*a, *b = *b, *a
	*(*a).Place(), *(*b).Place() = i+1, j+1
}

func (h *Heap[T]) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.At(i).Before(h.At(parent)) {
			break
		}
		h.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (h *Heap[T]) down(i int) {
	for {
		first := i
		for c := 2*i + 1; c <= 2*i+2 && c < h.Len(); c++ {
			if h.At(c).Before(h.At(first)) {
				first = c
			}
		}
		if first == i {
			return
		}
		h.swap(i, first)
		i = first
	}
}
