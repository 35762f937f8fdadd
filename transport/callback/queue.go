package callback

// Waiter hears of the slot that it queued for. It must be comparable (a pointer).
type Waiter interface {
	// Granted hands over a permit, which must be started or cancelled. It is called
	// on any goroutine, without locks, and must not block.
	Granted(Permit)
}

// place is one waiter's place in one line.
type place struct {
	waiter     Waiter
	line       *line
	prev, next *place // in the line
	sibling    *place // the waiter's next place, at another destination
}

// line is the first-in-first-out queue of a destination's waiters that share a
// breaker and a limit. A waiter stands in a destination's lines at most once and
// goes to the end when it comes back, so they are served round robin.
type line struct {
	dest        *destination
	gate        *gate
	limit       int
	first, last *place
}

func (l *line) push(p *place) {
	p.line, p.prev, p.next = l, l.last, nil
	if l.last == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
}

func (l *line) remove(p *place) {
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}

// ring is a round-robin queue of destinations. A destination is in at most one.
type ring struct{ first, last *destination }

func (r *ring) push(d *destination) {
	d.ring, d.ringPrev, d.ringNext = r, r.last, nil
	if r.last == nil {
		r.first = d
	} else {
		r.last.ringNext = d
	}
	r.last = d
}

func (r *ring) remove(d *destination) {
	if d.ringPrev == nil {
		r.first = d.ringNext
	} else {
		d.ringPrev.ringNext = d.ringNext
	}
	if d.ringNext == nil {
		r.last = d.ringPrev
	} else {
		d.ringNext.ringPrev = d.ringPrev
	}
	d.ring, d.ringPrev, d.ringNext = nil, nil, nil
}
