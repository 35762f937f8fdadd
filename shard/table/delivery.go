package table

import (
	"maps"
	"slices"

	"carillon/shard/table/content"
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

// deliveries are those of the topics that ever changed theirs. To find or set one is O(1).
type deliveries struct {
	of  map[timer.TopicID]delivery
	sum uint64 // of their hashes
}

func newDeliveries() deliveries { return deliveries{of: map[timer.TopicID]delivery{}} }

// deliver sets a topic's delivery unless timers are leased in the other way. It refuses a command
// of an older change.
func (t *Table) deliver(c *encoding.Command) timer.Result {
	next := delivery{turn: c.Turn, pull: c.Pull}
	now, known := t.deliveries.of[c.Topic]
	if t.Closed(c.Topic) {
		return timer.Result{Code: timer.TopicClosed}
	}
	if known && (next.turn < now.turn || next.turn == now.turn && next.pull != now.pull) {
		return timer.Result{Code: timer.VersionMismatch}
	}
	if n := t.leasedOtherwise(c.Topic, next.pull); n > 0 {
		return timer.Result{Code: timer.InFlight, Removed: int(n)}
	}
	t.deliveries.set(c.Topic, next)
	return timer.Result{Code: timer.OK}
}

// Delivers reports whether the log allows a topic's timers to be pulled, or to be called if pull is
// false. If the topic has no delivery here, the leader decides.
func (d *deliveries) Delivers(topic timer.TopicID, pull bool) bool {
	now, known := d.of[topic]
	return !known || now.pull == pull
}

func (d *deliveries) set(topic timer.TopicID, next delivery) {
	d.forget(topic)
	d.of[topic] = next
	d.sum += next.hash(topic)
}

func (d *deliveries) forget(topic timer.TopicID) {
	if now, known := d.of[topic]; known {
		d.sum -= now.hash(topic)
		delete(d.of, topic)
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

func (d delivery) hash(topic timer.TopicID) uint64 { return content.Mix(uint64(topic), d.word()) }

func (d *deliveries) count() (sum uint64) {
	for topic, now := range d.of {
		sum += now.hash(topic)
	}
	return sum
}

// sorted returns the topics that have a delivery, in order.
func (d *deliveries) sorted() []timer.TopicID {
	return slices.Sorted(maps.Keys(d.of))
}

// Astray returns the first topic with leases that contradict its delivery, and their number. It
// returns 0 if there is none.
func (t *Table) Astray() (topic timer.TopicID, leased int64) {
	for _, id := range t.deliveries.sorted() {
		if n := t.leasedOtherwise(id, t.deliveries.of[id].pull); n != 0 {
			return id, n
		}
	}
	return 0, 0
}
