package sim

import (
	"errors"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/timer"
	"carillon/transport/callback/slots"
)

// dispatcher gives the calls of one process their slots. The slots are the product's own, with a
// bound that runs reach; the breakers run on the simulated clock.
type dispatcher struct {
	w     *World
	n     *node
	life  uint64
	slots *slots.Slots
	dests map[string]*dest
}

func newDispatcher(w *World, n *node) *dispatcher {
	d := &dispatcher{w: w, n: n, life: n.life, dests: map[string]*dest{}}
	d.slots = slots.New(w.swarm.calls)
	return d
}

// dest is a destination. It has one breaker, because topics have none of their own here.
type dest struct {
	slots slots.Destination
	gate  gate
}

// unlimited is the limit of a destination in runs that set none.
const unlimited = 1 << 20

// Route implements scheduler.Dispatcher.
func (d *dispatcher) Route(t *timer.Topic, own *timer.Callback) (scheduler.Destination, error) {
	if own.URL != "" {
		return own.URL, nil
	}
	if t.Policy.Callback.URL == "" {
		return nil, errors.New("no URL")
	}
	return t.Policy.Callback.URL, nil
}

// Tenant implements scheduler.Dispatcher.
func (d *dispatcher) Tenant(*timer.Topic) string { return "" }

// Acquire implements scheduler.Dispatcher.
func (d *dispatcher) Acquire(to scheduler.Destination, t *timer.Topic, a delivery.Ask) (delivery.Permit, delivery.Verdict) {
	at := d.dests[to.(string)]
	if at == nil {
		at = &dest{}
		at.gate = gate{d: d, at: at}
		d.dests[to.(string)] = at
	}
	if d.w.keys.locked(d.n, t) {
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Second}
	}
	limit := unlimited
	at.gate.policy = nil
	if t.Policy.OwnBreaker {
		at.gate.policy = &t.Policy.Breaker
	} else if d.w.chance.hit(d.w.swarm.breaker) {
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: d.w.chance.between(time.Millisecond, 2*time.Second)}
	} else if d.w.swarm.slots > 0 {
		limit = d.w.swarm.slots
	}
	if t.ID == perKeyTopic && t.Policy.DestinationConcurrency == 1 {
		limit = 1
	}
	r := slots.Request{
		Destination: &at.slots, Breaker: &at.gate, Limit: limit, Share: slots.Share{Topic: uint64(t.ID)}, Waiter: a.Receiver, Part: a.Part, Topic: a.Node,
	}
	if a.Credit != nil {
		r.Credit = a.Credit.(*credit).slot
	}
	slot, result, class := d.slots.Acquire(&r)
	switch result {
	case slots.Granted:
		return &permit{d: d, slot: slot, at: at, asked: d.w.now}, delivery.Verdict{}
	case slots.AtReceiver:
		d.serve()
		return nil, delivery.Verdict{Kind: delivery.ReceiverFull}
	case slots.AtNode:
		return nil, delivery.Verdict{Kind: delivery.NodeFull, Class: int(class)}
	}
	return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: at.gate.retryIn}
}

// State implements scheduler.Dispatcher.
func (d *dispatcher) State(to scheduler.Destination, _ *timer.Topic) delivery.State {
	s := delivery.State{Name: to.(string)}
	if at := d.dests[s.Name]; at != nil && at.gate.Blocked() {
		s.Breaker, s.ProbeIn = delivery.BreakerOpen, at.gate.retryIn
	}
	return s
}

// idleIn is how soon after the last timer no call is out: a call that was given up may last for its
// time-out.
const idleIn = callTimeout + 3*time.Second

