package sim

import (
	"time"

	"carillon/ring"
)

// trouble is what goes wrong for guests alone, twice a second: topics of theirs stop, and processes are stopped as planned.
func (g *guests) trouble() {
	const each = 500 * time.Millisecond
	w := g.w
	if w.calm {
		return
	}
	w.after(each, g.trouble)
	if g.chance.hit(g.stops * each.Seconds()) {
		g.stopTopic()
	}
	if g.chance.hit(g.drains * each.Seconds()) {
		if n := w.nodes[g.chance.IntN(len(w.nodes))]; n.host != nil && !n.paused && !n.gone {
			n.drain()
		}
	}
}

// stopTopic stops one of the guests' topics, or lets it go on.
func (g *guests) stopTopic() {
	leader := g.w.metaLeader()
	if leader == nil {
		return
	}
	c := ring.Command{Verb: ring.Pause, Name: g.w.topics[settledTopics+g.chance.IntN(len(g.w.topics)-settledTopics)]}
	if g.chance.IntN(2) == 0 {
		c.Verb = ring.Resume
	}
	leader.host.SubmitMeta(c.Encode(), func(any, error) {})
	leader.wake(0)
}

// drainTime is how long a process that stops as planned waits for its calls.
const drainTime = 30 * time.Second

// drain stops a process as SIGTERM does: it gives its leaderships away, leases nothing more, and ends when all its calls have ended and
// whoever leads now has heard how.
func (n *node) drain() {
	w, life := n.w, n.life
	w.note(n, "drain", 0, 0, "")
	w.guests.draining = append(w.guests.draining, drainee{n, life})
	n.aside = true
	n.host.StepAside(true)
	began := w.now
	var look func()
	look = func() {
		switch {
		case n.life != life:
		case n.paused:
			w.after(20*time.Millisecond, look)
		case n.host.StepDrain() == 0:
			for _, c := range w.book.limits.calls {
				if c.node == n && c.life == life && !c.told {
					w.violate("drain", "node %d is about to stop while its call for %s is under way", n.id, c.delivery.Job.ID)
				}
			}
			w.counts.Drains++
			n.endDrain()
		case w.now-began > drainTime:
			n.endDrain()
		default:
			n.wake(0)
			w.after(20*time.Millisecond, look)
		}
	}
	w.after(w.guests.chance.between(0, 2*time.Second), look)
}

// endDrain ends the process.
func (n *node) endDrain() {
	n.aside = false
	n.stop(false)
}

// drainee is a process that is stopped as planned.
type drainee struct {
	node *node
	life uint64
}

// endDrains has all that are being stopped end now.
func (g *guests) endDrains() {
	for _, d := range g.draining {
		if d.node.life == d.life {
			d.node.endDrain()
		}
	}
}
