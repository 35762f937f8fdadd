package sim

import (
	"errors"
	"time"

	"carillon/shard"
)

// callTimeout is what the topics' policy gives a call.
const callTimeout = 2 * time.Second

// receivers are all that nodes call, and what nodes have of it.
type receivers struct {
	w   *World
	all map[uint64]*dispatcher // by node
}

func (r *receivers) dispatcher(n *node) *dispatcher {
	d := &dispatcher{w: r.w, n: n, life: n.life, dests: map[string]*dest{}}
	r.all[n.id] = d
	return d
}

// died forgets the calls of a process.
func (r *receivers) died(n *node) { delete(r.all, n.id) }

// dispatcher makes one process's calls.
type dispatcher struct {
	w     *World
	n     *node
	life  uint64
	dests map[string]*dest
}

// dest is a destination with its slots.
type dest struct {
	breaker breaker

	used  int
	queue []shard.Waiter
}

// Route implements shard.Dispatcher.
func (d *dispatcher) Route(t *shard.Topic, own *shard.Callback) (shard.Destination, error) {
	if own.URL != "" {
		return own.URL, nil
	}
	if t.Policy.Callback.URL == "" {
		return nil, errors.New("no URL")
	}
	return t.Policy.Callback.URL, nil
}

// Acquire implements shard.Dispatcher.
func (d *dispatcher) Acquire(to shard.Destination, t *shard.Topic, waiter shard.Waiter) (shard.Permit, shard.Verdict) {
	at := d.dests[to.(string)]
	if at == nil {
		at = &dest{}
		d.dests[to.(string)] = at
	}
	s := &d.w.swarm
	if d.w.keys.locked(d.n, t) {
		return nil, shard.Verdict{RetryIn: time.Second}
	}
	if t.Policy.OwnBreaker {
		policy := t.Policy.Breaker
		if wait := at.breaker.blocked(d.w.now, &policy); wait > 0 {
			return nil, shard.Verdict{RetryIn: wait}
		}
		at.used++
		return &permit{d: d, at: at, policy: &policy, probe: at.breaker.probing}, shard.Verdict{}
	}
	switch {
	case d.w.chance.hit(s.breaker):
		return nil, shard.Verdict{RetryIn: d.w.chance.between(time.Millisecond, 2*time.Second)}
	case s.slots > 0 && at.used >= s.slots:
		at.queue = append(at.queue, waiter)
		return nil, shard.Verdict{Queued: true}
	}
	at.used++
	return &permit{d: d, at: at, asked: d.w.now}, shard.Verdict{}
}

// permit is leave for one call.
type permit struct {
	d    *dispatcher
	at   *dest
	used bool

	asked  time.Duration
	policy *shard.Breaker // nil: none
	probe  bool
}

func (p *permit) use() {
	if p.used {
		p.d.w.violate("permit", "node %d uses a permit twice", p.d.n.id)
	}
	p.used = true
}

// free gives the slot to the next that waits.
func (p *permit) free() {
	p.at.used--
	if len(p.at.queue) > 0 && p.d.n.life == p.d.life {
		next := p.at.queue[0]
		p.at.queue = p.at.queue[1:]
		p.at.used++
		next.Granted(&permit{d: p.d, at: p.at, asked: p.d.w.now})
		p.d.n.wake(0)
	}
}

// Cancel implements shard.Permit.
func (p *permit) Cancel() {
	p.use()
	p.unjudged()
	p.free()
}

// unjudged is a call that was not made.
func (p *permit) unjudged() {
	if p.probe {
		p.at.breaker.probing = false
	}
}

// Start implements shard.Permit: the call begins a moment later, as on another goroutine, with the guard of the real one.
func (p *permit) Start(j *shard.Delivery, done func(shard.Attempt)) {
	p.use()
	w, n := p.d.w, p.d.n
	if n.silent() {
		return
	}
	c := &call{permit: p, delivery: *j, done: done, node: n, life: n.life, letGoMs: n.keeper.WallMs(), term: n.host.Progress(j.Shard).Term}
	w.book.mayStart(c)
	life := n.life
	if !w.calm && w.swarm.pauses > 0 && w.chance.hit(0.01) { // the moment at which a stale lease would be used
		n.pause(w.chance.between(time.Second, 30*time.Second))
	}
	if w.swarm.clocks.sleeps > 0 && w.times.hit(0.01) {
		n.sleep(w.times.between(time.Second, 30*time.Second))
	}
	w.after(w.chance.between(0, 2*time.Millisecond), func() {
		if n.life == life {
			n.do(c.begin)
		}
	})
}

// call is one attempt.
type call struct {
	permit   *permit
	delivery shard.Delivery
	done     func(shard.Attempt)
	node     *node
	life     uint64
	wallMs   int64
	letGoMs  int64 // when the host had it start; the clock may be set before it does
	ended    bool  // at the receiver
	told     bool  // the host knows
	nextMs   int64 // when it is tried again, as was decided; 0: not

	term    uint64 // in which the host leads the shard
	taken   bool   // the receiver answered 200
	success bool   // … and the process knows
	reach   reach
}

// begin makes the call, unless it would not fit into its lease any more.
func (c *call) begin() {
	w, n := c.permit.d.w, c.node
	c.wallMs = n.keeper.WallMs()
	if n.keeper.Lease()+callTimeout > c.delivery.Deadline {
		c.end(shard.Attempt{NotSent: true})
		return
	}
	if !w.keys.opens(n, c.delivery.Topic) {
		c.end(shard.Attempt{NotSent: true})
		return
	}
	w.book.started(c)
	s := &w.swarm
	took := w.chance.between(time.Millisecond, s.receiverSlow)
	status, heard := 200, true
	switch {
	case c.delivery.Job.Topic == sickTopic:
		status = w.sick.status()
	case c.delivery.Job.Topic == mergingTopic:
		took, status = w.merging.answers()
	case w.chance.hit(s.receiverHangs):
		status = 0
	case w.chance.hit(s.receiverFails):
		status = 503
	case c.delivery.Job.Topic == featureTopic && w.chance.hit(s.receiverStops):
		status = 410
	case w.chance.hit(s.receiverLost):
		heard = false
	case c.delivery.Job.Topic == reportTopic && w.guests.chance.IntN(2) == 0:
		status = 202
	}
	if took >= callTimeout || status == 0 {
		took, status = callTimeout, 0
	}
	w.after(took, func() {
		c.ended = true
		switch status {
		case 200:
			c.taken = true
			w.book.delivered(c)
		case 202:
			w.guests.accepted(c)
		case 410:
			w.book.features.heard(c)
		}
		a := shard.Attempt{Status: status}
		if status == 0 || !heard {
			a = shard.Attempt{Err: "no answer"}
		}
		if n.life == c.life {
			n.do(func() { c.end(a) })
		}
	})
}

// end brings the answer to the host.
func (c *call) end(a shard.Attempt) {
	a.StartedMs, a.EndedMs = c.wallMs, max(c.wallMs, c.node.keeper.WallMs())
	if c.told = true; a.Status == 200 {
		c.node.w.book.successes.succeeded(c)
	}
	if p := c.permit; p.policy != nil {
		if a.NotSent {
			p.unjudged()
		} else {
			p.at.breaker.tell(p.d.w.now, p.policy, p.probe, a.Status != 200)
		}
	}
	c.permit.free()
	c.done(a)
	c.node.wake(0)
}
