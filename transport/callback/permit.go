package callback

import (
	"fmt"
	"sync/atomic"
	"time"

	"carillon/internal/order"
	"carillon/transport/callback/slots"
)

// Permit is one slot at a destination and one allowance of its breaker. It is used
// once: Start or Cancel. The zero Permit is none.
type Permit struct {
	t   *callSlot
	use uint64 // Invariant: equals t.use while this permit is unused
}

// callSlot is the reusable part of a permit and the call that it becomes.
type callSlot struct {
	use atomic.Uint64 // grows by one each time a permit on it is used

	dest    *destination
	evicted *destination // in whose place dest is; nil: its connections are closed, or there is none
	gate    *breakerScope
	breaker *breaker // that of the gate when it was granted
	slot    slots.Slot

	req  *Request
	done func(Outcome)

	since time.Time // in the destination's line, like next
	next  *callSlot

	first bool // its receiver has no other call, and had none
	topic uint64
	young order.Spot[*callSlot] // of starts, like waits and began
	waits order.Spot[*callSlot]
	began atomic.Int64 // when its goroutine ran, Unix ns; 0: not yet
}

func (s *callSlot) check(use uint64) {
	if s == nil {
		panic("callback: use of the zero permit")
	}
	if now := s.use.Load(); now != use {
		panic(fmt.Sprintf("callback: permit used twice (its use %d, now %d)", use, now))
	}
}

// closeEvicted closes connections in place of which the call may open one.
func (s *callSlot) closeEvicted() {
	if s.evicted != nil {
		s.evicted.client.CloseIdleConnections()
		s.evicted = nil
	}
}

// take marks the permit used and returns its ticket.
func (p Permit) take() *callSlot {
	p.t.check(p.use)
	if !p.t.use.CompareAndSwap(p.use, p.use+1) {
		panic("callback: permit used twice at once")
	}
	return p.t
}

// Start has the call made and returns at once. req must stay unchanged until done has
// been called: exactly once, on a goroutine of the pool. The breaker knows the
// outcome before done does; the slot is freed after it.
func (p Permit) Start(req *Request, done func(Outcome)) {
	t := p.take()
	t.req, t.done = req, done
	if t.dest.begin(t) {
		t.dest.pool.starts.begin(t)
	}
}

// Cancel frees the slot and counts neither for nor against the breaker.
func (p Permit) Cancel() {
	t := p.take()
	t.slot.Report(errNotJudged)
	t.dest.pool.release(t, slots.Unknown)
}
