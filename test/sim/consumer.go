package sim

import (
	"context"
	"time"

	"carillon/timer"
)

// consumer pulls timers from any node and acks, nacks or extends them, as clients of the API do. It
// forgets some of them.
type consumer struct {
	*client
	g     *topicWorkloads
	pulls int
}

func newConsumer(g *topicWorkloads, number int) *consumer {
	return &consumer{client: &client{w: g.w, number: number, own: &g.chance}, g: g}
}

// act pulls and perhaps waits at the node until timers are ready.
func (c *consumer) act() {
	w, r := c.w, c.g.chance
	most, lasts, wait := 1+r.IntN(6), consumerLease, time.Duration(0)
	if r.IntN(4) == 0 {
		lasts = r.between(consumerLease/2, 3*consumerLease)
	}
	if r.IntN(2) == 0 || c.g.ended {
		wait = r.between(0, 3*time.Second)
	}
	hangs := wait > 0 && !c.g.ended && r.IntN(3) == 0
	lasts = leaseOf(lasts, hangs)
	c.pulls++
	pull := c.pulls
	next := func(after time.Duration) {
		w.after(after, func() {
			if c.pulls == pull { // otherwise the consumer has already gone on
				c.act()
			}
		})
	}
	next(wait + pullPatience)
	n := c.target(&operation{astray: r.IntN(10) == 0})
	if r.hit(w.swarm.loss / 3) {
		return
	}
	refused := func() {
		c.leave(n)
		next(100 * time.Millisecond)
	}
	life := n.life
	w.after(c.travel(), func() {
		if !n.up {
			refused()
			return
		}
		n.doFrom(1<<40+uint64(c.number), func() {
			if n.router == nil || n.closed || life != n.life {
				refused()
				return
			}
			n.tasks.Go(func() {
				t, err := n.topic(n.tasks.ctx, w.topics[pullTopic-1])
				var list []timer.PulledTimer
				var ctx context.Context = n.tasks.ctx
				var h *hangUp
				if hangs {
					ctx, h = n.hangsUp(c.g.chance.between(0, wait))
				}
				if err == nil {
					list, err = n.router.Pull(ctx, t.ID, most, lasts.Milliseconds(), wait)
				}
				if h.handed(list) {
					return
				}
				if c.g.chance.hit(w.swarm.loss / 3) {
					return
				}
				w.after(c.travel(), func() {
					c.got(n, lasts, list, err)
					next(r.between(c.g.think/4, 2*c.g.think))
				})
			})
		})
	})
}

// pullPatience is how long a consumer waits for an answer beyond the wait of its pull.
const pullPatience = 2 * time.Second

// got handles the result of a pull.
func (c *consumer) got(n *node, lasts time.Duration, list []timer.PulledTimer, err error) {
	if c.near = n.id; err != nil {
		c.leave(n)
	}
	for i := range list {
		t := &list[i]
		c.plan(receipt{pullTopic, t.Timer.ID, keyOf(t.Shard, t.Timer).shard, t.Handle, t.Timer.Seq, t.Timer.Fence}, lasts)
	}
}

// receipt identifies a lease.
type receipt struct {
	topic  timer.TopicID
	id     string
	shard  timer.ShardID
	handle timer.Handle
	seq    uint64
	fence  uint64
}

// plan draws the consumer's next steps with a leased timer.
func (c *consumer) plan(r receipt, lasts time.Duration) {
	w, d := c.w, c.g.chance
	soon := d.between(0, lasts*3/4)
	say := func(after time.Duration, kind timer.Kind, fill func(*timer.LeaseUpdate)) {
		w.after(after, func() { c.say(r, kind, fill) })
	}
	switch n := d.IntN(20); {
	case c.g.ended:
		say(0, timer.AckLease, nil)
	case n < 8:
		say(soon, timer.AckLease, nil)
	case n < 10:
		say(soon, timer.AckLease, nil)
		say(soon+d.between(0, 4*lasts), timer.AckLease, nil)
	case n < 13:
		delay := d.Int64N(1500)
		say(soon, timer.NackLease, func(k *timer.LeaseUpdate) {
			k.HasDelay, k.DelayMs, k.Reason = delay > 500, delay, "not now"
		})
	case n < 17:
		longer := d.between(lasts, 3*lasts)
		say(soon, timer.ExtendLease, func(k *timer.LeaseUpdate) { k.LeaseMs = longer.Milliseconds() })
		say(soon+d.between(0, longer*3/4), timer.AckLease, nil)
	case n < 19: // perhaps after the lease has ended
		say(lasts+d.between(0, 2*lasts), [...]timer.Kind{timer.AckLease, timer.NackLease, timer.ExtendLease}[d.IntN(3)], nil)
	}
}

// accepted makes a receiver that answered 202 report later, or never.
func (g *topicWorkloads) accepted(c *call) {
	j := &c.delivery
	g.w.checker.leases.lease(keyOfCall(j)).topic = reportTopic
	g.consumers[0].plan(receipt{reportTopic, j.Job.ID, keyOfCall(j).shard, j.Job.Handle, j.Job.Seq, j.Job.Fence}, consumerLease)
}

// say sends an ack, nack or extension of a lease.
func (c *consumer) say(r receipt, kind timer.Kind, fill func(*timer.LeaseUpdate)) {
	o := &operation{number: c.w.checker.nextOp(), topic: r.topic, id: r.id, shard: r.shard, then: func(bool) {}}
	o.cmd = &timer.Command{Kind: kind, Topic: r.topic, Claim: &timer.LeaseUpdate{Handle: r.handle, Seq: r.seq, Fence: r.fence}}
	if fill != nil {
		fill(o.cmd.Claim)
	}
	o.sure = !c.w.checker.leases.lease(timerKey{r.shard, r.seq}).ended
	c.start(o)
}
