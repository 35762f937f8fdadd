package sim

import "time"

// trouble draws the faults of workload topics, twice a second: paused topics and planned stops.
func (g *topicWorkloads) trouble() {
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
		if n := w.nodes[g.chance.IntN(len(w.nodes))]; n.router != nil && !n.paused && !n.gone && !n.closed {
			n.drain()
		}
	}
}

// stopTopic pauses or resumes one of the workloads' topics.
func (g *topicWorkloads) stopTopic() {
	name := g.w.topics[settledTopics+g.chance.IntN(len(g.w.topics)-settledTopics)]
	if name == probeName {
		return
	}
	g.w.operator(g.w.inUse(g.chance), pauseTopic(name, g.chance.IntN(2) == 0), func(error) {})
}

// How long a stopping process tries to transfer its leaderships, and then waits for its calls.
const (
	handOverTime = 5 * time.Second
	drainTime    = 30 * time.Second
)

// drain stops a process as SIGTERM does. It transfers its leaderships, takes no more requests,
// leases nothing more, and ends when all its calls have ended and the new leaders know their
// outcomes.
func (n *node) drain() {
	w, life := n.w, n.life
	w.note(n, "drain", 0, 0, "")
	w.workloads.draining = append(w.workloads.draining, drainee{n, life})
	n.tasks.Go(func() {
		ctx, cancel := n.tasks.WithTimeout(n.tasks.ctx, handOverTime)
		n.member.HandOver(ctx)
		cancel()
		n.closed = true
		n.tasks.schedule(0, func() { n.awaitCalls(w.now) })
	})
}

// awaitCalls ends a process when its calls have ended.
func (n *node) awaitCalls(began time.Duration) {
	w := n.w
	if n.host.StepDrain() > 0 && w.now-began <= drainTime {
		n.wake(0)
		n.tasks.schedule(20*time.Millisecond, func() { n.awaitCalls(began) })
		return
	}
	if n.host.StepDrain() == 0 {
		for _, c := range w.checker.limits.calls {
			if c.node == n && c.life == n.life && !c.told {
				w.violate("drain", "node %d is about to stop while its call for %s runs", n.id, c.delivery.Job.ID)
			}
		}
		w.counts.Drains++
	}
	n.stop(false)
}

// drainee is a process that is stopping as planned.
type drainee struct {
	node *node
	life uint64
}

// endDrains ends all stopping processes now.
func (g *topicWorkloads) endDrains() {
	for _, d := range g.draining {
		if d.node.life == d.life {
			d.node.stop(false)
		}
	}
}
