package slots

// ring is a round-robin queue.
type ring[T any] struct {
	first, last *spot[T]
	len         int
}

// spot is a place in a ring, kept by its owner; it is in one ring at most.
type spot[T any] struct {
	of         T
	in         *ring[T]
	prev, next *spot[T]
}

// push puts a spot that is in no ring at the end.
func (r *ring[T]) push(s *spot[T]) {
	s.in, s.prev, s.next = r, r.last, nil
	if r.last == nil {
		r.first = s
	} else {
		r.last.next = s
	}
	r.last = s
	r.len++
}

// leave takes the spot out of its ring, if it is in one.
func (s *spot[T]) leave() {
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

// rotate returns the first, and makes it the last.
func (r *ring[T]) rotate() T {
	s := r.first
	s.leave()
	r.push(s)
	return s.of
}