// proveIdle checks that at the end of a run no topic or receiver waits for a slot, and that none is
// out. What has been lost cannot be seen in a run in which others' calls end.
func (w *World) proveIdle() {
	busy := func() *node {
		for _, n := range w.nodes {
			if d := w.calls.all[n.id]; n.host != nil && d != nil && !d.slots.Idle() {
				return n
			}
		}
		return nil
	}
	if !w.passUntil(idleIn, func() bool { return busy() == nil }) {
		n := busy()
		s := w.calls.all[n.id].slots
		w.violate("slots", "all timers have ended, but at node %d %d slots are out, %d wait at receivers, or a topic waits", n.id, s.Calls(), s.Waiting())
	}
}

// parked schedules another look at a breaker that refused a waiter, for when it may allow a call.
func (d *dispatcher) parked(b slots.Breaker) {
	g := b.(*gate)
	d.w.after(g.retryIn, func() {
		if d.n.life == d.life {
			d.n.do(func() { d.wake(g) })
		}
	})
}

// wake looks at a breaker again. Waiters of one that has opened are handed back.
func (d *dispatcher) wake(g *gate) {
	if d.slots.Wake(&g.at.slots, g) {
		for _, w := range d.slots.TakeRefused(&g.at.slots, g, 1<<30) {
			w.(delivery.Waiter).Refused(g.retryIn)
			d.n.wake(0)
		}
	}
	d.serve()
}

// serve grants free slots to waiters.
func (d *dispatcher) serve() {
	for _, g := range d.slots.Serve(nil, d.parked) {
		if g.Topic {
			g.Waiter.(delivery.NodeWaiter).GrantedSlot(int(g.Class), &credit{d, g.Slot})
		} else {
			at := g.Slot.Breaker().(*gate).at
			g.Waiter.(delivery.Waiter).Granted(&permit{d: d, slot: g.Slot, at: at, asked: d.w.now})
		}
		d.n.wake(0)
	}
}

// credit is a slot of the node without a destination.
type credit struct {
	d    *dispatcher
	slot slots.Slot
}

// Cancel implements delivery.Credit.
func (c *credit) Cancel() {
	c.d.slots.Release(c.slot, slots.Unknown)
	if c.d.n.life == c.d.life {
		c.d.serve()
	}
}

// gate is a destination's breaker, as the slots use it.
type gate struct {
	d       *dispatcher
	at      *dest
	policy  *timer.Breaker // nil: no breaker
	breaker breaker
	retryIn time.Duration // of the last refusal
}

// Blocked implements slots.Breaker.
func (g *gate) Blocked() bool {
	if g.policy == nil {
		return false
	}
	g.retryIn = g.breaker.blocked(g.d.w.now, g.policy)
	return g.retryIn > 0
}

// Allow implements slots.Breaker.
func (g *gate) Allow() (tell func(error)) {
	if g.policy == nil {
		return func(error) {}
	}
	if g.Blocked() {
		return nil
	}
	probe, policy := g.breaker.until != 0, g.policy
	g.breaker.probing = probe
	return func(err error) {
		switch {
		case err == errNotJudged && probe:
			g.breaker.probing = false
		case err != errNotJudged:
			g.breaker.tell(g.d.w.now, policy, probe, err != nil)
		}
	}
}

// Results that a call reports to its breaker.
var (
	errNotJudged = errors.New("not judged")
	errNoAnswer  = errors.New("no good answer")
)

// permit is the permission for one call.
type permit struct {
	d    *dispatcher
	slot slots.Slot
	at   *dest
	used bool

	asked time.Duration // when it was granted
}

func (p *permit) use() {
	if p.used {
		p.d.w.violate("permit", "node %d uses a permit twice", p.d.n.id)
	}
	p.used = true
}

// free ends a call and gives its slot to the next waiter.
func (p *permit) free(err error, a slots.Answer) {
	p.slot.Report(err)
	p.d.slots.Release(p.slot, a)
	if p.d.n.life == p.d.life {
		p.d.wake(&p.at.gate)
	}
}

// Cancel implements delivery.Permit.
func (p *permit) Cancel() {
	p.use()
	p.free(errNotJudged, slots.Unknown)
}
