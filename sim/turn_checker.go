package sim

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// turnChecker holds what API.md says of `delivery` ("change only while nothing is leased") against a topic of which it is changed again and
// again. While the last change was answered and no other one is asked for,
//
//   - no call of the topic begins if it is pulled, by whichever node, and no consumer is given a timer if it is not;
//   - when it was answered, no call was under way and no consumer had a timer of the other delivery.
type turnChecker struct {
	featureChecker
	w     *World
	pull  bool // as it was answered last
	sure  bool // … and nothing else was asked for since
	held  map[timerKey]*turnLease
	names []timerKey // in order
	calls []*call
}

// turnLease is what a consumer surely has until then, unless it has said something.
type turnLease struct {
	id    string
	until time.Duration
}

func newTurnChecker(w *World) *turnChecker {
	return &turnChecker{featureChecker: featureChecker{ids: map[idKey]*featureID{}, keys: map[string]*call{}}, w: w, held: map[timerKey]*turnLease{}}
}

func (b *turnChecker) asked() { b.sure = false }

// settle notes that a change was answered, and that nothing else was asked for meanwhile.
func (b *turnChecker) settle(pull bool) {
	b.pull, b.sure = pull, true
	if !pull {
		for _, k := range b.names {
			if l := b.held[k]; l != nil && b.w.now < l.until-clockSlack {
				b.w.violate("delivery", "the topic is not pulled any more, and a consumer has %s for %s more", l.id, l.until-b.w.now)
			}
		}
		return
	}
	for _, c := range b.calls {
		if c.runs() {
			b.w.violate("delivery", "the topic is pulled now, and node %d calls for %s", c.node.id, c.delivery.Job.ID)
		}
	}
	b.calls = nil
}

func (b *turnChecker) mayStart(c *call, _ *table.Table) {
	if b.sure && b.pull {
		b.w.violate("delivery", "node %d calls for %s, and the topic is pulled", c.node.id, c.delivery.Job.ID)
	}
}

func (b *turnChecker) started(c *call) {
	b.mayStart(c, nil)
	b.featureChecker.started(c)
	b.calls = append(b.calls, c)
}

// handed notes what a host gives to a consumer. What comes when its lease is over, as the process stood still, is nobody's.
func (b *turnChecker) handed(n *node, asked time.Duration, list []timer.PulledTimer) {
	for i := range list {
		t := &list[i]
		k, until := timerKey{t.Shard, t.Timer.Seq}, asked+consumerLease
		b.w.counts.Taken++
		b.w.note(n, "hand out", uint64(t.Shard), t.Timer.Fence, t.Timer.ID)
		b.w.checker.attempts.begun(n, k, t.Timer.Fence, t.Timer.ID)
		known := b.ids[idKey{turnedTopic, t.Timer.ID}]
		switch {
		case known == nil || known.writes[string(t.Timer.Payload)] == nil:
			b.w.violate("I2", "node %d hands out %s of %s, which nobody wrote", n.id, t.Timer.Payload, t.Timer.ID)
		case t.Timer.Fence <= known.fence:
			b.w.violate("I3", "node %d hands out %s under fence %d after fence %d", n.id, t.Timer.ID, t.Timer.Fence, known.fence)
		case b.w.now >= until-clockSlack:
			continue
		case b.sure && !b.pull:
			b.w.violate("delivery", "node %d hands out %s under fence %d, and the topic is not pulled", n.id, t.Timer.ID, t.Timer.Fence)
		case known.running.runs():
			b.w.violate("delivery", "node %d hands out %s while node %d calls for it", n.id, t.Timer.ID, known.running.node.id)
		}
		known.fence = t.Timer.Fence
		if b.held[k] == nil {
			b.names = append(b.names, k)
		}
		b.held[k] = &turnLease{t.Timer.ID, until}
	}
}

// said notes that a consumer says something that ends its lease.
func (b *turnChecker) said(k timerKey, id string, kind timer.Kind) {
	if l := b.held[k]; l != nil {
		l.until = 0
	}
	if kind == timer.AckLease {
		b.acked(idKey{turnedTopic, id})
	}
}

func (b *turnChecker) checkEnd(w *World) { b.ends(w, noneDead(w)) }

// checkDelivery holds a replica's leases against what its log says of deliveries.
func (n *node) checkDelivery(id timer.ShardID, tbl *table.Table) {
	if topic, leased := tbl.Astray(); leased != 0 && !n.struck[id] {
		n.w.violate("delivery", "node %d, shard %d: %d timers of topic %d are leased otherwise than its log says", n.id, id, leased, topic)
	}
}

// proveTurned: no change of delivery stays half done.
func (w *World) proveTurned() {
	done := func() bool {
		m := w.metaLeader()
		return m != nil && len(m.state.Turning()) == 0
	}
	if !w.passUntil(20*time.Second, done) {
		w.violate("delivery", "a change of delivery is neither finished nor taken back: %s", w.describe())
	}
}
