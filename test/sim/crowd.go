package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// A crowd is many of everything, due in one instant: thousands of timers with as many receivers, or
// as many keys, of many topics, with labels, for waiting pulls, with limits, and among them dead
// letters of one id. It comes at the end of a run, when nothing else is wrong. Then:
//
//   - no group changes its leader because of it;
//   - the schedulers' part of a turn keeps its budget, whatever is in it;
//   - each timer is called within a bound that grows with their number alone;
//   - afterwards no topic and no receiver waits, and no slot is out.
//
// Each tenth call is refused once, and some receivers of one timer never answer the first.
type crowd struct {
	w      *World
	chance chance
	size   int // timers; 0: this run has none
	topics int
	main   int  // kind of the topic that half of the timers are in; crowdKinds: there is none
	hangs  bool // some first calls hang

	asked   map[string]bool
	reached map[string]bool
	left    map[string]bool // acknowledged, and not called yet
	tried   map[string]bool // the first call has been answered
	open    int             // adds without an answer
	pulling bool            // consumers go on
}

// crowded is a profile of its own: a short run with nothing but a crowd.
const crowded = "crowded"

// firstCrowd is the first of a crowd's topics.
var firstCrowd = turnedTopic + 1

// The topics of a crowd take turns at these kinds.
const (
	ofReceivers = iota // each timer has its own receiver
	ofKeys             // serial, and each two timers have their own key
	ofPulls
	ofLabels // one receiver, and a label for each timer
	ofLimits // few calls at once
	crowdKinds
)

// drawCrowd draws a run's crowd. One run in eight has one.
func (w *World) drawCrowd() *crowd {
	c := newChance(w.cfg.Seed, 47)
	d := &crowd{w: w, chance: c, asked: map[string]bool{}, reached: map[string]bool{}, left: map[string]bool{}, tried: map[string]bool{}}
	s := &w.swarm
	on, size, topics, few, hangs, main := c.IntN(8) == 0, 300+c.IntN(700), 5+c.IntN(20), c.IntN(4) == 0, c.IntN(2) == 0, c.IntN(crowdKinds+1)
	if w.cfg.script != nil {
		return d
	}
	if few { // so that topics wait for slots; too few to be divided, so nothing is kept apart
		s.calls, s.apart = 3+c.IntN(10), false
	} else if w.cfg.Profile == crowded {
		s.calls = 32 << c.IntN(4)
	}
	// a process that finds a flipped bit late restarts, and others are elected
	if !(on && s.replicaFaults.strikes == 0) && w.cfg.Profile != crowded {
		return d
	}
	d.size, d.topics, d.hangs, d.main = size, topics, hangs, main
	if w.cfg.Profile == crowded {
		d.size, d.topics = 1000+c.IntN(4000), 5+c.IntN(60)
		s.toil = 1 + (slowestTurns-1)*c.Float64()
		s.calm()
		s.ordeals, s.ailments, s.replicaFaults, s.early, s.sickThink = ordeals{}, ailments{}, replicaFaults{}, false, 0
		s.safety, s.clients, s.think = 3*time.Second, 2, 500*time.Millisecond
		s.delay, s.apart = min(s.delay, time.Millisecond), false
	}
	return d
}

// names are the names of its topics.
func (d *crowd) names() (list []string) {
	if d.size > 0 {
		for i := range d.topics {
			list = append(list, fmt.Sprint("crowd", i))
		}
	}
	return list
}

// has reports whether a topic is one of the crowd's.
func (d *crowd) has(id timer.TopicID) bool {
	return d.size > 0 && id >= firstCrowd && id < firstCrowd+timer.TopicID(d.topics)
}

func (d *crowd) kind(id timer.TopicID) int { return int(id-firstCrowd) % crowdKinds }

// shape sets a topic's policy.
func (d *crowd) shape(id timer.TopicID, p *timer.Policy) {
	if !d.has(id) {
		return
	}
	switch d.kind(id) {
	case ofKeys:
		p.Serial = true
	case ofPulls:
		p.Pull, p.LeaseMs = true, crowdLease.Milliseconds()
	case ofLimits:
		p.Concurrency = 32
	}
}

