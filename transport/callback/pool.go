package callback

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/transport/callback/address"
	"carillon/transport/callback/slots"
)

// The classes of calls are those of the slots.
var _ = [1]struct{}{}[delivery.Classes-int(slots.Classes)]

// defaultLimit is a destination's calls at once where Acquire is given no limit.
const defaultLimit = 256

// Pool holds the destinations. Its methods may be called from any goroutine.
type Pool struct {
	config  Config
	policy  atomic.Pointer[address.Policy] // replaced whole
	workers workers
	starts  starts
	lookups lookups

	// base ends when calls in flight are given up, and with it parts: each dial and connection
	// hangs on one of them, in turn. They have a lock each, for which thousands of calls at once
	// would wait.
	base      context.Context
	giveUp    context.CancelFunc
	parts     [64]context.Context
	ends      []context.CancelFunc // of parts; base ends them too
	turns     atomic.Uint32
	idleConns atomic.Int64
	openConns sync.WaitGroup
	running   atomic.Bool
	tickets   sync.Pool

	breakerNews chan breakerChange // for Run to log

	mu           sync.Mutex
	destinations map[address.Key]*destination
	recent       list.List                           // of *destination, the last used first
	idle         [idleKinds]order.Ring[*destination] // without calls and waiters, the longest first
	slots        *slots.Slots                        // the calls of the node, and the waiters for one
	served       []slots.Grant
	closed       bool
	drained      chan struct{} // closed when closed and no call is out
	sweptAt      time.Time     // coarse clock of lastUse
}

// New starts nothing: run Run.
func New(config Config) *Pool {
	config = config.withDefaults()
	p := &Pool{
		config:       config,
		lookups:      make(lookups, lookupsAtOnce),
		destinations: make(map[address.Key]*destination),
		drained:      make(chan struct{}),
		breakerNews:  make(chan breakerChange, maxBreakerNews),
		sweptAt:      config.Now(),
	}
	p.slots = slots.New(config.MaxCalls)
	p.policy.Store(&config.Policy)
	p.base, p.giveUp = context.WithCancel(context.Background())
	for i := range p.parts {
		var end context.CancelFunc
		p.parts[i], end = context.WithCancel(p.base)
		p.ends = append(p.ends, end)
	}
	p.workers.pool = p
	p.starts.init(p)
	p.tickets.New = func() any { return new(callSlot) }
	return p
}

// until is the time until a breaker's instant.
func (p *Pool) until(at time.Time) time.Duration { return at.Sub(p.config.timers()) }

// Idle reports that no call runs or is about to, and that nothing waits for one.
func (p *Pool) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots.Idle()
}

// Policy is which addresses may be dialled now.
func (p *Pool) Policy() address.Policy { return *p.policy.Load() }

// SetPolicy decides about the dials from now on. Connections that are open stay.
func (p *Pool) SetPolicy(policy address.Policy) { p.policy.Store(&policy) }

// Call is a call that a permit is asked for.
type Call struct {
	Key     address.Key
	Limit   int // calls at once at the destination; 0 = 256
	Breaker Breaker

	Tenant string // the client that uses the topic; "" is nobody in particular
	Number uint64 // of the topic for whose timers it is
	Long   bool   // the call's time-out is over LongCall
}

// LongCall is the time-out beyond which a call counts as one that may hang, even if its receiver
// has answered before: fewer of these are made at once, see package slots.
const LongCall = 30 * time.Second

// askRetry is when to ask again for a destination that there is no place for.
const askRetry = time.Second

// Acquire asks for one call. It never blocks. Without a slot somebody waits, see delivery.Ask: the
// receiver's waiter where calls to the destination run, the node's where none does. A credit is
// used up if the permit is granted; else it stays its holder's.
func (p *Pool) Acquire(c Call, a delivery.Ask) (Permit, delivery.Verdict) {
	if c.Limit <= 0 {
		c.Limit = defaultLimit
	}
	var few [4]grant
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Permit{}, delivery.Verdict{Kind: delivery.Closed, RetryIn: askRetry}
	}
	permit, v := p.acquireLocked(&c, &a)
	var grants []grant
	if v.Kind == delivery.ReceiverFull {
		grants = p.serveLocked(few[:0])
	}
	p.mu.Unlock()
	notify(grants)
	return permit, v
}

func (p *Pool) acquireLocked(c *Call, a *delivery.Ask) (Permit, delivery.Verdict) {
	d := p.destinations[c.Key.Unscoped()]
	if d == nil {
		d = p.newDestination(c.Key.Unscoped())
	}
	d.lastUse = p.sweptAt
	g := d.gateFor(c.Key.Scope, c.Breaker.withDefaults())
	g.lastUse = p.sweptAt
	r := slots.Request{
		Destination: &d.slots, Breaker: g, Limit: c.Limit, Long: c.Long, Share: slots.Share{Tenant: c.Tenant, Topic: c.Number},
		Waiter: a.Receiver, Part: a.Part, Topic: a.Node,
	}
	given, _ := a.Credit.(*credit)
	if given != nil {
		r.Credit = given.slot
	}
	slot, result, class := p.slots.Acquire(&r)
	switch result {
	case slots.Granted:
		if given != nil {
			given.slot = slots.Slot{}
		}
		evicted, kept := p.keepLocked(d)
		if !kept {
			slot.Report(errNotJudged)
			p.slots.Release(slot, slots.Unknown)
			return Permit{}, delivery.Verdict{Kind: delivery.Shut, RetryIn: askRetry}
		}
		permit := p.permitLocked(d, slot)
		permit.t.evicted = evicted
		return permit, delivery.Verdict{}
	case slots.AtReceiver:
		p.setAlarmLocked(g)
		p.usedLocked(d)
		return Permit{}, delivery.Verdict{Kind: delivery.ReceiverFull}
	case slots.AtNode:
		return Permit{}, delivery.Verdict{Kind: delivery.NodeFull, Class: int(class)}
	}
	return Permit{}, delivery.Verdict{Kind: delivery.Shut, RetryIn: p.until(g.retryAt)}
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
	t.dest, t.gate, t.breaker, t.slot, t.topic = d, g, g.circuit, slot, slot.Topic()
	return Permit{t: t, use: t.use.Load()}
}

