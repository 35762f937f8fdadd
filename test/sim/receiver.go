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
	p := to.(*permit)
	p.use()
	if d.n.silent() {
		return
	}
	c := d.newCall(p, j)
	c.done = done
	d.soon(c.begin)
}

// newCall is an attempt that the host starts now.
func (d *dispatcher) newCall(p *permit, j *scheduler.Delivery) *call {
	n := d.n
	c := &call{permit: p, delivery: *j, node: n, life: n.life, letGoMs: n.keeper.WallMs(), term: n.host.Progress(j.Shard).Term}
	d.w.checker.mayStart(c)
	return c
}

// soon has a call begin.
func (d *dispatcher) soon(begin func()) {
	w, n, life := d.w, d.n, d.n.life
	if !w.calm && w.swarm.pauses > 0 && w.chance.hit(0.01) { // after a pause the lease may be stale
		n.pause(w.chance.between(time.Second, 30*time.Second))
	}
	if w.swarm.clocks.sleeps > 0 && w.times.hit(0.01) {
		n.sleep(w.times.between(time.Second, 30*time.Second))
	}
	w.after(n.lag()+w.chance.between(0, 2*time.Millisecond), func() {
		if n.life == life {
			n.do(begin)
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
	if c.late() || !w.keys.opens(n, c.delivery.Topic) {
		c.end(delivery.Outcome{NotSent: true})
		return
	}
	w.checker.started(c)
	took, status, heard := c.answers()
	w.after(took, func() {
		c.arrived(status)
		if n.life == c.life {
			a := outcomeOf(status, heard)
			if a.Status >= 300 {
				a.Answer = w.checker.answers.given(w, &c.delivery.Job, status)
			}
			n.do(func() { c.end(a) })
		}
	})
}

// answers draws the receiver's answer; status 0: there is none. heard: it does not get lost.
func (c *call) answers() (took time.Duration, status int, heard bool) {
	w := c.node.w
	s := &w.swarm
	took = w.chance.between(time.Millisecond, s.receiverSlow)
	status, heard = 200, true
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
	return took, status, heard
}

// arrived records how the receiver has answered.
func (c *call) arrived(status int) {
	c.ended = true
	switch status {
	case 200:
		c.taken = true
		c.node.w.checker.delivered(c)
	case 202:
		c.node.w.workloads.accepted(c)
	case 410:
		c.node.w.checker.features.heard(c)
		c.node.w.revive(&c.delivery.Job)
	}
}

// outcomeOf is what the host sees of an answer.
func outcomeOf(status int, heard bool) delivery.Outcome {
	if status == 0 || !heard {
		return delivery.Outcome{Err: "no answer"}
	}
	return delivery.Outcome{Status: status}
}

// end reports the result to the host.
func (c *call) end(a delivery.Outcome) {
	c.record(&a)
	c.permit.answered(&a)
	c.done(a)
	c.node.wake(0)
}

// record keeps how the call ended for the checkers, and gives the outcome its times.
func (c *call) record(a *delivery.Outcome) {
	a.StartedMs, a.EndedMs = c.wallMs, max(c.wallMs, c.node.keeper.WallMs())
	began, ended := msOf(a.StartedMs-epochMs)-c.begun, msOf(a.EndedMs-epochMs)-c.node.w.now
	c.lowest, c.highest = min(began, ended), max(began, ended)
	if c.told = true; a.Status == 200 && a.Err == "" {
		c.node.w.checker.successes.succeeded(c)
	}
}

// answered frees a permit by how its call has ended.
func (p *permit) answered(a *delivery.Outcome) {
	switch {
	case a.NotSent:
		p.free(errNotJudged, slots.Unknown)
	case a.Status == 0:
		p.free(errNoAnswer, slots.Silent)
	case a.Status != 200:
		p.free(errNoAnswer, slots.Answered)
	default:
		p.free(nil, slots.Answered)
	}
}
