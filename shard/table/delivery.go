package table

import (
	"cmp"
	"maps"
	"slices"

	"carillon/timer"
	"carillon/timer/encoding"
)

// delivery is the way in which a topic's timers leave a shard since the change with number turn: by
// calls to their receivers, or by consumers that pull. The meta group numbers the changes, waits
// until every shard has agreed, and only then changes the topic; see docs/adr/0030.
//
// Invariant: while a shard has a delivery of a topic, no timer of the topic is leased in the other
// way there.
type delivery struct {
	turn uint32
	pull bool
}

// deliver sets a topic's delivery unless timers are leased in the other way. It refuses a command
// of an older change.
func (t *Table) deliver(c *encoding.Command) timer.Result {
	next := delivery{turn: c.Turn, pull: c.Flags&encoding.CommandPull != 0}
	now, known := t.deliveries[c.Topic]
	if t.Closed(c.Topic) {
		return timer.Result{Code: timer.TopicClosed}
	}
	if known && (next.turn < now.turn || next.turn == now.turn && next.pull != now.pull) {
		return timer.Result{Code: timer.VersionMismatch}
	}
	if n := t.leasedOtherwise(c.Topic, next.pull); n > 0 {
		return timer.Result{Code: timer.InFlight, Removed: int(n)}
	}
	t.setDelivery(c.Topic, next)
	return timer.Result{Code: timer.OK}
}

// leasedOtherwise counts a topic's leases that contradict the given delivery.
func (t *Table) leasedOtherwise(topic timer.TopicID, pull bool) int64 {
	row, ok := t.topics.rowOf[topic]
	if !ok {
		return 0
	}
	r := &t.topics.rows[row]
	if pull {
		return r.counts[timer.Leased] - r.pulled
	}
	return r.pulled
}

// Delivers reports whether the log allows a topic's timers to be pulled, or to be called if pull is
// false. If the topic has no delivery here, the leader decides.
func (t *Table) Delivers(topic timer.TopicID, pull bool) bool {
	d, known := t.deliveries[topic]
	return !known || d.pull == pull
}

func (t *Table) setDelivery(topic timer.TopicID, d delivery) {
	t.forgetDelivery(topic)
	t.deliveries[topic] = d
	t.deliverySum += d.hash(topic)
}

func (t *Table) forgetDelivery(topic timer.TopicID) {
	if d, known := t.deliveries[topic]; known {
		t.deliverySum -= d.hash(topic)
		delete(t.deliveries, topic)
	}
}

// word encodes a delivery for a snapshot.
func (d delivery) word() uint64 {
	w := uint64(d.turn) << 1
	if d.pull {
		w++
	}
	return w
}

func (d delivery) hash(topic timer.TopicID) uint64 { return mix(uint64(topic), d.word()) }

func (t *Table) sumDeliveries() (sum uint64) {
	for topic, d := range t.deliveries {
		sum += d.hash(topic)
	}
	return sum
}

// delivered returns the topics that have a delivery, in order.
func (t *Table) delivered() []timer.TopicID {
	return slices.SortedFunc(maps.Keys(t.deliveries), cmp.Compare)
}

// Astray returns the first topic with leases that contradict its delivery, and their number. It
// returns 0 if there is none.
func (t *Table) Astray() (topic timer.TopicID, leased int64) {
	for _, id := range t.delivered() {
		if n := t.leasedOtherwise(id, t.deliveries[id].pull); n != 0 {
			return id, n
		}
	}
	return 0, 0
}
