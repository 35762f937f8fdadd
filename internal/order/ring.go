package order

// Ring is a round-robin queue of spots. The zero Ring is empty.
type Ring[T any] struct {
	first, last *Spot[T]
	len         int
}

// Spot is an item's place in a ring, kept by the item itself. It is in one ring at most.
type Spot[T any] struct {
	Of         T
	in         *Ring[T]
	prev, next *Spot[T]
}

// In reports whether the spot is in a ring.
func (s *Spot[T]) In() bool { return s.in != nil }

// Len is the number of spots.
func (r *Ring[T]) Len() int { return r.len }

// First is the item whose turn it is. The ring must not be empty.
func (r *Ring[T]) First() T { return r.first.Of }

// Push puts a spot at the end. It stays where it is if it is in a ring.
func (r *Ring[T]) Push(s *Spot[T]) {
	if s.in != nil {
		return
	}
	s.in, s.prev, s.next = r, r.last, nil
	if r.last == nil {
		r.first = s
	} else {
		r.last.next = s
	}
	r.last = s
	r.len++
}

// Leave takes the spot out of its ring, if it is in one.
func (s *Spot[T]) Leave() {
	r := s.in
	if r == nil {
		return
	}
	if s.prev == nil {
		r.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		r.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.in, s.prev, s.next = nil, nil, nil
	r.len--
}

// Rotate returns the first item and makes it the last.
func (r *Ring[T]) Rotate() T {
	s := r.first
	s.Leave()
	r.Push(s)
	return s.Of
}
