package table

import (
	"cmp"
	"maps"
	"slices"

	"carillon/shard/table/content"
	"carillon/timer"
	"carillon/timer/encoding"
)

// CanaryTopic is a topic for the probe timers of each shard's leader. Clients cannot reach it, the
// history does not record it, and forecasts do not count it.
const CanaryTopic timer.TopicID = 1<<32 - 1

// CanaryID is the id of the probe timer.
const CanaryID = "canary"

const tombstoneKeepMs = 60 * 60_000 // how long a closed topic refuses adds

// topics counts timers by topic and state, in O(1) for each change. Row numbers are local to this
// replica.
type topics struct {
	rows   []topicRow
	vacant []uint32
	rowOf  map[timer.TopicID]uint32
	totals [timer.Cancelled + 1]int64
}

type topicRow struct {
	id     timer.TopicID
	timers int64 // slots that refer to this row
	pulled int64 // leased timers that a consumer pulled
	noURL  int64 // scheduled or leased timers without a callback URL of their own
	counts [timer.Cancelled + 1]int64
	// see Table.WheelWaits
	wheelWaits WheelWaits
}

func newTopics() topics { return topics{rowOf: map[timer.TopicID]uint32{}} }

// retain returns the row of a topic and adds a timer to it.
func (t *topics) retain(id timer.TopicID) uint32 {
	row, ok := t.rowOf[id]
	if !ok {
		if n := len(t.vacant); n > 0 {
			row = t.vacant[n-1]
			t.vacant = t.vacant[:n-1]
		} else {
			row = uint32(len(t.rows))
			t.rows = append(t.rows, topicRow{})
		}
		t.rows[row] = topicRow{id: id}
		t.rowOf[id] = row
	}
	t.rows[row].timers++
	return row
}

func (t *topics) release(row uint32) {
	r := &t.rows[row]
	if r.timers--; r.timers == 0 {
		delete(t.rowOf, r.id)
		*r = topicRow{}
		t.vacant = append(t.vacant, row)
	}
}

func (t *topics) count(row uint32, state timer.State, by int64) {
	t.rows[row].counts[state] += by
	t.totals[state] += by
}

// Counts returns the counts of one topic. Ready and OldestOverdueMs are known only to a leader and
// stay 0.
func (t *topics) Counts(topic timer.TopicID) timer.Counts {
	row, ok := t.rowOf[topic]
	if !ok {
		return timer.Counts{}
	}
	c := countsOf(&t.rows[row].counts)
	c.NoURL = t.rows[row].noURL
	return c
}

func (t *topics) Totals() timer.Counts { return countsOf(&t.totals) }

func countsOf(n *[timer.Cancelled + 1]int64) timer.Counts {
	return timer.Counts{Scheduled: n[timer.Scheduled], Leased: n[timer.Leased], Done: n[timer.Done], Dead: n[timer.Dead]}
}

// TopicRows are the topics that have timers here.
func (t *topics) TopicRows() TopicRows { return TopicRows{t} }

// TopicRows are rows with a topic each. Those of topics that are gone are vacant.
type TopicRows struct{ of *topics }

// IDs returns the topics in ascending order.
func (r TopicRows) IDs() []timer.TopicID { return slices.Sorted(maps.Keys(r.of.rowOf)) }

// Len is the number of rows, for walks over them in slices.
func (r TopicRows) Len() int { return len(r.of.rows) }

// At returns the topic of a row; 0 if it is vacant.
func (r TopicRows) At(row int) timer.TopicID { return r.of.rows[row].id }

// Of returns the row of a topic, if it has one.
func (r TopicRows) Of(id timer.TopicID) (row int, ok bool) {
	n, ok := r.of.rowOf[id]
	return int(n), ok
}

// leasedOtherwise counts a topic's leases that contradict the given delivery.
func (t *topics) leasedOtherwise(topic timer.TopicID, pull bool) int64 {
	row, ok := t.rowOf[topic]
	if !ok {
		return 0
	}
	r := &t.rows[row]
	if pull {
		return r.counts[timer.Leased] - r.pulled
	}
	return r.pulled
}

// closedTopics are the topics that refuse adds. To look one up or add one is O(1), to open one
// again O(n).
type closedTopics struct {
	tombs []tombstone // in the order they were closed
	// the same topics as tombs, because every add looks its topic up
	tombOf map[timer.TopicID]struct{}
	sum    uint64 // of the hashes of tombs
}

// tombstone is a closed topic.
type tombstone struct {
	topic timer.TopicID
	atMs  int64
}

func newClosedTopics() closedTopics { return closedTopics{tombOf: map[timer.TopicID]struct{}{}} }

// Closed reports whether the topic refuses adds.
func (c *closedTopics) Closed(topic timer.TopicID) bool {
	_, is := c.tombOf[topic]
	return is
}

