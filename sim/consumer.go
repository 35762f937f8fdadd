package sim

import (
	"errors"
	"time"

	"carillon/shard"
)

// consumer pulls timers and says what became of them, as clients of the API do, one shard at a time. Some that it gets it forgets.
type consumer struct {
	*client
	g *guests
}

func newConsumer(g *guests, number int) *consumer {
	return &consumer{&client{w: g.w, number: number, hint: map[shard.ID]uint64{}, own: &g.chance}, g}
}

// act takes from some shard.
func (c *consumer) act() {
	w, r := c.w, c.g.chance
	id := shard.ID(1 + r.IntN(w.swarm.shards))
	think := c.g.think
	if c.g.ended {
		think = 20 * time.Millisecond
	}
	w.after(r.between(think/4, 2*think), c.act)
	n := c.target(&operation{shard: id, astray: r.IntN(10) == 0, tries: r.IntN(4)})
	if r.hit(w.swarm.loss / 3) {
		return
	}
	most, lasts := 1+r.IntN(6), consumerLease
	if r.IntN(4) == 0 {
		lasts = r.between(consumerLease/2, 3*consumerLease)
	}
	life := n.life
	w.after(c.travel(), func() {
		if !n.up {
			delete(c.hint, id)
			return
		}
		n.doFrom(1<<40+uint64(c.number), func() {
			if n.host == nil || life != n.life {
				return
			}
			asked := w.now
			n.host.SubmitTake(id, pullTopic, most, lasts.Milliseconds(), func(list []shard.Taken, err error) {
				for i := range list {
					w.book.leases.lease(timerKey{id, list[i].Timer.Seq}).asked = asked
				}
				c.took(n, id, lasts, list, err)
			})
			n.wake(0)
		})
	})
}

// took is on the node that answers: from here on the consumer has what it was given, though the answer may be lost.
func (c *consumer) took(n *node, id shard.ID, lasts time.Duration, list []shard.Taken, err error) {
	w, b := c.w, c.w.book
	for i := range list {
		t := &list[i]
		k := timerKey{id, t.Timer.Seq}
		w.counts.Taken++
		w.note(n, "hand out", uint64(id), t.Timer.Fence, t.Timer.ID)
		b.features.fetched(n, t)
		b.leases.lease(k).topic = pullTopic
		b.leases.handed(n, k, t.Timer.Fence, t.Timer.ID, lasts)
		b.order.handed(n, t)
		b.limits.handed(n)
	}
	if c.g.chance.hit(w.swarm.loss / 3) {
		return
	}
	w.after(c.travel(), func() {
		var elsewhere shard.NotLeaderError
		switch {
		case errors.As(err, &elsewhere) && elsewhere.Leader != 0:
			c.hint[id] = elsewhere.Leader
		case err != nil:
			delete(c.hint, id)
		default:
			c.hint[id] = n.id
		}
		for i := range list {
			t := &list[i]
			c.plan(receipt{pullTopic, t.Timer.ID, id, t.Handle, t.Timer.Seq, t.Timer.Fence}, lasts)
		}
	})
}

// receipt names a lease.
type receipt struct {
	topic  shard.TopicID
	id     string
	shard  shard.ID
	handle shard.Handle
	seq    uint64
	fence  uint64
}

// plan draws what the consumer says of a timer that it has.
func (c *consumer) plan(r receipt, lasts time.Duration) {
	w, d := c.w, c.g.chance
	soon := d.between(0, lasts*3/4)
	say := func(after time.Duration, kind shard.Kind, fill func(*shard.Claim)) {
		w.after(after, func() { c.say(r, kind, fill) })
	}
	switch n := d.IntN(20); {
	case c.g.ended:
		say(0, shard.AckLease, nil)
	case n < 8:
		say(soon, shard.AckLease, nil)
	case n < 10:
		say(soon, shard.AckLease, nil)
		say(soon+d.between(0, 4*lasts), shard.AckLease, nil)
	case n < 13:
		delay := d.Int64N(1500)
		say(soon, shard.NackLease, func(k *shard.Claim) {
			k.HasDelay, k.DelayMs, k.Reason = delay > 500, delay, "not now"
		})
	case n < 17:
		longer := d.between(lasts, 3*lasts)
		say(soon, shard.ExtendLease, func(k *shard.Claim) { k.LeaseMs = longer.Milliseconds() })
		say(soon+d.between(0, longer*3/4), shard.AckLease, nil)
	case n < 19: // too late, perhaps
		say(lasts+d.between(0, 2*lasts), [...]shard.Kind{shard.AckLease, shard.NackLease, shard.ExtendLease}[d.IntN(3)], nil)
	}
}

// accepted has a receiver that answered 202 report later, or forget to.
func (g *guests) accepted(c *call) {
	j := &c.delivery
	g.w.book.leases.lease(timerKey{j.Shard, j.Job.Seq}).topic = reportTopic
	g.consumers[0].plan(receipt{reportTopic, j.Job.ID, j.Shard, j.Job.Handle, j.Job.Seq, j.Job.Fence}, consumerLease)
}

// say says something of a lease.
func (c *consumer) say(r receipt, kind shard.Kind, fill func(*shard.Claim)) {
	o := &operation{number: c.w.book.nextOp(), topic: r.topic, id: r.id, shard: r.shard, then: func(bool) {}}
	o.cmd = &shard.Command{Kind: kind, Topic: r.topic, Claim: &shard.Claim{Handle: r.handle, Seq: r.seq, Fence: r.fence}}
	if fill != nil {
		fill(o.cmd.Claim)
	}
	o.sure = !c.w.book.leases.lease(timerKey{r.shard, r.seq}).ended
	c.start(o)
}
