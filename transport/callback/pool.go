package callback

import (
	"container/list"
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"
)

// VerdictKind is the answer to Acquire.
type VerdictKind uint8

const (
	Granted VerdictKind = iota + 1 // the permit is valid
	Queued                         // the waiter will be granted a permit later
	Open                           // the breaker says no until RetryAt; nothing is queued
	Closed                         // the pool has been shut down
)

// Verdict tells what Acquire did.
type Verdict struct {
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
	sessions  tls.ClientSessionCache // of all destinations, by host and port
	running   atomic.Bool
	tickets   sync.Pool

	mu           sync.Mutex
	destinations map[Key]*destination
	recent       list.List // of *destination, the last used first
	waiting      map[Waiter]*place
	permits      int // Invariant: the sum over destinations
	closed       bool
	drained      chan struct{} // closed when closed and permits == 0
	sweptAt      time.Time     // coarse clock of lastUse

	// Destinations with waiters, to be served in turn. Those with few calls out are
	// in light, the others in heavy. The last quarter of the node's calls is kept
	// for light ones: a few receivers that hang cannot take the whole node.
	light, heavy ring
	softCalls    int // from here on only light destinations are granted
	lightCalls   int // a destination with fewer calls out is light
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
		waiting:      make(map[Waiter]*place),
		drained:      make(chan struct{}),
		sweptAt:      config.Now(),
		softCalls:    config.MaxCalls - config.MaxCalls/4,
		lightCalls:   max(1, config.MaxCalls/128),
	}
	if config.MaxCalls < 16 { // too few to keep any back
		p.softCalls = config.MaxCalls
	}
	p.policy.Store(&config.Policy)
	p.base, p.giveUp = context.WithCancel(context.Background())
	p.workers.pool = p
	p.sessions = tls.NewLRUClientSessionCache(maxSessions)
	p.tickets.New = func() any { return new(ticket) }
	return p, nil
}

// Policy is which addresses may be dialled now.
func (p *Pool) Policy() Policy { return *p.policy.Load() }

// SetPolicy decides about the dials from now on. Connections that are open stay.
func (p *Pool) SetPolicy(policy Policy) { p.policy.Store(&policy) }

// Acquire asks for one call at a destination, at most limit at once there (0 = 256).
// It never blocks. When the destination or the node is full, w is queued at the
// destination, once however often it asks, and hears Granted later.
func (p *Pool) Acquire(k Key, limit int, b Breaker, w Waiter) (Permit, Verdict) {
	if limit <= 0 {
		limit = defaultLimit
	}
	b = b.withDefaults()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Permit{}, Verdict{Kind: Closed}
	}
	d := p.destinationLocked(k.destination())
	if d == nil { // every destination is in use: a bound was reached, as if it were full
		return Permit{}, Verdict{Kind: Open, RetryAt: p.config.Now().Add(100 * time.Millisecond)}
	}
	g := d.gateFor(k.Scope, b)
	g.lastUse = p.sweptAt
	if !p.freeLocked(d) || !d.room(limit) || d.lineFor(g, limit) != nil {
		if retryAt, blocked := g.circuit.blocked(); blocked {
			return Permit{}, Verdict{Kind: Open, RetryAt: retryAt}
		}
		p.enqueueLocked(d, g, limit, w)
		return Permit{}, Verdict{Kind: Queued}
	}
	tell, retryAt := g.circuit.allow()
	if tell == nil {
		return Permit{}, Verdict{Kind: Open, RetryAt: retryAt}
	}
	return p.permitLocked(d, g, limit, tell), Verdict{Kind: Granted}
}

// Forget takes the waiter out of every queue and reports whether it was in one. A
// grant that had been decided before still arrives.
func (p *Pool) Forget(w Waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.waiting[w]
	for at := first; at != nil; at = at.sibling {
		p.leaveLineLocked(at)
	}
	delete(p.waiting, w)
	return first != nil
}

// InFlight counts the permits that are out: calls running, and calls to come.
func (p *Pool) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.permits
}

// freeLocked reports whether the node as a whole has a slot for the destination.
func (p *Pool) freeLocked(d *destination) bool {
	return p.permits < p.softCalls || p.permits < p.config.MaxCalls && d.permits < p.lightCalls
}

