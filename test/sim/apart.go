package sim

import (
	"fmt"
	"time"

	"carillon/timer"
)

const (
	floodTimers = 120 // each with its own receiver: more than all nodes call at once
	// lateLimit is the allowed lateness of a healthy topic in ms: a few commits, and a few of its
	// own calls if a receiver takes one at a time.
	lateLimit = 150
	// aparts is how many timers of a healthy topic are due at once: one node may lead all shards,
	// and the receiver take one at a time, within lateLimit.
	aparts = 5
)

// apartness is the worst lateness of a healthy topic while the receivers of another were dead.
type apartness struct {
	on    bool
	worst int64
	id    string
}

// started records the lateness of a call, by the clock of its node.
func (a *apartness) started(c *call) {
	if j := &c.delivery.Job; a.on && j.Topic == 1 && j.Attempts == 1 {
		if late := c.wallMs - j.DueMs; late > a.worst {
			a.worst, a.id = late, j.ID
		}
	}
}

// proveApart makes many timers with dead receivers due at once, and a few timers of a healthy topic
// in the shards at the same time. The healthy ones must be on time (I16). No other fault runs. If a
// shard changes its leader nevertheless, or a frame is garbled, the run proves nothing.
func (w *World) proveApart() {
	if !w.swarm.apart {
		return
	}
	w.note(nil, "flood", 0, 0, "")
	c := &client{w: w, number: len(w.clients)}
	elections, garbled := w.counts.Elections, w.counts.Garbled
	// half of the time the receivers answer first, until their network fails
	if w.chance.IntN(2) == 0 {
		w.flood(c)
		w.recovered("receivers have come to be known")
	}
	w.sick.down, w.sick.hangs = true, w.chance.IntN(3) > 0
	w.apart.on = true
	w.flood(c)
	id := timer.ShardID(w.shards())
	for i := range 6 {
		for range min(w.shards(), aparts) {
			id = 1 + id%timer.ShardID(w.shards())
			o := &operation{number: w.checker.nextOp(), topic: 1, id: w.nameIn(w.topics[0], id, fmt.Sprintf("apart%d-", i))}
			o.shard = w.place(o.topic, o.id)
			w.fill(o, timer.Add, 300*time.Millisecond)
			o.then = func(bool) {}
			c.start(o)
		}
		w.pass(400 * time.Millisecond)
	}
	w.apart.on = false
	if w.counts.Elections == elections && w.counts.Garbled == garbled && w.apart.worst > lateLimit {
		w.violate("I16", "timer %s was %d ms late while another topic's receiver was dead, the limit is %d", w.apart.id, w.apart.worst, lateLimit)
	}
	w.sick.down = false
	w.recovered("a receiver has recovered")
}

// flood adds timers that are due together, each with its own receiver.
func (w *World) flood(c *client) {
	open := floodTimers
	for i := range floodTimers {
		o := w.sickAdd(300 * time.Millisecond)
		o.cmd.Spec.Callback.URL = fmt.Sprint("http://sick", i)
		o.then = func(bool) { open-- }
		c.start(o)
	}
	w.passUntil(10*time.Second, func() bool { return open == 0 })
}

// recovered waits until all timers have ended.
func (w *World) recovered(since string) {
	if !w.passUntil(60*time.Second, func() bool { return w.left() == 0 }) {
		w.violate("I14", "a minute after %s %d timers have not ended", since, w.left())
	}
}

// nameIn is an id of a topic that a shard holds. A child may be led while its parent's leader is
// behind the division, or there is none: its names are those that it has once that is known.
func (w *World) nameIn(topic string, id timer.ShardID, prefix string) string {
	t := &timer.Topic{Name: topic}
	for i := 0; ; i++ {
		name := fmt.Sprint(prefix, i)
		if int(id) > w.swarm.shards && timer.ShardOf(t, name, w.most()) == id || w.holderOf(t, name) == id {
			return name
		}
	}
}