// add closes a topic that is open.
func (c *closedTopics) add(tomb tombstone) {
	c.tombs = append(c.tombs, tomb)
	c.tombOf[tomb.topic] = struct{}{}
	c.sum += tomb.hash()
}

// open opens a topic if it is closed.
func (c *closedTopics) open(topic timer.TopicID) {
	if !c.Closed(topic) {
		return
	}
	delete(c.tombOf, topic)
	i := slices.IndexFunc(c.tombs, func(b tombstone) bool { return b.topic == topic })
	c.sum -= c.tombs[i].hash()
	c.tombs = slices.Delete(c.tombs, i, i+1)
}

// takeExpired opens the first topic if it was closed before ms, and returns it.
func (c *closedTopics) takeExpired(ms int64) (topic timer.TopicID, ok bool) {
	if len(c.tombs) == 0 || c.tombs[0].atMs >= ms {
		return 0, false
	}
	tomb := c.tombs[0]
	delete(c.tombOf, tomb.topic)
	c.sum -= tomb.hash()
	c.tombs = c.tombs[1:]
	return tomb.topic, true
}

// setBack limits the times to ms.
func (c *closedTopics) setBack(ms int64) {
	for i := range c.tombs {
		c.tombs[i].atMs = min(c.tombs[i].atMs, ms)
	}
	c.sum = c.count()
}

func (c *closedTopics) count() (sum uint64) {
	for _, tomb := range c.tombs {
		sum += tomb.hash()
	}
	return sum
}

// hash returns a closed topic's part of the sum.
func (t tombstone) hash() uint64 { return content.Mix(uint64(t.topic), uint64(t.atMs)) }

// closeTopic makes a topic refuse adds. Without force, the topic must have no pending and no dead
// timers, and no pending timer may name it for its outcome. With force, all timers of the topic are
// dropped; see dropTopic.
func (t *Table) closeTopic(c *encoding.Command) timer.Result {
	out := timer.Result{Code: timer.OK}
	row, ok := t.topics.rowOf[c.Topic]
	if !c.Force {
		if n := t.Counts(c.Topic); n.Scheduled+n.Leased+n.Dead > 0 {
			return timer.Result{Code: timer.NotEmpty}
		}
		if n := t.naming.count[c.Topic]; n > 0 {
			return timer.Result{Code: timer.InUse, Removed: int(n)}
		}
	} else if ok {
		out.Removed, out.Handle = t.dropTopic(row, c.From, int64(c.Work))
	}
	t.closedTopics.open(c.Topic)
	t.closedTopics.add(tombstone{c.Topic, t.clockMs})
	return out
}

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

// deliveries are those of the topics that ever changed theirs. To find one is O(log n), to set one
// for the first time moves 12 bytes for each of the others. A snapshot begins with all of them.
type deliveries struct {
	of  []topicDelivery // by topic
	sum uint64          // of their hashes
}

type topicDelivery struct {
	topic timer.TopicID
	delivery
}

// find returns where the delivery of a topic is, or would be.
func (d *deliveries) find(topic timer.TopicID) (at int, known bool) {
	return slices.BinarySearchFunc(d.of, topic, func(x topicDelivery, id timer.TopicID) int { return cmp.Compare(x.topic, id) })
}

// deliver sets a topic's delivery unless timers are leased in the other way. It refuses a command
// of an older change.
func (t *Table) deliver(c *encoding.Command) timer.Result {
	next := delivery{turn: c.Turn, pull: c.Pull}
	if t.Closed(c.Topic) {
		return timer.Result{Code: timer.TopicClosed}
	}
	if at, known := t.deliveries.find(c.Topic); known {
		if now := t.deliveries.of[at]; next.turn < now.turn || next.turn == now.turn && next.pull != now.pull {
			return timer.Result{Code: timer.VersionMismatch}
		}
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
	at, known := d.find(topic)
	return !known || d.of[at].pull == pull
}

func (d *deliveries) set(topic timer.TopicID, next delivery) {
	at, known := d.find(topic)
	if known {
		d.sum -= d.of[at].hash()
	} else {
		d.of = slices.Insert(d.of, at, topicDelivery{})
	}
	d.of[at] = topicDelivery{topic, next}
	d.sum += d.of[at].hash()
}

func (d *deliveries) forget(topic timer.TopicID) {
	if at, known := d.find(topic); known {
		d.sum -= d.of[at].hash()
		d.of = slices.Delete(d.of, at, at+1)
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

func (d topicDelivery) hash() uint64 { return content.Mix(uint64(d.topic), d.word()) }

func (d *deliveries) count() (sum uint64) {
	for _, now := range d.of {
		sum += now.hash()
	}
	return sum
}

// Astray returns the first topic with leases that contradict its delivery, and their number. It
// returns 0 if there is none.
func (t *Table) Astray() (topic timer.TopicID, leased int64) {
	for _, d := range t.deliveries.of {
		if n := t.leasedOtherwise(d.topic, d.pull); n != 0 {
			return d.topic, n
		}
	}
	return 0, 0
}
