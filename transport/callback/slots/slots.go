package slots

// reserveFrom is the least maximum of which a part is kept free: of fewer there is too
// little to divide.
const reserveFrom = 16

// fewCalls is how many calls make a destination or a topic a light one, of every so
// many of the maximum.
const fewCalls = 128

// Share names the tenant, topic and destination of a call.
type Share struct {
	Tenant string // the topic's user, as far as it is known; "" bounds nothing
	Topic  uint64
}

// Breaker is asked for leave when a slot is about to be given. It must be comparable.
type Breaker interface {
	// Allow asks for leave to make one call. The function that it returns is to be told, once, how
	// the call ended; nil refuses.
	Allow() (tell func(error))
	// Blocked reports, taking nothing, that leave would be refused for some time.
	Blocked() bool
}

// Request is a caller's request for a slot.
type Request struct {
	Destination *Destination
	Breaker     Breaker
	Limit       int  // of the destination's calls at once, at least 1
	Long        bool // the call may last for long
	Share       Share
}

// Slot is leave to make one call. It is given back once, by Release.
type Slot struct {
	destination *Destination
	breaker     Breaker
	tell        func(error)
	limit       int
	class       Class
	share       *share
}

// Breaker is the one whose leave the slot has, and which Tell tells how the call ended.
func (s *Slot) Breaker() Breaker { return s.breaker }

// Tell is to be called once, before Release.
func (s *Slot) Tell(err error) { s.tell(err) }

// Class is the behaviour that is expected of a call.
type Class uint8

const (
	steady Class = iota // the destination has answered, and the time-out is short
	risky               // the call may hang
	classes
)

// counts are numbers of calls: at steady of all of them, at risky of those that may
// hang. So a class is a bound of its own beside that of all before it.
type counts [classes]int

func (c *counts) add(class Class, n int) {
	for at := range class + 1 {
		c[at] += n
	}
}

// Result is the outcome of a request.
type Result uint8

const (
	Granted Result = iota + 1
	Waits          // in turn: Serve returns its slot when there is one
	Refused        // by the breaker: nothing waits
)

// Slots are the calls of one node.
type Slots struct {
	max     counts
	few     int    // one with fewer calls out is light
	calls   counts // Invariant: the sum over shares, and over destinations
	inTurn  [classes]ring[*tenant]
	tenants map[string]*tenant
	shares  map[Share]*share
	waiting map[any]*place
	busy    int // destinations that have calls or waiters
	refused func(Breaker)
}

// New makes the slots of a node that makes at most max calls at once. refused is told of each
// breaker that refused a waiter: the waiters that need its leave are out of turn until Wake.
func New(max int, refused func(Breaker)) *Slots {
	s := &Slots{max: counts{max, max}, few: 1, refused: refused, tenants: map[string]*tenant{}, shares: map[Share]*share{}, waiting: map[any]*place{}}
	if max >= fewCalls {
		s.few = max / fewCalls
	}
	if max >= reserveFrom {
		s.max[risky] = max / 2
	}
	return s
}

// Calls are the slots that are out.
func (s *Slots) Calls() int { return s.calls[steady] }

// Waiting is how many wait, somebody at two destinations counted once.
func (s *Slots) Waiting() int { return len(s.waiting) }

// Busy is how many destinations have calls or waiters.
func (s *Slots) Busy() int { return s.busy }

// Acquire asks for a slot. waiter, which must be comparable, waits for it if need be:
// once at a destination, however often it asks.
func (s *Slots) Acquire(r Request, waiter any) (Slot, Result) {
	sh := s.shareOf(r.Share)
	class := r.Destination.class(r.Long)
	if r.Destination.queue(&r, sh) != nil || !r.Destination.room(r.Limit) || !s.may(sh, r.Destination, class) {
		if r.Breaker.Blocked() {
			s.forgetShare(sh)
			return Slot{}, Refused
		}
		s.enqueue(&r, sh, waiter)
		return Slot{}, Waits
	}
	tell := r.Breaker.Allow()
	if tell == nil {
		s.forgetShare(sh)
		return Slot{}, Refused
	}
	return s.take(sh, r.Destination, r.Breaker, tell, r.Limit, class), Granted
}

