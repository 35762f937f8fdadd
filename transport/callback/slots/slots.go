package slots

import "carillon/internal/order"

// Breaker is asked for leave when a slot is about to be given. It must be comparable.
type Breaker interface {
	// Allow asks for leave to make one call. The function that it returns is called once, with how
	// the call ended; nil refuses.
	Allow() (report func(error))
	// Blocked reports, taking nothing, that leave would be refused for some time.
	Blocked() bool
}

// Class is the behaviour that is expected of a call.
type Class uint8

const (
	steady Class = iota // the receiver has answered, and the time-out is short
	risky               // the call may hang

	// Classes is the number of classes.
	Classes
)

// Request is a caller's request for a slot.
type Request struct {
	Destination *Destination
	Breaker     Breaker
	Limit       int  // of the receiver's calls at once, at least 1
	Long        bool // the call may last for long
	Share       Share

	Waiter any          // waits at the receiver, in one place at a time
	Part   *order.Share // of the turns of its topic there; nil: as any other
	Topic  any          // waits at the node; must be comparable
	Credit Slot         // a slot without a receiver that Topic was given; zero: none
}

// Slot is leave to make one call. It is given back once, by Release. One without a receiver is a
// credit, which Acquire turns into leave for a call.
type Slot struct {
	share    *share
	standing *standing // nil: a credit
	report   func(error)
	limit    int
}

// Valid reports that the slot was granted.
func (s *Slot) Valid() bool { return s.share != nil }

// Topic is the number of the topic that has the slot.
func (s *Slot) Topic() uint64 { return s.share.of.Topic }

// Breaker is the one whose leave the slot has.
func (s *Slot) Breaker() Breaker { return s.standing.gate.breaker }

// Report is called once before Release, with how the call ended.
func (s *Slot) Report(err error) { s.report(err) }

// Result is the outcome of a request.
type Result uint8

const (
	Granted    Result = iota + 1 // the credit is used up
	AtReceiver                   // Waiter waits at the receiver
	AtNode                       // Topic waits for a slot of this class
	Refused                      // by the breaker: nothing waits
)

// Slots are the calls of one node.
type Slots struct {
	halves  [Classes]half
	waiting int // waiters at receivers
}

// New makes the slots of a node that makes at most max calls at once.
func New(max int) *Slots {
	s := &Slots{halves: [Classes]half{newHalf(max), newHalf(0)}}
	if max >= 2*reserveFrom {
		s.halves = [Classes]half{newHalf(max - max/2), newHalf(max / 2)}
	}
	return s
}

// half is where calls of a class count. A node with few slots does not divide them.
func (s *Slots) half(c Class) (*half, Class) {
	if s.halves[c].max == 0 {
		c = steady
	}
	return &s.halves[c], c
}

// Calls are the slots that are out.
func (s *Slots) Calls() (n int) {
	for c := range s.halves {
		n += s.halves[c].calls
	}
	return n
}

// Idle reports that no slot is out and nothing waits.
func (s *Slots) Idle() bool {
	for c := range s.halves {
		if s.halves[c].waiting.Len() > 0 {
			return false
		}
	}
	return s.Calls() == 0 && s.waiting == 0
}

// Waiting is how many wait at receivers.
func (s *Slots) Waiting() int { return s.waiting }

// Acquire asks for a slot. The result shows what waits. A credit that is not used up stays its
// holder's.
func (s *Slots) Acquire(r *Request) (Slot, Result, Class) {
	credit := r.Credit.share
	if credit != nil {
		credit.half.count(credit, -1)
	}
	slot, result, class := s.acquire(r)
	if credit != nil && result != Granted {
		credit.half.count(credit, 1)
	}
	return slot, result, class
}

func (s *Slots) acquire(r *Request) (Slot, Result, Class) {
	if r.Breaker.Blocked() {
		return Slot{}, Refused, 0
	}
	d := r.Destination
	h, class := s.half(d.class(r.Long))
	sh := h.share(r.Share)
	if st := d.standing(r.Breaker, r.Share); d.calls >= max(d.most(), r.Limit) || st != nil && (st.waiters.Len() > 0 || st.calls >= r.Limit) {
		s.wait(r)
		return Slot{}, AtReceiver, class
	}
	if sh == r.Credit.share && h.need(d.calls, receiverFactor) > h.free() || sh != r.Credit.share && !h.may(sh, d.calls) {
		if d.calls > 0 {
			s.wait(r)
			return Slot{}, AtReceiver, class
		}
		if sh.asking[r.Topic] == nil {
			if sh.asking == nil {
				sh.asking = map[any]*claim{}
			}
			c := &claim{share: sh, topic: r.Topic}
			sh.asking[r.Topic] = c
			h.claim(c)
		}
		return Slot{}, AtNode, class
	}
	report := r.Breaker.Allow()
	if report != nil {
		st := d.enter(r.Breaker, r.Share)
		st.limit = r.Limit
		return s.take(sh, st, r.Limit, report), Granted, class
	}
	if g := d.gates[r.Breaker]; g != nil { // its probes are out, and decide
		g.parked = true
		s.wait(r)
		return Slot{}, AtReceiver, class
	}
	h.forget(sh)
	return Slot{}, Refused, class
}

