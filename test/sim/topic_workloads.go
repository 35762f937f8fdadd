package sim

import (
	"fmt"
	"time"

	"carillon/timer"
)

// topicWorkloads are the clients of topics with limits, order or pull, and the faults of these
// topics. They draw from a stream of their own, so that a change here does not change the other
// faults of a run.
type topicWorkloads struct {
	crew
	few    int // call limit of fewTopic
	paced  timer.Rate
	pull   timer.Policy // limits and order of pullTopic
	drains float64      // planned stops of a process, per second
	stops  float64      // pauses of a topic, per second

	consumers []*consumer
	ended     bool
	recent    []recentID
	draining  []drainee
}

// consumerLease is the usual lease of a consumer.
const consumerLease = 1500 * time.Millisecond

// drawWorkloads draws a run's workloads.
func (w *World) drawWorkloads() *topicWorkloads {
	c := newChance(w.cfg.Seed, 3)
	g := &topicWorkloads{crew: crew{w: w, chance: c, think: c.between(40*time.Millisecond, 400*time.Millisecond)}}
	g.few = 1 + c.IntN(5)
	g.paced = timer.Rate{PerSecond: float64(2 + c.IntN(20)), Burst: 1 + c.IntN(4)}
	switch c.IntN(4) {
	case 0:
		g.pull.Serial = true
	case 1:
		g.pull.Concurrency = 1 + c.IntN(5)
	}
	g.drains, g.stops = c.seldom(0.1), c.seldom(0.2)
	if w.swarm.limits {
		g.few, g.pull = 1+c.IntN(4), timer.Policy{Concurrency: 1 + c.IntN(5)}
		g.think, g.stops = c.between(10*time.Millisecond, 60*time.Millisecond), 0
	}
	return g
}

// shape sets a topic's policy.
func (g *topicWorkloads) shape(id timer.TopicID, p *timer.Policy) {
	p.LeaseMs = consumerLease.Milliseconds()
	switch id {
	case serialTopic:
		p.Serial = true
	case pullTopic:
		p.Pull, p.Serial, p.Concurrency = true, g.pull.Serial, g.pull.Concurrency
	case reportTopic:
		p.Report = true
	case lineTopic:
		p.Serial, p.Key = true, lineKey
	case fewTopic:
		p.Concurrency = g.few
	case pacedTopic:
		p.Rate = g.paced
	}
}

// beginWorkloads starts the clients.
func (w *World) beginWorkloads() {
	g := w.workloads
	g.employ(1000, 2, g.pick)
	for i := range 2 {
		c := newConsumer(g, 2000+i)
		g.consumers = append(g.consumers, c)
		w.after(g.chance.between(0, g.think), c.act)
	}
	w.checker.order.pull = g.pull.Serial
	w.after(0, g.trouble)
}

// done ends the clients; consumers go on until no timer is left.
func (g *topicWorkloads) done() {
	g.ended = true
	g.endDrains()
	g.crew.done()
}

// pick draws an operation, usually an add; some adds are cancelled.
func (g *topicWorkloads) pick() *operation {
	w, r := g.w, g.chance
	o := &operation{number: w.checker.nextOp(), astray: r.IntN(5) == 0}
	if len(g.recent) > 0 && r.IntN(8) == 0 {
		known := g.recent[r.IntN(len(g.recent))]
		o.topic, o.id = known.topic, known.id
		o.cmd = &timer.Command{Kind: timer.Cancel}
		w.complete(o)
		return o
	}
	o.topic = [...]timer.TopicID{pullTopic, pullTopic, pullTopic, reportTopic, lineTopic, fewTopic, fewTopic, pacedTopic, featureTopic, serialTopic}[r.IntN(10)]
	o.write = &write{op: o.number}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	o.write.dueMs = epochMs + (w.now + r.between(-50*time.Millisecond, 2*time.Second)).Milliseconds()
	switch o.id = fmt.Sprintf("g%d", o.number); o.topic {
	case featureTopic:
		o.id = fmt.Sprintf("c%d", o.number)
		t := drawTimetable(r)
		o.write.timetable, o.write.dueMs, o.write.count, o.write.catchUp = t, t.dues[0], int64(len(t.dues)), timer.CatchUpAll
	case lineTopic:
		o.id = fmt.Sprintf("{%s}%d", lineKey, o.number)
	case serialTopic, pullTopic:
		o.id = fmt.Sprintf("{k%d}%d", r.IntN(serialKeys), o.number)
	}
	if o.topic != featureTopic {
		g.recent = append(g.recent, recentID{o.id, o.topic})
		g.recent = g.recent[max(0, len(g.recent)-12):]
	}
	o.write.payload = fmt.Sprintf(`"%s/%d"`, o.id, o.number)
	w.complete(o)
	return o
}