// judge makes the topics' checkers.
func (d *crowd) judge(b *checker) {
	for i := range d.names() {
		b.visits[firstCrowd+timer.TopicID(i)] = crowdChecker{d}
	}
}

// proveCrowd has the crowd come.
func (w *World) proveCrowd() {
	d := w.crowd
	if d.size == 0 {
		return
	}
	w.note(nil, "crowd", uint64(d.size), uint64(d.topics), "")
	w.counts.Crowds++
	d.settle()
	elections := w.counts.Elections
	d.pulling = true
	due := w.now + 2*time.Second + time.Duration(d.size)*200*time.Microsecond
	d.gather(due)
	limit := d.bound()
	if !w.passUntil(due-w.now+limit, func() bool { return w.now > due && d.open == 0 && len(d.left) == 0 }) {
		w.violate("crowd", "%s after %d timers were due together, %d have not been called, and %d adds have no answer: %s", limit, d.size, len(d.left), d.open, w.describe())
	}
	w.note(nil, "crowd called", uint64((w.now - due).Milliseconds()), uint64(limit.Milliseconds()), "")
	if w.counts.Elections > elections {
		w.violate("crowd", "%d elections while %d timers were due together, and nothing else was wrong: %s", w.counts.Elections-elections, d.size, w.describe())
	}
	w.recovered("a crowd")
	d.pulling = false
}

// settle waits until no node is unfit to lead any more, which lasts for a while after a fault, and
// leaderships have been transferred to where they belong.
func (d *crowd) settle() {
	w, quiet := d.w, time.Duration(0)
	for last := w.counts.Elections; quiet < 10*time.Second; quiet += time.Second {
		if w.pass(time.Second); w.counts.Elections != last || w.unfit() {
			last, quiet = w.counts.Elections, 0
		}
		if w.now > w.healed+5*time.Minute {
			w.violate("I14", "five minutes after the repair, leaders still change: %s", w.describe())
		}
	}
}

// unfit reports whether a node must not lead because of its disk or clock.
func (w *World) unfit() bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.host != nil && n.self.Health.Why() != "" })
}

// bound is how long the calls of the crowd may take: as if one node made them all with half of its
// slots, or all were for one receiver, and each turn did little.
func (d *crowd) bound() time.Duration {
	s := &d.w.swarm
	each := s.receiverSlow + 5*time.Millisecond
	atOnce := max(1, min(s.calls, 32)/2)
	hangs := time.Duration(0)
	if d.hangs {
		hangs = time.Duration(d.size/hangsOf/atOnce) * callTimeout
	}
	if s.slots > 0 {
		atOnce = min(atOnce, s.slots)
	}
	return 10*time.Second + hangs + time.Duration(d.size/atOnce)*each + time.Duration(float64(d.size)*s.toil)*100*time.Microsecond
}

// One receiver in hangsOf hangs, and one call in refusesOf is refused.
const (
	hangsOf   = 50
	refusesOf = 10
)

// corpse is the id of many dead letters.
const corpse = "corpse"

// crowdLease is the lease of the crowd's consumers.
const crowdLease = 20 * time.Second

// gather adds the timers, some each millisecond, and has consumers wait for theirs.
func (d *crowd) gather(due time.Duration) {
	w := d.w
	c := &client{w: w, number: 6000, own: &d.chance}
	for i := range d.size {
		w.after(time.Duration(i/10)*time.Millisecond, func() { c.start(d.add(i, due)) })
	}
	for i := range min(200, d.size/10) {
		o := &operation{number: w.checker.nextOp(), topic: firstCrowd + ofLabels, id: corpse, then: func(bool) {}}
		o.write = &write{op: o.number, payload: `"corpse"`}
		w.dying(o, time.Second)
		o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
		w.complete(o)
		w.after(time.Duration(i)*10*time.Millisecond, func() { c.start(o) })
	}
	for i := range 100 {
		topic := firstCrowd + timer.TopicID(i%d.topics/crowdKinds*crowdKinds+ofPulls)
		if d.has(topic) {
			n := w.inUse(d.chance)
			w.after(d.chance.between(0, 2*time.Second), func() { d.pull(n, topic) })
		}
	}
}

