package slots

import "carillon/internal/order"

// reserveFrom is the least maximum that is divided: of fewer slots there is too little to divide.
const reserveFrom = 16

// How many times the free slots one may have.
const (
	receiverFactor = 3
	topicFactor    = 7
	tenantFactor   = 15
)

// Share names the tenant and the topic of a call.
type Share struct {
	Tenant string // the topic's user; "" bounds nothing
	Topic  uint64
}

// rank orders those that wait. need is how many slots must be free for the next call, and grows
// with the calls that are out; turn shows who was served longest ago.
type rank struct {
	need int
	turn uint64
}

func (r rank) before(o rank) bool {
	if r.need != o.need {
		return r.need < o.need
	}
	return r.turn < o.turn
}

// half is one class of slots: tenants, their topics, and the claims of these.
//
// Invariant: an item's rank is that of its first claim, or higher where its own calls need more. So
// if the first claim of the first topic of the first tenant needs more slots than are free, no
// claim may have one.
type half struct {
	max, calls int
	tenants    map[string]*tenant
	shares     map[Share]*share
	waiting    order.Heap[*tenant] // those with a claim
	turns      uint64
}

// tenant is a user of topics.
type tenant struct {
	rank
	place  int
	name   string
	calls  int
	topics int                // shares that exist
	shares order.Heap[*share] // those with a claim
}

func (t *tenant) Before(o *tenant) bool { return t.rank.before(o.rank) }
func (t *tenant) Place() *int           { return &t.place }

// share is one topic's part.
type share struct {
	rank
	place  int
	of     Share
	half   *half
	tenant *tenant
	calls  int
	claims order.Heap[*claim]
	asking map[any]*claim // topics that wait at the node, by waiter
}

func (s *share) Before(o *share) bool { return s.rank.before(o.rank) }
func (s *share) Place() *int          { return &s.place }

// claim waits for a slot of the node: a topic, or a receiver that has room for its next waiter.
type claim struct {
	rank
	place       int
	share       *share
	topic       any          // the waiter, if it is a topic
	destination *Destination // otherwise
}

func (c *claim) Before(o *claim) bool { return c.rank.before(o.rank) }
func (c *claim) Place() *int          { return &c.place }

func newHalf(max int) half {
	return half{max: max, tenants: map[string]*tenant{}, shares: map[Share]*share{}}
}

func (h *half) free() int { return h.max - h.calls }

// need is how many slots must be free for one more call of somebody with so many.
func (h *half) need(calls, factor int) int {
	if h.max < reserveFrom {
		return 1
	}
	return calls/factor + 1
}

func (h *half) turn() uint64 {
	h.turns++
	return h.turns
}

// may reports whether a topic may have one more call, to a receiver with so many.
func (h *half) may(s *share, calls int) bool {
	need := max(h.need(calls, receiverFactor), h.need(s.calls, topicFactor))
	if s.tenant.name != "" {
		need = max(need, h.need(s.tenant.calls, tenantFactor))
	}
	return need <= h.free()
}

// keptShares is how many topics there may be before those that have nothing are dropped: most come
// back at once.
const keptShares = 1000

// share finds or makes a topic's part.
func (h *half) share(of Share) *share {
	if s := h.shares[of]; s != nil {
		return s
	}
	t := h.tenants[of.Tenant]
	if t == nil {
		t = &tenant{name: of.Tenant}
		h.tenants[of.Tenant] = t
	}
	t.topics++
	s := &share{of: of, half: h, tenant: t}
	h.shares[of] = s
	return s
}

// forget drops a topic's part that has nothing, and its tenant with the last one, unless there are
// few.
func (h *half) forget(s *share) {
	if s.calls > 0 || s.claims.Len() > 0 || len(h.shares) <= keptShares {
		return
	}
	delete(h.shares, s.of)
	if s.tenant.topics--; s.tenant.topics == 0 {
		delete(h.tenants, s.tenant.name)
	}
}

// count adds to the calls of a topic.
func (h *half) count(s *share, calls int) {
	h.calls += calls
	s.calls += calls
	s.tenant.calls += calls
	h.rerank(s)
}

// rerank puts a topic and its tenant where their calls and claims belong.
func (h *half) rerank(s *share) {
	t := s.tenant
	if s.claims.Len() == 0 {
		if s.place != 0 {
			t.shares.Remove(s)
		}
	} else {
		s.need = max(h.need(s.calls, topicFactor), s.claims.First().need)
		place(h, &t.shares, s, &s.rank)
	}
	if t.shares.Len() == 0 {
		if t.place != 0 {
			h.waiting.Remove(t)
		}
		return
	}
	t.need = t.shares.First().need
	if t.name != "" {
		t.need = max(t.need, h.need(t.calls, tenantFactor))
	}
	place(h, &h.waiting, t, &t.rank)
}

// place puts an item into a heap, or where it belongs in it. One that begins to wait has its turn
// after all others.
func place[T order.Ranked[T]](h *half, heap *order.Heap[T], item T, r *rank) {
	if *item.Place() == 0 {
		r.turn = h.turn()
		heap.Push(item)
		return
	}
	heap.Fix(item)
}

// served gives the next turn to others.
func (h *half) served(s *share) {
	s.turn, s.tenant.turn = h.turn(), h.turn()
	h.rerank(s)
}

// claim has a claim wait, or puts it where it belongs.
func (h *half) claim(c *claim) {
	calls := 0
	if c.destination != nil {
		calls = c.destination.calls
	}
	c.need = h.need(calls, receiverFactor)
	place(h, &c.share.claims, c, &c.rank)
	h.rerank(c.share)
}

// withdraw takes a claim back.
func (h *half) withdraw(c *claim) {
	s := c.share
	s.claims.Remove(c)
	if c.topic != nil {
		delete(s.asking, c.topic)
	}
	c.share = nil
	h.rerank(s)
}