func (p *Pool) permitLocked(d *destination, g *gate, limit int, tell func(error)) Permit {
	p.permits++
	d.addPermit(g, limit)
	t := p.tickets.Get().(*ticket)
	t.dest, t.gate, t.limit, t.tell = d, g, limit, tell
	return Permit{t: t, use: t.use.Load()}
}

func (p *Pool) enqueueLocked(d *destination, g *gate, limit int, w Waiter) {
	at := p.waiting[w]
	for at != nil && at.line.dest != d {
		at = at.sibling
	}
	switch {
	case at == nil:
		at = &place{waiter: w, sibling: p.waiting[w]}
		p.waiting[w] = at
	case at.line.gate == g && at.line.limit == limit:
		return // it keeps its place
	default:
		p.leaveLineLocked(at)
	}
	l := d.lineFor(g, limit)
	if l == nil {
		l = &line{dest: d, gate: g, limit: limit}
		d.lines = append(d.lines, l)
	}
	l.push(at)
	p.standLocked(d)
}

// leaveLineLocked takes the place out of its line, not out of p.waiting.
func (p *Pool) leaveLineLocked(at *place) {
	l := at.line
	l.remove(at)
	if l.first != nil {
		return
	}
	l.dest.dropLine(l)
	p.standLocked(l.dest)
}

// standLocked puts the destination into the ring where it belongs, if any. In the
// right one it keeps its turn.
func (p *Pool) standLocked(d *destination) {
	var want *ring
	switch {
	case len(d.lines) == 0:
	case d.permits < p.lightCalls:
		want = &p.light
	default:
		want = &p.heavy
	}
	if d.ring == want {
		return
	}
	if d.ring != nil {
		d.ring.remove(d)
	}
	if want != nil {
		want.push(d)
	}
}

// grant is a decision to be told once the lock is free.
type grant struct {
	waiter Waiter
	permit Permit
}

// serveLocked hands free slots to waiters, one destination after the other. A
// destination that cannot be served leaves its ring until one of its calls ends,
// its breaker's alarm rings, or another waiter comes.
func (p *Pool) serveLocked(grants []grant) []grant {
	for p.permits < p.config.MaxCalls {
		d := p.light.first
		if d == nil && p.permits < p.softCalls {
			d = p.heavy.first
		}
		if d == nil {
			return grants
		}
		d.ring.remove(d)
		l, tell, askAt := d.nextAllowed()
		if l == nil {
			p.setAlarmLocked(d, askAt)
			continue
		}
		at := l.first
		p.leaveLineLocked(at)
		p.leaveWaitingLocked(at)
		grants = append(grants, grant{at.waiter, p.permitLocked(d, l.gate, l.limit, tell)})
		if d.ring != nil { // to the end, also when it was put back already
			d.ring.remove(d)
		}
		p.standLocked(d)
	}
	return grants
}

func (p *Pool) leaveWaitingLocked(at *place) {
	first := p.waiting[at.waiter]
	if first == at {
		if at.sibling == nil {
			delete(p.waiting, at.waiter)
		} else {
			p.waiting[at.waiter] = at.sibling
		}
		return
	}
	for first.sibling != at {
		first = first.sibling
	}
	first.sibling = at.sibling
}

// release gives the ticket's slot back and hands it on.
func (p *Pool) release(t *ticket) {
	var few [4]grant
	p.mu.Lock()
	d := t.dest
	d.removePermit(t.gate, t.limit)
	p.permits--
	t.dest, t.gate, t.tell, t.req, t.done = nil, nil, nil, nil, nil
	p.standLocked(d)
	grants := p.serveLocked(few[:0])
	if p.closed && p.permits == 0 {
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
		p.standLocked(d)
		grants = p.serveLocked(few[:0])
	}
	p.mu.Unlock()
	tellWaiters(grants)
}

// destinationLocked finds or makes a destination, in place of an idle one when the
// pool is full; nil when none is idle.
func (p *Pool) destinationLocked(k Key) *destination {
	d := p.destinations[k]
	if d != nil {
		p.recent.MoveToFront(d.recent)
		d.lastUse = p.sweptAt
		return d
	}
	if len(p.destinations) >= p.config.MaxDestinations && !p.evictLocked() {
		return nil
	}
	d = &destination{pool: p, key: k, label: k.String(), gates: make(map[string]*gate), lastUse: p.sweptAt}
	if k.Scheme == "https" {
		d.secure = p.tlsConfig(k)
	}
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
	d.conns.closeIdle(p, time.Time{})
}
