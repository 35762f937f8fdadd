package order

// Line is a queue of those that wait to be served, in turn by weight: start-time fair queueing.
// Where nobody has a weight it is first come, first served. The zero Line is empty. Cost: O(log n).
type Line[T any] struct {
	heap    Heap[*Turn[T]]
	virtual uint64 // the start of the latest turn
	number  uint64
}

// Turn is the place of one that waits, kept by itself.
type Turn[T any] struct {
	Of                 T
	Share              *Share // nil: it has no weight
	start, end, number uint64
	place              int
}

// Share is the part that somebody has of the turns of a line. Several may wait for it at once.
type Share struct {
	Weight int    // 0: as if there were none
	line   any    // that ends is of
	ends   uint64 // the end of its last turn, which may not have been served yet
}

// turnUnit is the length of a turn of weight 1.
const turnUnit = 1 << 24

// Before orders turns by their starts, then by when they were pushed.
func (t *Turn[T]) Before(o *Turn[T]) bool {
	return t.start < o.start || t.start == o.start && t.number < o.number
}

func (t *Turn[T]) Place() *int { return &t.place }

// In reports whether it waits.
func (t *Turn[T]) In() bool { return t.place != 0 }

// Len is how many wait.
func (l *Line[T]) Len() int { return l.heap.Len() }

// First is the one whose turn it is. The line must not be empty.
func (l *Line[T]) First() T { return l.heap.First().Of }

// At is the i-th of the waiting ones, in no order: for walks over all.
func (l *Line[T]) At(i int) T { return l.heap.At(i).Of }

// Push adds one that does not wait yet.
func (l *Line[T]) Push(t *Turn[T]) {
	l.number++
	t.start, t.number = l.virtual, l.number
	if s := t.Share; s != nil && s.Weight > 0 {
		if s.line == any(l) {
			t.start = max(t.start, s.ends)
		}
		t.end = t.start + turnUnit/uint64(min(s.Weight, turnUnit))
		s.line, s.ends = l, t.end
	}
	l.heap.Push(t)
}

// Leave takes one out of the line that was not served.
func (l *Line[T]) Leave(t *Turn[T]) {
	l.heap.Remove(t)
	if s := t.Share; s != nil && s.line == any(l) && s.ends == t.end {
		s.ends = t.start
	}
}

// Took puts one that waits, and was served, behind its turn, which had so many times the length of
// an ordinary one. One that does not wait any more is put there when it comes back.
func (l *Line[T]) Took(t *Turn[T], times int) {
	waits := t.In()
	if waits {
		l.Serve(t)
		times--
	}
	if s := t.Share; s != nil && s.Weight > 0 && s.line == any(l) {
		s.ends += uint64(times) * turnUnit / uint64(min(s.Weight, turnUnit))
	}
	if waits {
		l.Push(t)
	}
}

// Serve takes one out that is served.
func (l *Line[T]) Serve(t *Turn[T]) {
	l.heap.Remove(t)
	l.virtual = max(l.virtual, t.start)
}
