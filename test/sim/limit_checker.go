package sim

import (
	"slices"
	"time"
)

// limitChecker checks the calls that run at once in the whole cluster against the topics' limits,
// and deliveries against their rate. Each leadership adds a burst, because a new leader's bucket is
// full. Leases from a time when a node was blind (see visibility.go) may exceed the limits.
type limitChecker struct {
	blindUntil time.Duration
	// Until then a process may not know by the last heartbeats, or by a clock that was set, whose
	// turn it is.
	lateUntil time.Duration

	calls []*call // calls whose hosts do not know the end yet
	few   []*call
	paced []time.Duration
}

// started checks a call when it is sent.
func (b *limitChecker) started(c *call) {
	w := c.node.w
	open := b.calls[:0]
	for _, o := range b.calls {
		if !o.told && o.node.life == o.life {
			open = append(open, o)
		}
	}
	b.calls = append(open, c)
	switch c.delivery.Job.Topic {
	case fewTopic:
		runs := b.few[:0]
		for _, o := range b.few {
			if o.runs() {
				runs = append(runs, o)
			}
		}
		b.few = append(runs, c)
		blind := slices.ContainsFunc(b.few, func(o *call) bool { return o.permit.asked < b.blindUntil })
		if most := w.workloads.few; len(b.few) > most && !blind {
			text := ""
			for _, o := range b.few {
				text += " " + o.delivery.Job.ID + " by node " + string(rune('0'+o.node.id%10))
			}
			w.violate("limit", "%d calls of a topic run at once, the limit is %d:%s", len(b.few), most, text)
		}
	case pacedTopic:
		b.paced = append(b.paced, w.now)
		r := w.workloads.paced
		bursts := float64(r.Burst * (1 + len(w.checker.replicas.leaders)))
		if most := bursts + r.PerSecond*(w.now-b.paced[0]).Seconds(); float64(len(b.paced)) > most+1 {
			w.violate("limit", "%d deliveries within %s, the limit is %.1f", len(b.paced), w.now-b.paced[0], most)
		}
	}
}

// handed checks a lease of a consumer.
func (b *limitChecker) handed(n *node) {
	w := n.w
	if most := w.workloads.pull.Concurrency; most > 0 {
		held, first := w.checker.leases.held(pullTopic, w.now)
		if held > most && first >= b.blindUntil {
			w.violate("limit", "consumers hold %d timers of a topic at once, the limit is %d", held, most)
		}
	}
}
