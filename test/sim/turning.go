package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/timer"
)

const turnedName = "turned"

// turnedTopic exists in runs in which clients change its delivery again and again, while its timers
// are called and leased.
var turnedTopic = sickTopic + 1

// turning changes that topic's delivery, and runs its clients and consumers. It draws from a stream
// of its own and is on in a quarter of the runs.
type turning struct {
	crew
	pull  bool          // the first delivery
	each  time.Duration // between two changes
	ended bool
	open  []*turnRequest
}

// turnRequest is a requested change.
type turnRequest struct {
	n     *node
	life  uint64
	pull  bool
	alone bool // no other request overlaps it
}

func (w *World) drawTurning() *turning {
	c := newChance(w.cfg.Seed, 31)
	t := &turning{crew: crew{w: w, chance: c, on: c.IntN(4) == 0}, pull: c.IntN(2) == 0}
	t.think, t.each = c.between(20*time.Millisecond, 400*time.Millisecond), c.between(50*time.Millisecond, time.Second)
	return t
}

// policy is the topic's policy with one delivery or the other.
func (t *turning) policy(pull bool) *timer.Policy {
	p := timer.DefaultPolicy()
	p.Callback.URL = "http://" + turnedName
	p.Callback.TimeoutMs = callTimeout.Milliseconds()
	p.MinBackoffMs, p.MaxBackoffMs, p.MaxAttempts = 200, 3000, 1000
	p.LeaseMs, p.Pull = consumerLease.Milliseconds(), pull
	return &p
}

func (t *turning) begin() {
	if !t.on {
		return
	}
	t.w.checker.turned.settle(t.pull)
	for i := range 2 {
		t.employ(5000+i, 1, t.pick)
		t.w.after(t.chance.between(0, t.think), t.consume)
	}
	t.w.after(t.chance.between(0, t.each), t.act)
}

func (t *turning) done() {
	t.ended = true
	t.crew.done()
}

// pick draws an add.
func (t *turning) pick() *operation {
	o := &operation{number: t.w.checker.nextOp(), topic: turnedTopic, astray: t.chance.IntN(8) == 0}
	o.id = fmt.Sprintf("t%d", o.number)
	due := t.w.now + t.chance.between(-50*time.Millisecond, 1500*time.Millisecond)
	o.write = &write{op: o.number, dueMs: epochMs + due.Milliseconds(), payload: fmt.Sprintf(`"%s"`, o.id)}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	t.w.complete(o)
	return o
}

// act pauses or resumes the topic, or changes its delivery. Usually one request is open at a time,
// so that its answer says how the topic delivers from then on.
func (t *turning) act() {
	if t.ended {
		return
	}
	t.w.after(t.chance.between(t.each/2, 2*t.each), t.act)
	n := t.w.inUse(t.chance)
	if d := t.chance.IntN(6); d < 2 {
		t.w.operator(n, pauseTopic(turnedName, d == 0), func(error) {})
		return
	}
	t.forget()
	if len(t.open) == 0 || t.chance.IntN(8) == 0 {
		t.ask(n, t.chance.IntN(3) == 0 == t.w.checker.turned.pull)
	}
}

// forget drops the requests of processes that have ended.
func (t *turning) forget() {
	kept := t.open[:0]
	for _, r := range t.open {
		if r.n.life == r.life && r.n.up {
			kept = append(kept, r)
		}
	}
	t.open = kept
}

func (t *turning) ask(n *node, pull bool) {
	r := &turnRequest{n: n, life: n.life, pull: pull, alone: len(t.open) == 0}
	for _, o := range t.open {
		o.alone = false
	}
	t.open = append(t.open, r)
	t.w.checker.turned.asked()
	t.w.operator(n, putTopic(turnedName, t.policy(pull)), func(err error) {
		t.w.note(n, "turned", b2u(pull), b2u(err == nil), "")
		if n.life != r.life {
			return // the process has ended, and with it its request
		}
		for i, o := range t.open {
			if o == r {
				t.open = append(t.open[:i], t.open[i+1:]...)
				break
			}
		}
		_, leased := errors.AsType[timer.LeasedError](err)
		t.w.counts.TurnsRefused += int(b2u(leased))
		if err == nil {
			t.w.counts.Turns++
			if r.alone {
				t.w.checker.turned.settle(pull)
			}
		}
	})
}

// consume pulls at a node as the API does, and later acks or nacks the timers, or does nothing.
func (t *turning) consume() {
	r := t.chance
	think, most, wait := t.think, 1+r.IntN(4), time.Duration(0)
	if t.ended { // the backlog of a paused or leaderless topic must be finished in time
		think, most = 50*time.Millisecond, 64
	}
	t.w.after(r.between(think/2, 2*think), t.consume)
	if r.IntN(2) == 0 {
		wait = r.between(0, time.Second)
	}
	n := t.w.inUse(r)
	var list []timer.PulledTimer
	t.w.operator(n, func(ctx context.Context, n *node) error {
		topic, err := n.topic(ctx, turnedName)
		if err == nil && topic.Policy.Pull {
			list, err = n.router.Pull(ctx, topic.ID, most, 0, wait)
		}
		return err
	}, func(error) {
		for i := range list {
			t.say(&list[i])
		}
	})
}

// say draws a consumer's operation on a timer, and its time.
func (t *turning) say(v *timer.PulledTimer) {
	claim := timer.LeaseUpdate{Handle: v.Handle, Seq: v.Timer.Seq, Fence: v.Timer.Fence}
	kind, after := timer.AckLease, t.chance.between(0, consumerLease*5/4)
	switch d := t.chance.IntN(10); {
	case d == 0 && !t.ended:
		return
	case d < 3 && !t.ended:
		kind = timer.NackLease
	}
	id, key := v.Timer.ID, keyOf(v.Shard, v.Timer)
	t.w.after(after, func() {
		t.w.checker.turned.said(key, id, kind)
		t.w.operator(t.w.inUse(t.chance), func(ctx context.Context, n *node) error {
			c := claim
			ops := []timer.Op{n.claimOf(turnedTopic, id, &timer.Command{Kind: kind, Topic: turnedTopic, Claim: &c})}
			n.router.DoAll(ctx, ops)
			return ops[0].Err
		}, func(error) {})
	})
}