// wait has the request wait at its receiver.
func (s *Slots) wait(r *Request) {
	s.waiting++
	r.Destination.enter(r.Breaker, r.Share).add(&waiter{who: r.Waiter, limit: r.Limit, long: r.Long, turn: order.Turn[*waiter]{Share: r.Part}})
	s.review(r.Destination)
}

func (s *Slots) take(sh *share, st *standing, limit int, report func(error)) Slot {
	d := st.gate.destination
	d.calls++
	d.countLimit(limit, 1)
	st.calls++
	sh.half.count(sh, 1)
	st.review()
	s.review(d)
	return Slot{share: sh, standing: st, report: report, limit: limit}
}

// review has the receiver claim a slot for the waiter whose turn it is, if it has room for one.
func (s *Slots) review(d *Destination) {
	w := d.next()
	var want *share
	if w != nil {
		h, _ := s.half(d.class(w.long))
		want = h.share(w.standing.of)
	}
	c := &d.claim
	if c.share != nil && c.share != want {
		old := c.share
		old.half.withdraw(c)
		old.half.forget(old)
	}
	if want != nil {
		c.share, c.destination = want, d
		want.half.claim(c)
	}
}

// Answer is what a call proved of its receiver.
type Answer uint8

const (
	Unknown  Answer = iota // nothing: it was not made, or ended for another reason
	Answered               // with any answer
	Silent                 // no answer
)

// Release gives a slot or a credit back.
func (s *Slots) Release(slot Slot, a Answer) {
	slot.share.half.count(slot.share, -1)
	if st := slot.standing; st != nil {
		d := st.gate.destination
		if st.calls == 0 || d.calls == 0 {
			panic("slots: a slot came back twice")
		}
		d.calls--
		d.countLimit(slot.limit, -1)
		st.calls--
		if a != Unknown {
			d.answered = a == Answered
		}
		st.review()
		st.leave()
		s.review(d)
	}
	slot.share.half.forget(slot.share)
}

// Wake looks at a breaker again: one of its calls has ended, or its time has come. While it is
// blocked its waiters are out of turn; blocked with waiters means that TakeRefused has them.
func (s *Slots) Wake(d *Destination, b Breaker) (refused bool) {
	g := d.gates[b]
	if g == nil {
		return false
	}
	g.parked = g.waiters.Len() > 0 && b.Blocked()
	g.review()
	s.review(d)
	return g.parked
}

// TakeRefused takes out up to n waiters of a breaker that is open.
func (s *Slots) TakeRefused(d *Destination, b Breaker, n int) (list []any) {
	g := d.gates[b]
	for g != nil && g.parked && g.waiters.Len() > 0 && len(list) < n {
		w := g.waiters.First()
		list = append(list, w.who)
		s.waiting--
		w.standing.remove(w)
	}
	s.review(d)
	return list
}

// Grant is a slot for one that waited. Topic is set if it waited at the node: the slot is a credit.
type Grant struct {
	Waiter any
	Slot   Slot
	Topic  bool
	Class  Class
}

// Serve gives the free slots to those that wait, appending to grants. parked is called for each
// breaker that refuses although calls may go soon: its owner calls Wake then.
func (s *Slots) Serve(grants []Grant, parked func(Breaker)) []Grant {
	for class := Class(0); class < Classes; class++ {
		h := &s.halves[class]
		if h.waiting.Len() == 0 || h.waiting.First().need > h.free() {
			continue
		}
		c := h.waiting.First().shares.First().claims.First()
		if c.topic != nil {
			grants = append(grants, s.credit(c, class))
		} else if slot, who := s.serve(c, parked); slot.Valid() {
			grants = append(grants, Grant{Waiter: who, Slot: slot, Class: class})
		}
		class = ^Class(0) // the receiver's next waiter may claim a slot of another class
	}
	return grants
}

// serve gives a receiver's next waiter the slot that it claims, if its breaker agrees.
func (s *Slots) serve(c *claim, parked func(Breaker)) (Slot, any) {
	d, sh := c.destination, c.share
	w := d.next()
	st, breaker := w.standing, w.standing.gate.breaker
	report := breaker.Allow()
	if report == nil {
		st.gate.parked = true
		st.gate.review()
		s.review(d)
		parked(breaker)
		return Slot{}, nil
	}
	s.waiting--
	d.rotate(st)
	st.serve(w)
	at := d.enter(breaker, st.of) // st, or another like it if w was its last
	at.limit = st.limit
	slot := s.take(sh, at, w.limit, report)
	sh.half.served(sh)
	return slot, w.who
}

// credit gives a topic the slot that it waited for.
func (s *Slots) credit(c *claim, class Class) Grant {
	sh, topic := c.share, c.topic
	sh.half.withdraw(c)
	sh.half.count(sh, 1)
	sh.half.served(sh)
	return Grant{Waiter: topic, Slot: Slot{share: sh}, Topic: true, Class: class}
}
