package slots

import "slices"

// queue is the first-in-first-out queue of those that wait for the same: a topic's waiters at a
// destination that share breaker, limit and kind of call. A waiter is in a destination's queues at
// most once, and at the end when it comes back.
type queue struct {
	slots       *Slots
	destination *Destination
	share       *share
	breaker     Breaker
	limit       int
	long        bool
	first, last *place
	turn        spot[*queue] // in the share's ring of its class; none while it is out of turn
}

// place is one waiter's place in one queue.
type place struct {
	waiter     any
	queue      *queue
	prev, next *place // in the queue
	sibling    *place // the waiter's next place, at another destination
}

func (q *queue) push(p *place) {
	p.queue, p.prev, p.next = q, q.last, nil
	if q.last == nil {
		q.first = p
	} else {
		q.last.next = p
	}
	q.last = p
}

func (q *queue) remove(p *place) {
	if p.prev == nil {
		q.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}

// stand puts the queue in turn, and with it its share and tenant. Where it stands
// already it keeps its turn.
func (q *queue) stand() {
	if q.turn.in != nil {
		return
	}
	class := q.destination.class(q.long)
	q.share.inTurn[class].push(&q.turn)
	if at := &q.share.turn[class]; at.in == nil {
		q.share.tenant.inTurn[class].push(at)
	}
	if at := &q.share.tenant.turn[class]; at.in == nil {
		q.slots.inTurn[class].push(at)
	}
}

// leaveTurn is the reverse of stand.
func (q *queue) leaveTurn() {
	if q.turn.in == nil {
		return
	}
	class := steady
	if q.turn.in == &q.share.inTurn[risky] {
		class = risky
	}
	q.turn.leave()
	if q.share.inTurn[class].len == 0 {
		q.share.turn[class].leave()
	}
	if q.share.tenant.inTurn[class].len == 0 {
		q.share.tenant.turn[class].leave()
	}
}

// enqueue has the waiter wait at the request's destination; it keeps its place if it
// waits there for the same.
func (s *Slots) enqueue(r *Request, sh *share, waiter any) {
	at := s.waiting[waiter]
	for at != nil && at.queue.destination != r.Destination {
		at = at.sibling
	}
	q := r.Destination.queue(r, sh)
	switch {
	case at == nil:
		at = &place{waiter: waiter, sibling: s.waiting[waiter]}
		s.waiting[waiter] = at
	case at.queue == q:
		return
	default:
		s.leave(at)
	}
	if q == nil {
		q = &queue{slots: s, destination: r.Destination, share: sh, breaker: r.Breaker, limit: r.Limit, long: r.Long}
		q.turn.of = q
		if r.Destination.idle() {
			s.busy++
		}
		r.Destination.queues = append(r.Destination.queues, q)
		sh.queues++
		sh.tenant.queues++
	}
	q.push(at)
	q.stand()
}

// leave takes the place out of its queue, not out of waiting.
func (s *Slots) leave(at *place) {
	q := at.queue
	q.remove(at)
	if q.first != nil {
		return
	}
	q.leaveTurn()
	d := q.destination
	d.queues = slices.DeleteFunc(d.queues, func(other *queue) bool { return other == q })
	if d.idle() {
		s.busy--
	}
	q.share.queues--
	q.share.tenant.queues--
	s.forgetShare(q.share)
}

// forget takes the place, which has left its queue, out of waiting.
func (s *Slots) forget(at *place) {
	first := s.waiting[at.waiter]
	if first == at {
		if at.sibling == nil {
			delete(s.waiting, at.waiter)
		} else {
			s.waiting[at.waiter] = at.sibling
		}
		return
	}
	for first.sibling != at {
		first = first.sibling
	}
	first.sibling = at.sibling
}
