package scheduler

import (
	"time"

	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// The one queue level under a topic. In a serial topic the timers of one key run one at a time, by
// due time, then arrival. With per_key there are at most so many at once, and so many a second, by
// priority, due time, arrival; if it is fair, the keys take turns. The leader keeps a queue for
// each key with a timer that is due or leased, a bucket that is not full, or a debt: its last turn
// has not ended, and others wait for theirs. It lets the first timer of each of the key's lanes
// into the destination queues. The others wait in line.
//
// Turns are start-time fair queueing (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996). A timer
// that is let out gets a tag: the topic's virtual time, or, if that is later, the end of its key's
// last turn. The destination queues order by the tag. A lease moves the virtual time up to its tag,
// and the end of its key's turn on by turnUnit/weight.
//
// Invariant (I21): a lease is proposed only for a key that has fewer than its most, for the head of
// its lane, and with a token of its bucket if there is a rate. In a serial topic this is in a turn
// in which every due timer has left the wheel: no earlier timer is missing from the key's queue.

// topicKeys are the keys of a topic in this shard.
type topicKeys struct {
	mode    keyMode
	keys    map[uint64]*keyQueue // by hash of the key; nil: none are kept
	keyRing order.Ring[*keyQueue]
	// debts are the keys that have nothing but a debt, the longest first.
	debts   order.Ring[*keyQueue]
	inLine  int           // entries in lanes, without those that are let out
	waiting [keyGates]int // timers that wait in line and stand, by what for
	weights int           // of the keys with a timer in line or let out
	virtual uint64        // the tag of the latest turn
	order   uint32        // how often keys were dropped
}

// keyQueue is the queue of one key. A serial topic may have one for each timer, so it is small.
type keyQueue struct {
	spot   order.Spot[*keyQueue] // in queue.keyRing or queue.debts
	queue  *topicQueue
	order  uint32 // queue.order when it was made; if it differs now, this keyQueue was dropped
	inLine int32  // entries in its lanes; some may be outdated
	hash   uint64

	first     keyLane // the only one in a serial topic
	*keyTurns         // nil in a topic that is serial and nothing else

	freeMs int64        // when a lease or a blocking head last freed the key, wall clock; it delayed timers due by then
	active *activeLease // this leader's latest lease
	leased int32        // leases that have not ended; over its most only with leases from before the policy
	holder timer.Handle // the timer with a lease of a consumer or a former leader
	heads  int32        // lanes with a head
	table.QueuePlace
}

// keyTurns is what a key has of limits and turns.
type keyTurns struct {
	more   map[Destination]*keyLane // lanes for further destinations
	lanes  order.Ring[*keyLane]     // the same, in turn
	parked order.Ring[*keyLane]     // lanes with timers in line that have none let out
	askAt  time.Duration            // when it asks its bucket again, in topicQueues.shut; monotonic, 0: it does not
	bucket bucket
	ends   uint64 // the end of its last turn
	newest uint64 // the Seq of its newest timer that came due …
	weight uint8  // … and the weight that this has
}

// keyLane is the queue of a key's timers for one destination. So a receiver that is down does not
// hold up the key's timers for others. In a serial topic one lane has all of them.
type keyLane struct {
	key       *keyQueue
	due       heap[entry] // due timers without the head; some may be outdated
	head      entry       // the timer that goes next; handle 0: none
	*laneTurn             // nil as key.keyTurns is
	blocking  bool        // serial: the head was attempted and blocks the key until it is over; otherwise an earlier timer replaces it
	ready     bool        // the head may go now, and is let out; a blocking one once the key has no lease
	unqueued  bool        // the head is ready, and counts as in line
	// Of a key's first lane: the gate that shuts the key, and how many of its timers wait in line.
	// They are here because a keyQueue has no room for them in its size class.
	gate   keyGate
	timers int32
}

// laneTurn is the place of a lane's head.
type laneTurn struct {
	to    Destination
	spot  order.Spot[*keyLane] // in key.parked
	place order.Spot[*keyLane] // in key.lanes
	tag   uint64               // of the head, if the topic is fair
}

func newLaneTurn(l *keyLane, to Destination) *laneTurn {
	return &laneTurn{to: to, spot: order.Spot[*keyLane]{Of: l}, place: order.Spot[*keyLane]{Of: l}}
}

// keyRef is the role of a timer in the queue of its key: head, or leased.
type keyRef struct {
	lane   *keyLane
	seq    uint64
	leased bool // by a lease other than key.active
}

// keyQueues finds the key queue of a timer; the queues belong to their topicQueue.
//
// Cost of all methods: O(log n) in the timers and keys of a topic, but for the scans, which go in
// slices.
type keyQueues struct {
	refs map[timer.Handle]keyRef
	// since is, for each topic with keys that scanBlockers has covered or will, when this leader
	// began to count for them; monotonic.
	since    map[timer.TopicID]time.Duration
	unknown  map[timer.TopicID]bool // topics that this node did not know when the leadership began
	survey   survey
	scanning bool // scanBlockers runs
	scanFrom timer.Handle

	*leader
	compaction *compaction
	due        *dueQueues
	leases     *activeLeases
	limits     *topicLimits
	pulls      *pulledTopics
	topics     *topicQueues
}

func newKeyQueues(s *Scheduler) keyQueues {
	return keyQueues{
		refs: map[timer.Handle]keyRef{}, since: map[timer.TopicID]time.Duration{}, unknown: map[timer.TopicID]bool{}, leader: &s.leader,
		compaction: &s.compaction, due: &s.due, leases: &s.Leases, limits: &s.limits, pulls: &s.Pulls, topics: &s.topics,
	}
}

// refOf returns a timer's role in the queue of its key. It deletes a ref to a queue that was
// dropped.
func (kq *keyQueues) refOf(h timer.Handle) (c keyRef, ok bool) {
	if c, ok = kq.refs[h]; ok && c.lane.key.dropped() {
		delete(kq.refs, h)
		return keyRef{}, false
	}
	return c, ok
}

// dropped reports that the topic keeps other keys by now, or none.
func (k *keyQueue) dropped() bool { return k.order != k.queue.order }

// hashOf returns the hash of a timer's key. Outside of serial topics those without a key share one.
func (kq *keyQueues) hashOf(q *topicQueue, h timer.Handle) uint64 {
	if !q.mode.serial && !kq.table.Keyed(h) {
		return 0
	}
	return kq.table.KeyHash(h)
}

// key returns the queue of a timer's key, and makes it if needed.
//
// A bucket begins as if it had been empty when this leader began to count: what the leader before
// has spent is not known. A key that was forgotten since then had a full one, as this has by then.
func (kq *keyQueues) key(q *topicQueue, h timer.Handle) *keyQueue {
	hash := kq.hashOf(q, h)
	k := q.keys[hash]
	switch {
	case k == nil:
		kq.forgetRested(q, 2) // two for each that is made: at most about half of the keys rest
		k = &keyQueue{queue: q, order: q.order, hash: hash}
		k.spot.Of, k.first.key = k, k
		if m := &q.mode; !m.serial || m.fair || m.rated() {
			k.keyTurns, k.first.laneTurn = &keyTurns{weight: timer.DefaultWeight}, newLaneTurn(&k.first, nil)
		}
		if q.mode.rated() {
			k.bucket = bucket{begun: true, at: kq.since[q.id], perSecond: q.mode.rate.PerSecond}
		}
		q.keys[hash] = k
		q.keyRing.Push(&k.spot)
		kq.topics.countQueue()
	case k.empty(): // it may be in q.debts
		k.spot.Leave()
		q.keyRing.Push(&k.spot)
	}
	return k
}

// lane returns the lane of a key for a timer, and makes it if needed.
func (kq *keyQueues) lane(k *keyQueue, h timer.Handle) *keyLane {
	if k.queue.mode.serial {
		return &k.first
	}
	n := kq.topics.destQueue(k.queue, kq.table.Due(h).Target)
	if n.state == idle && !n.idleSpot.In() {
		kq.topics.update(n) // its first timer may never be let out
	}
	to := n.dest
	switch l := k.more[to]; {
	case l != nil:
		return l
	case k.first.to == to:
		return &k.first
	case k.first.empty():
		k.first.to = to
		return &k.first
	}
	l := &keyLane{key: k}
	l.laneTurn = newLaneTurn(l, to)
	if k.more == nil {
		k.more = map[Destination]*keyLane{}
	}
	k.more[to] = l
	k.lanes.Push(&l.place)
	return l
}

func (l *keyLane) empty() bool { return l.head.handle == 0 && l.due.len() == 0 }

// empty reports that a key has no timer that is due or leased.
func (k *keyQueue) empty() bool { return k.leased+k.inLine+k.heads == 0 }

// count counts entries that come into line, or leave it, and heads.
func (k *keyQueue) count(line, heads int) {
	before := k.turns()
	k.inLine += int32(line)
	k.queue.inLine += line
	k.heads += int32(heads)
	k.countTurns(before)
}

// Count implements table.Queue. Cost: O(1).
func (k *keyQueue) Count(by int) {
	k.first.timers += int32(by)
	if !k.dropped() {
		k.queue.waiting[k.first.gate] += by
	}
}

// DueOrder implements table.Queue.
func (k *keyQueue) DueOrder() *table.DueOrder { return &k.queue.dueOrder }

// wait puts a timer that stands in line.
func (kq *keyQueues) wait(l *keyLane, e entry) {
	l.due.push(e)
	l.key.count(+1, 0)
	kq.countInLine(l, e)
}

// countInLine counts a timer in line, if it stands.
func (kq *keyQueues) countInLine(l *keyLane, e entry) {
	if kq.current(e) {
		kq.table.WaitIn(e.handle, l.key, e.dueMs)
	}
}

// enter puts a due timer into the queue of its key.
func (kq *keyQueues) enter(q *topicQueue, e entry) {
	k := kq.key(q, e.handle)
	var l *keyLane
	if c, ok := kq.refOf(e.handle); ok && !c.leased && c.lane.key == k {
		l = c.lane
	} else {
		l = kq.lane(k, e.handle)
	}
	if q.mode.serial {
		e.rank = 0
	}
	if q.mode.fair && e.seq >= k.newest {
		before := k.turns()
		k.newest, k.weight = e.seq, kq.table.WeightOf(e.handle)
		k.countTurns(before)
	}
	if l.head.handle == e.handle && l.head.seq == e.seq {
		if l.blocking || l.head.rev == e.rev { // its next attempt is due, or its destination queue was remade
			l.head, l.ready = e, true
			kq.queueHead(l)
			return
		}
		kq.clearHead(l)
	}
	if !kq.table.WaitsIn(e.handle, k) { // else it is in line already: all timers were rearmed
		kq.wait(l, e)
	}
	if k.first.gate == spent && k.shared() == nil {
		kq.admits(k, false) // the gate may have opened while nothing was in line
	}
	kq.pickHead(l)
	kq.forgetEmpty(k)
}

// queueHead puts the head into its destination queue, if the key's limits let it.
func (kq *keyQueues) queueHead(l *keyLane) {
	if l.head.handle == 0 || !l.ready {
		return
	}
	if l.key.queue.mode.serial { // else it was admitted when it was let out
		admitted := kq.admits(l.key, false)
		l.countUnqueued(!admitted)
		if !admitted {
			kq.countInLine(l, l.head)
			return
		}
	}
	e := l.head
	if l.key.queue.mode.fair {
		e.rank = l.tag
	}
	kq.due.queueUp(e)
}

// countUnqueued counts a ready head as in line while it is in no destination queue.
func (l *keyLane) countUnqueued(on bool) {
	if on != l.unqueued {
		l.unqueued = on
		if on {
			l.key.count(+1, 0)
		} else {
			l.key.count(-1, 0)
		}
	}
}

// waits reports that a timer stands, and is not being leased. In that case it has been queued again,
// as when all timers were rearmed.
func (kq *keyQueues) waits(e entry) bool { return kq.current(e) && !kq.pulls.leasing(e) }

// pickHead makes the first due timer of a lane its head, unless the key is leased or blocked, or
// its limits refuse. A lane that is empty is dropped.
func (kq *keyQueues) pickHead(l *keyLane) {
	k := l.key
	serial := k.queue.mode.serial
	for n := 0; l.due.len() > 0 && !kq.waits(l.due.top()); n++ {
		if l.pop(); n == PopBudget {
			kq.deferCompaction(l)
		}
	}
	switch {
	case serial && k.leased > 0:
		kq.preemptUnstarted(k)
		return
	case l.blocking:
		return
	case l.head.handle != 0 && !kq.current(l.head):
		kq.clearHead(l)
	}
	switch {
	case l.due.len() == 0:
	case l.head.handle == 0:
		if !kq.admits(k, false) {
			break
		}
		kq.setTag(l)
		kq.promoteHead(l)
	case l.due.top().before(l.head):
		kq.requeueHead(l)
		kq.promoteHead(l) // in the turn of the one that it replaces
	}
	kq.rest(l)
}

// block makes a timer hold its key if it is leased, or, in a serial topic, in backoff. If several
// are in backoff, which can only be from before the topic was serial, the earliest blocks.
func (kq *keyQueues) block(k *keyQueue, h timer.Handle) {
	t, l := kq.table, &k.first
	d := t.Due(h)
	switch {
	case d.State == timer.Leased:
		kq.refs[h] = keyRef{lane: l, seq: d.Seq, leased: true}
		k.leased++
		k.holder = h
		return
	case !k.queue.mode.serial || !d.InBackoff(kq.now.WallMs):
		return
	case l.head.handle == h:
		l.blocking = true
		return
	case l.blocking:
		if first := t.Due(l.head.handle); !d.Earlier(&first) {
			return
		}
	}
	if l.head.handle != 0 {
		kq.requeueHead(l)
	}
	kq.setTag(l)
	l.head, l.blocking = entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev}, true
	k.count(0, +1)
	kq.refs[h] = keyRef{lane: l, seq: d.Seq}
	t.Rearm(h, d.Seq) // it may have been popped before it became the head
}