// take counts one more call.
func (s *Slots) take(sh *share, d *Destination, b Breaker, tell func(error), limit int, class Class) Slot {
	s.calls.add(class, 1)
	sh.calls.add(class, 1)
	sh.tenant.calls.add(class, 1)
	if d.idle() {
		s.busy++
	}
	d.add(limit)
	return Slot{d, b, tell, limit, class, sh}
}

// Answer is the news that a call brings of its destination.
type Answer uint8

const (
	Unknown  Answer = iota // nothing: it was not made, or ended for another reason
	Answered               // with any answer
	Silent                 // no answer
)

// Release gives a slot back. Serve is to be called then.
func (s *Slots) Release(slot Slot, a Answer) {
	d := slot.destination
	s.calls.add(slot.class, -1)
	slot.share.calls.add(slot.class, -1)
	slot.share.tenant.calls.add(slot.class, -1)
	d.remove(slot.limit)
	if d.idle() {
		s.busy--
	}
	s.forgetShare(slot.share)
	if a != Unknown && d.answered != (a == Answered) {
		s.park(d)
		d.answered = a == Answered
	}
	s.Wake(d)
}

// Wake has a destination's waiters looked at again by Serve: a call of it has ended,
// or its breaker may have changed its mind.
func (s *Slots) Wake(d *Destination) {
	for _, q := range d.queues {
		q.stand()
	}
}

// park takes a destination's waiters out of turn, until Wake.
func (s *Slots) park(d *Destination) {
	for _, q := range d.queues {
		q.leaveTurn()
	}
}

// Grant is a slot for one that waited.
type Grant struct {
	Waiter any
	Slot   Slot
}

// Serve gives the free slots to the waiters, appending to grants.
func (s *Slots) Serve(grants []Grant) []Grant {
	for class := range classes {
		for s.free(class) > 0 {
			q, tell := s.next(class)
			if q == nil {
				break
			}
			at := q.first
			slot := s.take(q.share, q.destination, q.breaker, tell, q.limit, class)
			s.leave(at)
			s.forget(at)
			q.destination.last(q)
			grants = append(grants, Grant{at.waiter, slot})
		}
	}
	return grants
}

// next is the waiters' queue whose turn it is, with its breaker's leave taken; nil when none may
// have a slot. A queue that was looked at goes to the end of the turn.
func (s *Slots) next(class Class) (*queue, func(error)) {
	tenants := &s.inTurn[class]
	for range tenants.len {
		t := tenants.rotate()
		if !s.within(t.calls, class, lightFactor) && t.name != "" {
			continue
		}
		shares := &t.inTurn[class]
		for range shares.len {
			sh := shares.rotate()
			if !s.within(sh.calls, class, lightFactor) {
				continue
			}
			queues := &sh.inTurn[class]
			for range queues.len {
				q := queues.rotate()
				switch {
				case !q.destination.room(q.limit):
					q.leaveTurn() // until a call there ends
				case !s.may(sh, q.destination, class):
				default:
					if tell := q.breaker.Allow(); tell != nil {
						return q, tell
					}
					q.leaveTurn()
					s.refused(q.breaker)
				}
			}
		}
	}
	return nil, nil
}

// Forget takes a waiter out of every queue, and reports whether it was in one.
func (s *Slots) Forget(waiter any) bool {
	first := s.waiting[waiter]
	for at := first; at != nil; at = at.sibling {
		s.leave(at)
	}
	delete(s.waiting, waiter)
	return first != nil
}

// ForgetAll takes everybody out.
func (s *Slots) ForgetAll() {
	for waiter := range s.waiting {
		s.Forget(waiter)
	}
}
