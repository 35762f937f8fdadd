package callback

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"carillon/transport/callback/slots"
)

// VerdictKind is the answer to Acquire.
type VerdictKind uint8

const (
	Granted VerdictKind = iota + 1 // the permit is valid
	Queued                         // the waiter will be granted a permit later
	Open                           // the breaker says no until RetryAt; nothing is queued
	Closed                         // the pool has been shut down
)

// AcquireResult is the outcome of Acquire.
type AcquireResult struct {
	Kind    VerdictKind
	RetryAt time.Time // with Open: when to ask again
}

// defaultLimit is a destination's calls at once when Acquire is not told.
const defaultLimit = 256

// Pool holds the destinations. Its methods may be called from any goroutine.
type Pool struct {
	config  Config
	policy  atomic.Pointer[Policy] // replaced whole
	workers workers

	// base ends when calls in flight are given up.
	base      context.Context
	giveUp    context.CancelFunc
	idleConns atomic.Int64
	openConns sync.WaitGroup
	running   atomic.Bool
	tickets   sync.Pool

	breakerNews chan breakerChange // for Run to log

	mu           sync.Mutex
	destinations map[Key]*destination
	recent       list.List    // of *destination, the last used first
	slots        *slots.Slots // the calls of the node, and the waiters for one
	served       []slots.Grant
	closed       bool
	drained      chan struct{} // closed when closed and no call is out
	sweptAt      time.Time     // coarse clock of lastUse
}

// New checks the config. It starts nothing: run Run.
func New(config Config) (*Pool, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	p := &Pool{
		config:       config,
		destinations: make(map[Key]*destination),
		drained:      make(chan struct{}),
		breakerNews:  make(chan breakerChange, maxBreakerNews),
		sweptAt:      config.Now(),
	}
	p.slots = slots.New(config.MaxCalls, p.refusedLocked)
	p.policy.Store(&config.Policy)
	p.base, p.giveUp = context.WithCancel(context.Background())
	p.workers.pool = p
	p.tickets.New = func() any { return new(callSlot) }
	return p, nil
}

// Policy is which addresses may be dialled now.
func (p *Pool) Policy() Policy { return *p.policy.Load() }

// SetPolicy decides about the dials from now on. Connections that are open stay.
func (p *Pool) SetPolicy(policy Policy) { p.policy.Store(&policy) }

// Ask is a caller's request for a call.
type Ask struct {
	Key     Key
	Limit   int // calls at once at the destination; 0 = 256
	Breaker Breaker

	Tenant string // the client that uses the topic; "" is nobody in particular
	Topic  uint64 // for whose timers
	Long   bool   // the call's time-out is over LongCall
}

// LongCall is the time-out beyond which a call counts as one that may hang, even if its receiver
// has answered before: fewer of these are made at once, see package slots.
const LongCall = 30 * time.Second

// askAgain is when to ask again for a destination that there is no place for.
const askAgain = time.Second

// Acquire asks for one call. It never blocks. When the destination is full, or the node
// is, or its topic has as much of the node as it may have, w is queued at the
// destination, once however often it asks, and hears Granted later.
func (p *Pool) Acquire(a Ask, w Waiter) (Permit, AcquireResult) {
	if a.Limit <= 0 {
		a.Limit = defaultLimit
	}
	share := slots.Share{Tenant: a.Tenant, Topic: a.Topic}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Permit{}, AcquireResult{Kind: Closed}
	}
	d := p.destinationLocked(a.Key.destination(), share)
	if d == nil { // a bound was reached, as if it were full
		return Permit{}, AcquireResult{Kind: Open, RetryAt: p.config.Now().Add(askAgain)}
	}
	g := d.gateFor(a.Key.Scope, a.Breaker.withDefaults())
	g.lastUse = p.sweptAt
	slot, result := p.slots.Acquire(slots.Request{
		Destination: &d.slots, Breaker: g, Limit: a.Limit, Long: a.Long, Share: share,
	}, w)
	switch result {
	case slots.Granted:
		return p.permitLocked(d, slot), AcquireResult{Kind: Granted}
	case slots.Waits:
		return Permit{}, AcquireResult{Kind: Queued}
	}
	return Permit{}, AcquireResult{Kind: Open, RetryAt: g.retryAt}
}

// Forget takes the waiter out of every queue and reports whether it was in one. A
// grant that had been decided before still arrives.
func (p *Pool) Forget(w Waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots.Forget(w)
}

// InFlight counts the permits that are out: calls running, and calls to come.
func (p *Pool) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots.Calls()
}