// add makes the add of timer i.
func (d *crowd) add(i int, due time.Duration) *operation {
	w := d.w
	o := &operation{number: w.checker.nextOp(), topic: firstCrowd + timer.TopicID(i%d.topics)}
	if i%2 == 0 && d.main < crowdKinds {
		o.topic = firstCrowd + timer.TopicID(d.main)
	}
	o.id = fmt.Sprintf("crowd%d", i)
	if d.kind(o.topic) == ofKeys {
		o.id = fmt.Sprintf("{c%d}%d", i/d.topics/2, i)
	}
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id), dueMs: epochMs + due.Milliseconds()}
	o.write.more = func(s *timer.Spec) {
		switch d.kind(o.topic) {
		case ofReceivers:
			s.Callback.URL = fmt.Sprint("http://crowd", i)
		case ofLabels:
			s.Labels = []string{fmt.Sprintf("of=%d", i), "crowd=yes"}
		}
	}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	w.complete(o)
	d.open++
	o.then = func(bool) { d.open-- }
	return o
}

// pull pulls at a node again and again, and acknowledges what it gets.
func (d *crowd) pull(n *node, topic timer.TopicID) {
	if !d.pulling || n.router == nil {
		return
	}
	n.tasks.Go(func() {
		var ctx context.Context = n.tasks.ctx
		for d.pulling {
			list, err := n.router.Pull(ctx, topic, 10, crowdLease.Milliseconds(), 3*time.Second)
			if err != nil {
				n.tasks.Sleep(ctx, 100*time.Millisecond)
			}
			ops := make([]timer.Op, len(list))
			for i := range list {
				t := &list[i]
				d.called(t.Timer.ID)
				ops[i] = timer.Op{Shard: t.Shard, Brief: true, Command: &timer.Command{
					Kind: timer.AckLease, Topic: topic, Claim: &timer.LeaseUpdate{Handle: t.Handle, Seq: t.Timer.Seq, Fence: t.Timer.Fence}}}
			}
			n.router.DoAll(ctx, ops)
		}
	})
}

// handed records what a node leases to consumers.
func (d *crowd) handed(n *node, list []timer.PulledTimer) {
	for i := range list {
		t := &list[i]
		d.w.checker.attempts.begun(n, keyOf(t.Shard, t.Timer), t.Timer.Fence, t.Timer.ID)
	}
}

func (d *crowd) called(id string) {
	if !d.asked[id] {
		d.w.violate("I2", "a call for %s, which no client added", id)
	}
	d.reached[id] = true
	delete(d.left, id)
}

// answers is the receiver's answer to a call.
func (d *crowd) answers(c *call) (took time.Duration, status int) {
	took = d.chance.between(time.Millisecond, d.w.swarm.receiverSlow)
	id := c.delivery.Job.ID
	if d.tried[id] {
		return took, 200
	}
	d.tried[id] = true
	switch n := c.delivery.Job.Handle; {
	case d.hangs && d.kind(c.delivery.Job.Topic) == ofReceivers && n%hangsOf == 0:
		return took, 0
	case n%refusesOf == 0:
		return took, 503
	}
	return took, 200
}

// crowdChecker checks the calls of a crowd.
type crowdChecker struct{ *crowd }

func (b crowdChecker) called(o *operation) {
	if o.id != corpse {
		b.asked[o.id] = true
	}
}

func (b crowdChecker) refused(*operation) {}

func (b crowdChecker) answered(_ *World, o *operation, r timer.Result, _ *timer.Timer) {
	if r.Code == timer.Created && b.asked[o.id] && !b.reached[o.id] {
		b.left[o.id] = true
	}
}

func (b crowdChecker) mayStart(*call, *table.Table) {}
func (b crowdChecker) started(c *call)              { b.crowd.called(c.delivery.Job.ID) }
func (b crowdChecker) heard(*call)                  {}
func (b crowdChecker) checkEnd(*World)              {}