// rest parks a lane without a head, and drops an empty one.
func (kq *keyQueues) rest(l *keyLane) {
	switch {
	case l.key.queue.mode.serial || l.head.handle != 0:
	case l.due.len() > 0:
		l.key.parked.Push(&l.spot)
	default:
		l.spot.Leave()
		if l != &l.key.first {
			delete(l.key.more, l.to)
			l.place.Leave()
		}
	}
}

func (l *keyLane) pop() entry {
	l.key.count(-1, 0)
	return l.due.pop()
}

// promoteHead makes the first due timer the head, and lets it out.
func (kq *keyQueues) promoteHead(l *keyLane) {
	if l.laneTurn != nil {
		l.spot.Leave()
	}
	l.head, l.ready = l.due.pop(), true
	l.key.count(-1, +1)
	kq.refs[l.head.handle] = keyRef{lane: l, seq: l.head.seq}
	kq.queueHead(l)
}

// clearHead leaves the lane without a head.
func (kq *keyQueues) clearHead(l *keyLane) {
	if l.head.handle != 0 {
		l.key.count(0, -1)
	}
	l.countUnqueued(false)
	delete(kq.refs, l.head.handle)
	l.head, l.blocking, l.ready = entry{}, false, false
}

// requeueHead puts the head back among the due timers. A head that is not due is still in the
// wheel.
func (kq *keyQueues) requeueHead(l *keyLane) {
	if l.ready {
		kq.wait(l, l.head)
	}
	kq.clearHead(l)
}