func (p *Pool) permitLocked(d *destination, slot slots.Slot) Permit {
	g := slot.Breaker().(*breakerScope)
	g.permits++
	t := p.tickets.Get().(*callSlot)
	t.dest, t.gate, t.breaker, t.slot = d, g, g.circuit, slot
	return Permit{t: t, use: t.use.Load()}
}

// grant is a decision to be told once the lock is free.
type grant struct {
	waiter Waiter
	permit Permit
}

// serveLocked hands free slots to waiters.
func (p *Pool) serveLocked(grants []grant) []grant {
	p.served = p.slots.Serve(p.served[:0])
	for i := range p.served {
		g := &p.served[i]
		grants = append(grants, grant{g.Waiter.(Waiter), p.permitLocked(g.Slot.Breaker().(*breakerScope).dest, g.Slot)})
		*g = slots.Grant{}
	}
	return grants
}

// release gives the ticket's slot back and hands it on.
func (p *Pool) release(t *callSlot, a slots.Answer) {
	var few [4]grant
	p.mu.Lock()
	t.gate.permits--
	p.slots.Release(t.slot, a)
	t.dest, t.gate, t.breaker, t.slot, t.req, t.done = nil, nil, nil, slots.Slot{}, nil, nil
	grants := p.serveLocked(few[:0])
	if p.closed && p.slots.Calls() == 0 {
		close(p.drained)
	}
	p.mu.Unlock()
	p.tickets.Put(t)
	tellWaiters(grants)
}

func tellWaiters(grants []grant) {
	for _, g := range grants {
		g.waiter.Granted(g.permit)
	}
}

// refusedLocked is told that a breaker refused a waiter.
func (p *Pool) refusedLocked(b slots.Breaker) {
	g := b.(*breakerScope)
	p.setAlarmLocked(g.dest, g.retryAt)
}

func (p *Pool) setAlarmLocked(d *destination, at time.Time) {
	if at.IsZero() || p.closed || !d.alarmAt.IsZero() && !at.Before(d.alarmAt) {
		return
	}
	d.alarmAt = at
	wait := max(time.Until(at), time.Millisecond)
	if d.alarm == nil {
		d.alarm = time.AfterFunc(wait, func() { p.wake(d) })
		return
	}
	d.alarm.Reset(wait)
}

// wake asks the breakers again for the destination's waiters.
func (p *Pool) wake(d *destination) {
	var few [4]grant
	p.mu.Lock()
	d.alarmAt = time.Time{}
	var grants []grant
	if !p.closed {
		p.slots.Wake(&d.slots)
		grants = p.serveLocked(few[:0])
	}
	p.mu.Unlock()
	tellWaiters(grants)
}

// destinationLocked finds or makes a destination, in place of an idle one when the
// pool is full; nil when none is idle, or the topic has its part of them.
func (p *Pool) destinationLocked(k Key, share slots.Share) *destination {
	d := p.destinations[k]
	if d != nil {
		p.recent.MoveToFront(d.recent)
		d.lastUse = p.sweptAt
		return d
	}
	if !p.slots.MayOpen(share, p.config.MaxDestinations) || len(p.destinations) >= p.config.MaxDestinations && !p.evictLocked() {
		return nil
	}
	d = &destination{pool: p, key: k, label: k.String(), gates: make(map[string]*breakerScope), lastUse: p.sweptAt}
	d.client = d.newClient()
	d.recent = p.recent.PushFront(d)
	p.destinations[k] = d
	return d
}

// evictLocked drops the longest unused destination that is idle, one whose
// breakers are closed rather than one that would be forgotten to be sick. It looks
// at a bounded number.
func (p *Pool) evictLocked() bool {
	var sick *destination
	e := p.recent.Back()
	for range 64 {
		if e == nil {
			break
		}
		d := e.Value.(*destination)
		e = e.Prev()
		if !d.idle() {
			continue
		}
		if d.state() == stateClosed {
			p.dropLocked(d)
			return true
		}
		if sick == nil {
			sick = d
		}
	}
	if sick == nil {
		return false
	}
	p.dropLocked(sick)
	return true
}

// dropLocked forgets an idle destination. Closing its idle connections does not block.
func (p *Pool) dropLocked(d *destination) {
	if !d.idle() {
		panic("callback: a destination in use was dropped: " + d.label)
	}
	if d.alarm != nil {
		d.alarm.Stop()
	}
	p.recent.Remove(d.recent)
	delete(p.destinations, d.key)
	d.dropped.Store(true)
	d.client.CloseIdleConnections()
}
