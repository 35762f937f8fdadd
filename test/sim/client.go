package sim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"carillon/test/sim/forged"
	"carillon/timer"
)

// clientTimeout is how long a client waits for an answer. After that the operation may have taken
// effect, or may still do so.
const clientTimeout = 12 * time.Second

// calmThink is the least pause between two operations of a client in the second phase, so that the
// receivers can keep up.
const calmThink = 100 * time.Millisecond

// client changes and reads timers, one operation at a time.
type client struct {
	w      *World
	number int
	near   uint64 // the machine that it asks until that machine fails; 0: any
	done   bool
	think  time.Duration // between two operations; 0: the run's

	own  *chance           // its own random stream; nil: the world's
	draw func() *operation // draws its next operation; nil: World.pick does
}

// luck is the random stream that the client draws from.
func (c *client) luck() chance {
	if c.own != nil {
		return *c.own
	}
	return c.w.chance
}

// crew is the clients of a workload. They draw from a stream of their own.
type crew struct {
	w       *World
	chance  chance
	on      bool          // in this run
	think   time.Duration // until each client's first operation, at most
	clients []*client
}

// employ starts clients, which draw their operations so.
func (e *crew) employ(number, of int, draw func() *operation) {
	for i := range of {
		c := &client{w: e.w, number: number + i, own: &e.chance, draw: draw}
		e.clients = append(e.clients, c)
		e.w.after(e.chance.between(0, e.think), c.act)
	}
}

// done ends the clients.
func (e *crew) done() {
	for _, c := range e.clients {
		c.done = true
	}
}

// operation is one request about one timer.
type operation struct {
	client *client
	number uint64
	shard  timer.ShardID
	topic  timer.TopicID
	id     string
	cmd    *timer.Command // nil: a read
	write  *write         // the value that it writes; nil: none
	began  time.Duration
	tries  int
	astray bool   // the first try goes to any node, perhaps to a leader that was replaced unnoticed
	to     *node  // the node of the first try
	asked  *node  // the node of the last try
	life   uint64 // … and the number of its process
	over   bool

	// For operations on a lease:
	stale bool // the timer was leased again before this operation was sent
	again bool // the same operation was sent before
	sure  bool // no other operation was sent that could end this lease

	then func(ok bool) // for a probe: gets the result
}

// claim reports whether the operation is about a consumer's lease.
func (o *operation) claim() bool { return o.cmd != nil && o.cmd.Claim != nil }

// act begins the client's next operation.
func (c *client) act() {
	if c.done {
		return
	}
	if c.draw != nil {
		c.start(c.draw())
		return
	}
	c.start(c.w.pick())
}

func (c *client) start(o *operation) {
	o.client, o.began = c, c.w.now
	c.w.checker.called(o)
	c.try(o, c.target(o))
	c.w.afterTimeout(func() {
		if !o.over {
			c.w.counts.Unknown++
			c.finish(o, false)
		}
	})
}

// target is the node to ask: the last that answered, or any.
func (c *client) target(o *operation) *node {
	if o.to != nil && o.tries == 0 {
		return o.to
	}
	if n := c.w.node(c.near); n != nil && !n.gone && (!o.astray || o.tries > 0) {
		return n
	}
	return c.w.inUse(c.luck())
}

// try sends the operation to a node. Requests and answers are delayed and lost like frames, but not
// repeated.
func (c *client) try(o *operation, n *node) {
	w := c.w
	o.tries++
	o.asked, o.life = n, n.life
	if c.luck().hit(w.swarm.loss / 3) {
		return // the request is lost: the client waits for its timeout
	}
	life, answered := n.life, false
	w.after(c.travel(), func() {
		if !n.up {
			c.refused(o, n)
			return
		}
		n.doFrom(1<<40+uint64(c.number), func() {
			if n.router == nil || n.closed || life != n.life {
				c.refused(o, n)
				return
			}
			n.tasks.Go(func() {
				r, t, err := n.handle(o)
				if answered {
					w.violate("answer", "operation %d is answered twice", o.number)
				}
				answered = true
				if n.silent() || c.luck().hit(w.swarm.loss/3) {
					return
				}
				w.after(c.travel(), func() { c.answer(o, n, r, t, err) })
			})
		})
	})
}

func (c *client) travel() time.Duration {
	return c.luck().between(c.w.swarm.delay/2, 2*c.w.swarm.delay)
}

// refused handles a refused connection: nothing has happened.
func (c *client) refused(o *operation, n *node) {
	c.leave(n)
	c.again(o, c.luck().between(10*time.Millisecond, 100*time.Millisecond))
}

// again retries the operation elsewhere, unless half of its timeout has passed.
func (c *client) again(o *operation, d time.Duration) {
	c.w.after(d, func() {
		if o.over {
			return
		}
		if c.w.now-o.began > clientTimeout/2 {
			c.w.counts.Refused++
			c.w.checker.refused(o)
			c.finish(o, false)
			return
		}
		c.try(o, c.target(o))
	})
}