// grant is a decision to be delivered once the lock is free.
type grant struct {
	waiter delivery.Waiter
	permit Permit

	node   delivery.NodeWaiter // instead of waiter
	class  int
	credit *credit
}

func (p *Pool) serveLocked(grants []grant) []grant {
	p.served = p.slots.Serve(p.served[:0], func(b slots.Breaker) { p.setAlarmLocked(b.(*breakerScope)) })
	for i := range p.served {
		g := &p.served[i]
		if g.Topic {
			grants = append(grants, grant{node: g.Waiter.(delivery.NodeWaiter), class: int(g.Class), credit: &credit{p, g.Slot}})
		} else {
			grants = append(grants, grant{waiter: g.Waiter.(delivery.Waiter), permit: p.permitLocked(g.Slot.Breaker().(*breakerScope).dest, g.Slot)})
		}
		*g = slots.Grant{}
	}
	return grants
}

func notify(grants []grant) {
	for _, g := range grants {
		if g.node != nil {
			g.node.GrantedSlot(g.class, g.credit)
		} else {
			g.waiter.Granted(g.permit)
		}
	}
}

// credit is the pool's delivery.Credit.
type credit struct {
	pool *Pool
	slot slots.Slot
}

// Cancel gives the slot to others.
func (c *credit) Cancel() {
	var few [4]grant
	c.pool.mu.Lock()
	if !c.slot.Valid() {
		panic("callback: credit used twice")
	}
	slot := c.slot
	c.slot = slots.Slot{}
	grants := c.pool.releaseLocked(slot, slots.Unknown, few[:0])
	c.pool.mu.Unlock()
	notify(grants)
}

// releaseLocked gives a slot back and hands it on.
func (p *Pool) releaseLocked(slot slots.Slot, a slots.Answer, grants []grant) []grant {
	p.slots.Release(slot, a)
	if p.closed {
		if p.slots.Calls() == 0 {
			close(p.drained)
		}
		return grants
	}
	return p.serveLocked(grants)
}

// release gives a call's slot back and hands it on.
func (p *Pool) release(t *callSlot, a slots.Answer) {
	t.closeEvicted()
	var few [4]grant
	p.mu.Lock()
	d, g := t.dest, t.gate
	g.permits--
	p.slots.Release(t.slot, a)
	t.dest, t.gate, t.breaker, t.slot, t.req, t.done = nil, nil, nil, slots.Slot{}, nil, nil
	t.began.Store(0)
	refused := p.slots.Wake(&d.slots, g)
	var grants []grant
	if !p.closed {
		grants = p.serveLocked(few[:0])
		p.usedLocked(d)
	} else if p.slots.Calls() == 0 {
		close(p.drained)
	}
	p.mu.Unlock()
	p.tickets.Put(t)
	notify(grants)
	if refused {
		p.refuseWaiters(d, g)
	}
}

// refusedAtOnce is how many waiters are taken out in one hold of the lock.
const refusedAtOnce = 64

// refuseWaiters hands the waiters of a breaker that has opened back: they ask again when it may let
// a call through. It runs on the goroutine of the call that opened it.
func (p *Pool) refuseWaiters(d *destination, g *breakerScope) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return
		}
		list := p.slots.TakeRefused(&d.slots, g, refusedAtOnce)
		retryAt := g.retryAt
		grants := p.serveLocked(nil)
		p.usedLocked(d)
		p.mu.Unlock()
		notify(grants)
		for _, w := range list {
			w.(delivery.Waiter).Refused(p.until(retryAt))
		}
		if len(list) < refusedAtOnce {
			return
		}
	}
}

// setAlarmLocked has a half-open breaker looked at again: its probes end when they end, or may
// not be judged.
func (p *Pool) setAlarmLocked(g *breakerScope) {
	if g.retryAt.IsZero() || p.closed || g.alarmSet {
		return
	}
	g.alarmSet = true
	wait := max(p.until(g.retryAt), time.Millisecond)
	if g.alarm == nil {
		g.alarm = time.AfterFunc(wait, func() { p.wake(g) })
		return
	}
	g.alarm.Reset(wait)
}

// wake asks a breaker again for its waiters.
func (p *Pool) wake(g *breakerScope) {
	var few [4]grant
	p.mu.Lock()
	g.alarmSet = false
	if p.closed {
		p.mu.Unlock()
		return
	}
	refused := p.slots.Wake(&g.dest.slots, g)
	grants := p.serveLocked(few[:0])
	p.mu.Unlock()
	notify(grants)
	if refused {
		p.refuseWaiters(g.dest, g)
	}
}
