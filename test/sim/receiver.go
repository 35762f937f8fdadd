package sim

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/transport/callback/slots"
)

// callTimeout is the call timeout of the topics' policies.
const callTimeout = 2 * time.Second

// receivers are the receivers of all calls, with one dispatcher per node.
type receivers struct {
	w   *World
	all map[uint64]*dispatcher // by node
}

func (r *receivers) dispatcher(n *node) *dispatcher {
	d := newDispatcher(r.w, n)
	r.all[n.id] = d
	return d
}

// died forgets the calls of a process.
func (r *receivers) died(n *node) { delete(r.all, n.id) }

// Start implements scheduler.Dispatcher. The call begins a moment later, as on another goroutine,
// and checks its lease first, as the product does.
func (d *dispatcher) Start(to delivery.Permit, j *scheduler.Delivery, done func(delivery.Outcome)) {
	p, w, n := to.(*permit), d.w, d.n
	p.use()
	if n.silent() {
		return
	}
	c := &call{permit: p, delivery: *j, done: done, node: n, life: n.life, letGoMs: n.keeper.WallMs(), term: n.host.Progress(j.Shard).Term}
	w.checker.mayStart(c)
	life := n.life
	if !w.calm && w.swarm.pauses > 0 && w.chance.hit(0.01) { // after a pause the lease may be stale
		n.pause(w.chance.between(time.Second, 30*time.Second))
	}
	if w.swarm.clocks.sleeps > 0 && w.times.hit(0.01) {
		n.sleep(w.times.between(time.Second, 30*time.Second))
	}
	w.after(n.lag()+w.chance.between(0, 2*time.Millisecond), func() {
		if n.life == life {
			n.do(c.begin)
		}
	})
}

// call is one attempt.
type call struct {
	permit   *permit
	delivery scheduler.Delivery
	done     func(delivery.Outcome)
	node     *node
	life     uint64
	wallMs   int64
	letGoMs  int64 // when the host started it; the clock may be set before the call begins
	ended    bool  // the receiver has answered
	told     bool  // the host knows the result
	nextMs   int64 // due time of the retry that a leader decided; 0: none
	endedMs  int64 // … and the end of the attempt in that decision
	begun    time.Duration

	// the least and greatest error of its process's time from begin to end
	lowest, highest time.Duration
	judged          time.Duration
	kept            bool // … and the shard's table has it

	term    uint64 // term of the host's leadership
	taken   bool   // the receiver answered 200
	success bool   // … and the process got the answer
	reach   reach
}

// late reports whether the call would outlast its lease, so that it may not be sent any more.
func (c *call) late() bool { return c.node.keeper.Lease()+callTimeout > c.delivery.Deadline }

// begin sends the call, unless it would outlast its lease.
func (c *call) begin() {
	w, n := c.permit.d.w, c.node
	c.wallMs, c.begun = n.keeper.WallMs(), w.now
	if c.late() {
		c.end(delivery.Outcome{NotSent: true})
		return
	}
	if !w.keys.opens(n, c.delivery.Topic) {
		c.end(delivery.Outcome{NotSent: true})
		return
	}
	w.checker.started(c)
	s := &w.swarm
	took := w.chance.between(time.Millisecond, s.receiverSlow)
	status, heard := 200, true
	switch {
	case c.delivery.Job.Topic == sickTopic:
		status = w.sick.status()
	case c.delivery.Job.Topic == mergingTopic:
		took, status = w.merging.answers()
	case c.delivery.Job.Topic == perKeyTopic && w.perKey.on:
		took, status = w.perKey.answers()
	case w.crowd.has(c.delivery.Job.Topic):
		took, status = w.crowd.answers(c)
	case w.chance.hit(s.receiverHangs):
		status = 0
	case w.chance.hit(s.receiverFails):
		status = 503
	case c.delivery.Job.Topic == featureTopic && w.chance.hit(s.receiverStops):
		status = 410
	case w.chance.hit(s.receiverLost):
		heard = false
	case c.delivery.Job.Topic == reportTopic && w.workloads.chance.IntN(2) == 0:
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
			w.checker.delivered(c)
		case 202:
			w.workloads.accepted(c)
		case 410:
			w.checker.features.heard(c)
		}
		a := delivery.Outcome{Status: status}
		if status == 0 || !heard {
			a = delivery.Outcome{Err: "no answer"}
		} else if status >= 300 {
			a.Answer = w.checker.answers.given(w, &c.delivery.Job, status)
		}
		if n.life == c.life {
			n.do(func() { c.end(a) })
		}
	})
}

// end reports the result to the host.
func (c *call) end(a delivery.Outcome) {
	a.StartedMs, a.EndedMs = c.wallMs, max(c.wallMs, c.node.keeper.WallMs())
	began, ended := msOf(a.StartedMs-epochMs)-c.begun, msOf(a.EndedMs-epochMs)-c.node.w.now
	c.lowest, c.highest = min(began, ended), max(began, ended)
	if c.told = true; a.Status == 200 {
		c.node.w.checker.successes.succeeded(c)
	}
	switch {
	case a.NotSent:
		c.permit.free(errNotJudged, slots.Unknown)
	case a.Status == 0:
		c.permit.free(errNoAnswer, slots.Silent)
	case a.Status != 200:
		c.permit.free(errNoAnswer, slots.Answered)
	default:
		c.permit.free(nil, slots.Answered)
	}
	c.done(a)
	c.node.wake(0)
}