// answer handles a node's answer.
func (c *client) answer(o *operation, n *node, r timer.Result, t *timer.Timer, err error) {
	if o.over {
		return
	}
	switch {
	case err == nil:
		c.near = n.id
		c.w.counts.Acked++
		if o.cmd == nil {
			c.w.counts.Reads++
		}
		c.w.note(n, "answer", o.number, uint64(r.Code), o.id)
		c.w.checker.answered(o, r, t)
		c.finish(o, true)
	case errors.Is(err, timer.ErrUnknown), errors.Is(err, timer.ErrStopped):
		c.leave(n)
		c.w.counts.Unknown++
		c.finish(o, false)
	default: // the operation had no effect
		c.leave(n)
		c.again(o, c.luck().between(20*time.Millisecond, 200*time.Millisecond))
	}
}

// leave makes the client ask another machine next.
func (c *client) leave(n *node) {
	if c.near == n.id {
		c.near = 0
	}
}

// finish schedules the next operation. An operation with an unknown outcome stays open in the
// history.
func (c *client) finish(o *operation, ok bool) {
	o.over = true
	if o.then != nil {
		o.then(ok)
		return
	}
	think := cmp.Or(c.think, c.w.swarm.think)
	if c.w.calm {
		think = max(think, calmThink)
	}
	c.w.after(c.luck().between(think/4, 2*think), c.act)
}

// pick draws an operation.
func (w *World) pick() *operation {
	b, r := w.checker, w.chance
	switch n := r.IntN(10); {
	case n < 3:
		return w.pickFeature()
	case n == 3:
		return w.pickSerial()
	}
	topic := r.IntN(plainTopics)
	o := &operation{number: b.nextOp(), topic: timer.TopicID(topic + 1)}
	// a timer that was just changed is read through another node
	if b.changed.id != "" && r.IntN(4) == 0 {
		o.id, o.topic, o.astray = b.changed.id, b.changed.topic, true
		o.shard = timer.ShardOf(&timer.Topic{Name: w.topics[o.topic-1]}, o.id, w.swarm.shards)
		return o
	}
	o.astray = r.IntN(5) == 0
	kind := timer.Add
	if len(b.recent) > 0 {
		kind = [...]timer.Kind{timer.Add, timer.Add, timer.Add, timer.Add, timer.Modify, timer.Modify, timer.Put, timer.Cancel, timer.Cancel, 0, 0, 0}[r.IntN(12)]
	}
	if kind == timer.Add && (len(b.recent) == 0 || r.IntN(12) > 0) {
		o.id = fmt.Sprintf("t%d", o.number)
		b.remember(o.id, o.topic)
	} else {
		// newer ids are more likely
		known := b.recent[len(b.recent)-1-r.IntN(1+r.IntN(len(b.recent)))]
		o.id, o.topic = known.id, known.topic
	}
	o.shard = timer.ShardOf(&timer.Topic{Name: w.topics[o.topic-1]}, o.id, w.swarm.shards)
	due := r.between(-time.Second, 15*time.Second)
	if r.IntN(2) == 0 { // due so soon that changes overlap with the call
		due = r.between(-50*time.Millisecond, 600*time.Millisecond)
	}
	w.fill(o, kind, due)
	w.forge(o)
	return o
}

// forge adds what a reader of disks looks for to every second payload.
func (w *World) forge(o *operation) {
	if o.write == nil || o.number%2 != 0 {
		return
	}
	spec := o.cmd.Spec
	if spec == nil {
		spec = &o.cmd.Patch.Spec
	}
	o.write.payload += string(forged.Payload(o.number))
	spec.Payload, spec.PayloadKind = []byte(o.write.payload), timer.BinaryPayload
}

// fill adds the command to an operation.
func (w *World) fill(o *operation, kind timer.Kind, due time.Duration) {
	if kind == 0 {
		return
	}
	o.cmd = &timer.Command{Kind: kind, Topic: o.topic, ID: o.id}
	if kind == timer.Cancel {
		return
	}
	o.write = &write{op: o.number, dueMs: epochMs + (w.now + due).Milliseconds(), payload: fmt.Sprintf(`"%s/%d%s"`, o.id, o.number, w.padding(o.number))}
	spec := timer.Spec{DueMs: o.write.dueMs, Payload: []byte(o.write.payload), PayloadKind: timer.JSONPayload}
	if kind == timer.Modify {
		o.cmd.Patch = &timer.Patch{Spec: spec, Due: true, Payload: true}
		return
	}
	spec.Trace = traceOf(o.number)
	o.write.trace = spec.Trace
	o.cmd.Spec, o.cmd.Content, o.cmd.Tag = &spec, o.number, uint32(o.number)
	o.write.whole = true
}

// traceOf is the trace context of an operation's request; one request in three has one.
func traceOf(number uint64) *timer.Trace {
	if number%3 != 0 {
		return nil
	}
	t := &timer.Trace{Flags: 1, State: fmt.Sprint("op=", number)}
	binary.BigEndian.PutUint64(t.ID[8:], number)
	binary.BigEndian.PutUint64(t.Span[:], number)
	return t
}