// laneOf returns the lane whose head an entry of a destination queue is; nil: it is outdated. A
// timer that was the head before, in an earlier turn, left an entry by which it must not go now.
func (kq *keyQueues) laneOf(e entry) *keyLane {
	c, ok := kq.refOf(e.handle)
	if !ok || c.leased {
		return nil
	}
	l := c.lane
	if h := &l.head; h.handle != e.handle || h.seq != e.seq || h.rev != e.rev || l.key.queue.mode.fair && l.tag != e.rank {
		return nil
	}
	return l
}

// mayGo reports that a timer in a destination queue is the head of its lane, and that its key's
// limits let it go now.
func (kq *keyQueues) mayGo(q *topicQueue, e entry) bool {
	l := kq.laneOf(e)
	return l != nil && l.key.queue == q && l.ready && kq.admits(l.key, true)
}

// lanesAtOnce is how many lanes of a key are let out for one place that it has.
const lanesAtOnce = 8

// moveUp puts the next timers of the key into their destination queues.
func (kq *keyQueues) moveUp(k *keyQueue) {
	if k.shared() == nil { // else see inLine
		gate, wait := kq.gateOf(k)
		if k.setGate(gate); wait > 0 && k.inLine > 0 { // though each lane may have a head, the gate opens
			kq.askAgain(k, wait)
		}
	}
	if k.queue.mode.serial {
		l := &k.first
		first := l.head
		if kq.pickHead(l); l.head == first {
			kq.queueHead(l)
		}
		if l.head.handle != 0 && l.ready && k.leased == 0 {
			kq.env.WakeNext()
		}
		kq.forgetEmpty(k)
		return
	}
	for n := 0; k.parked.Len() > 0 && kq.admits(k, false); n++ {
		if n == lanesAtOnce { // these may wait for receivers that the others do not
			kq.askAgain(k, LimitPoll)
			break
		}
		l := k.parked.First()
		l.spot.Leave()
		kq.pickHead(l)
		kq.env.WakeNext()
	}
	if u := k.shared(); u != nil && k.inLine+k.heads == 0 {
		u.release(kq.now.Mono)
	}
	kq.forgetEmpty(k)
}
