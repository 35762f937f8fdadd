package sim

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// turnChecker checks API.md's rule for `delivery` ("change only while nothing is leased") on a
// topic whose delivery changes again and again. After an answered change, and until the next
// request:
//
//   - no node starts a call of the topic if it is pulled, and no consumer gets a timer if it is
//     not;
//   - at the answer, no call was running and no consumer had a timer of the other delivery.
type turnChecker struct {
	featureChecker
	w     *World
	pull  bool // the last answered delivery
	sure  bool // … and no change was requested since
	held  map[timerKey]*turnLease
	names []timerKey // keys of held, in order of their first lease
	calls []*call
}

// turnLease is a timer that a consumer surely holds until a time, unless the consumer has ended it.
type turnLease struct {
	id    string
	until time.Duration
}

func newTurnChecker(w *World) *turnChecker {
	return &turnChecker{featureChecker: newFeatureChecker(), w: w, held: map[timerKey]*turnLease{}}
}

func (b *turnChecker) asked() { b.sure = false }

// settle records an answered change, with no other request since it was sent.
func (b *turnChecker) settle(pull bool) {
	b.pull, b.sure = pull, true
	if !pull {
		for _, k := range b.names {
			if l := b.held[k]; l != nil && b.w.now < l.until-clockSlack {
				b.w.violate("delivery", "the topic is not pulled any more, but a consumer holds %s for another %s", l.id, l.until-b.w.now)
			}
		}
		return
	}
	for _, c := range b.calls {
		if c.runs() {
			b.w.violate("delivery", "the topic is pulled now, but node %d calls for %s", c.node.id, c.delivery.Job.ID)
		}
	}
	b.calls = nil
}

func (b *turnChecker) mayStart(c *call, _ *table.Table) {
	if b.sure && b.pull {
		b.w.violate("delivery", "node %d calls for %s, but the topic is pulled", c.node.id, c.delivery.Job.ID)
	}
}

func (b *turnChecker) started(c *call) {
	b.mayStart(c, nil)
	b.featureChecker.started(c)
	b.calls = append(b.calls, c)
}

// handed records the leases of a pull. A lease that has already expired, because the process was
// paused, does not count.
func (b *turnChecker) handed(n *node, asked time.Duration, list []timer.PulledTimer) {
	for i := range list {
		t := &list[i]
		k, until := keyOf(t.Shard, t.Timer), asked+consumerLease
		b.w.counts.Taken++
		b.w.note(n, "hand out", uint64(t.Shard), t.Timer.Fence, t.Timer.ID)
		b.w.checker.attempts.begun(n, k, t.Timer.Fence, t.Timer.ID)
		known := b.ids[idKey{turnedTopic, t.Timer.ID}]
		switch {
		case known == nil || known.writes[string(t.Timer.Payload)] == nil:
			b.w.violate("I2", "node %d hands out %s of %s, which no client wrote", n.id, t.Timer.Payload, t.Timer.ID)
		case t.Timer.Fence <= known.fence:
			b.w.violate("I3", "node %d hands out %s under fence %d after fence %d", n.id, t.Timer.ID, t.Timer.Fence, known.fence)
		case b.w.now >= until-clockSlack:
			continue
		case b.sure && !b.pull:
			b.w.violate("delivery", "node %d hands out %s under fence %d, but the topic is not pulled", n.id, t.Timer.ID, t.Timer.Fence)
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

// said records a request of a consumer that ends its lease.
func (b *turnChecker) said(k timerKey, id string, kind timer.Kind) {
	if l := b.held[k]; l != nil {
		l.until = 0
	}
	if kind == timer.AckLease {
		b.acked(idKey{turnedTopic, id})
	}
}

func (b *turnChecker) checkEnd(w *World) { b.ends(w, noneDead(w)) }

// checkDelivery checks a replica's leases against the deliveries in its log.
func (n *node) checkDelivery(id timer.ShardID, tbl *table.Table) {
	if topic, leased := tbl.Astray(); leased != 0 && !n.struck[id] {
		n.w.violate("delivery", "node %d, shard %d: %d timers of topic %d are leased otherwise than its log says", n.id, id, leased, topic)
	}
}

// proveTurned checks that no change of delivery stays incomplete.
func (w *World) proveTurned() {
	done := func() bool {
		m := w.metaLeader()
		return m != nil && len(m.state.Turning()) == 0
	}
	if !w.passUntil(20*time.Second, done) {
		w.violate("delivery", "a change of delivery is neither finished nor taken back: %s", w.describe())
	}
}
