package scheduler

import (
	"slices"

	"carillon/internal/order"
	"carillon/timer"
)

// In a serial topic the timers of one key run one at a time, by due time, then arrival. The
// leader keeps a queue for each key with a timer that is due, leased or in backoff, and lets only
// its head into the destination queue.
//
// Invariant (I21): a lease is proposed only for the head of a key that has no lease, and only in a
// turn in which every due timer has left the wheel: no earlier timer is missing from the key's
// queue.

// keyQueue is the queue of one key.
type keyQueue struct {
	spot     order.Spot[*keyQueue] // in queue.keyRing
	queue    *topicQueue
	order    uint32 // queue.order when it was made; if it differs now, this keyQueue was dropped
	hash     uint64
	due      heap[entry]  // due timers without the head; some may be outdated
	head     entry        // the timer that goes next; handle 0: none
	blocking bool         // the head was attempted and blocks the key until it is over; otherwise an earlier timer replaces it
	ready    bool         // the head may go now; without a lease of the key it is in its destination queue
	freeMs   int64        // when a lease or a blocking head last freed the key, wall clock; it delayed timers due by then
	leased   int          // leases that have not ended; over 1 only with leases from before the topic was serial, or of another leader
	active   *activeLease // this leader's lease
	holder   timer.Handle // the timer with a lease of a consumer or a former leader
}

// keyRef is the role of a timer in the queue of its key: head, or leased.
type keyRef struct {
	key    *keyQueue
	seq    uint64
	leased bool // by a lease other than key.active
}

// keyQueues finds the key queue of a timer; the queues belong to their topicQueue.
type keyQueues struct {
	refs     map[timer.Handle]keyRef
	inOrder  map[timer.TopicID]bool // serial topics that scanBlockers has covered, or will
	scanning bool                   // scanBlockers runs
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
		refs: map[timer.Handle]keyRef{}, inOrder: map[timer.TopicID]bool{}, leader: &s.leader,
		compaction: &s.compaction, due: &s.due, leases: &s.leases, limits: &s.limits, pulls: &s.pulls, topics: &s.topics,
	}
}

// refOf returns a timer's role in the queue of its key. It deletes a ref to a queue that was
// dropped.
func (kq *keyQueues) refOf(h timer.Handle) (c keyRef, ok bool) {
	if c, ok = kq.refs[h]; ok && c.key.order != c.key.queue.order {
		delete(kq.refs, h)
		return keyRef{}, false
	}
	return c, ok
}

func (k *keyQueue) empty() bool {
	return k.leased == 0 && k.head.handle == 0 && k.due.len() == 0
}

// key returns the queue of a timer's key, and makes it if needed.
func (kq *keyQueues) key(q *topicQueue, h timer.Handle) *keyQueue {
	hash := kq.table.KeyHash(h)
	k := q.keys[hash]
	if k == nil {
		k = &keyQueue{queue: q, order: q.order, hash: hash}
		k.spot.Of = k
		q.keys[hash] = k
		q.keyRing.Push(&k.spot)
		kq.topics.countQueue()
	}
	return k
}

// enter puts a due timer into the queue of its key.
func (kq *keyQueues) enter(q *topicQueue, e entry) {
	e.priority = 0
	k := kq.key(q, e.handle)
	if k.head.handle == e.handle && k.head.seq == e.seq {
		if k.blocking || k.head.rev == e.rev { // its next attempt is due, or its destination queue was remade
			k.head, k.ready = e, true
			kq.queueHead(k)
			return
		}
		kq.clearHead(k)
	}
	k.due.push(e)
	q.inLine++
	kq.pickHead(k)
}

// queueHead puts the head into its destination queue, if the key has no lease.
func (kq *keyQueues) queueHead(k *keyQueue) {
	if k.head.handle != 0 && k.ready && k.leased == 0 {
		kq.due.queueUp(k.head)
	}
}

// pickHead makes the earliest due timer the head, unless the key is leased or blocked.
func (kq *keyQueues) pickHead(k *keyQueue) {
	for n := 0; k.due.len() > 0 && !kq.current(k.due.top()); n++ {
		if k.pop(); n == PopBudget {
			kq.deferCompaction(k)
		}
	}
	switch {
	case k.leased > 0:
		kq.preemptUnstarted(k)
		return
	case k.blocking:
		return
	case k.head.handle != 0 && !kq.current(k.head):
		kq.clearHead(k)
	}
	switch {
	case k.due.len() == 0:
	case k.head.handle == 0:
		kq.promoteHead(k)
	case k.due.top().before(k.head):
		kq.requeueHead(k)
		kq.promoteHead(k)
	}
	if k.empty() {
		delete(k.queue.keys, k.hash)
		k.spot.Leave()
	}
}

func (k *keyQueue) pop() entry {
	k.queue.inLine--
	return k.due.pop()
}

// promoteHead makes the earliest due timer the head.
func (kq *keyQueues) promoteHead(k *keyQueue) {
	k.head, k.ready = k.pop(), true
	kq.refs[k.head.handle] = keyRef{key: k, seq: k.head.seq}
	kq.queueHead(k)
}

// clearHead leaves the queue without a head.
func (kq *keyQueues) clearHead(k *keyQueue) {
	delete(kq.refs, k.head.handle)
	k.head, k.blocking, k.ready = entry{}, false, false
}

// requeueHead puts the head back among the due timers. A head that is not due is still in the
// wheel.
func (kq *keyQueues) requeueHead(k *keyQueue) {
	if k.ready {
		k.due.push(k.head)
		k.queue.inLine++
	}
	kq.clearHead(k)
}

// preemptUnstarted returns a lease that was taken ahead of its due time, if an earlier timer of the
// key has come since.
func (kq *keyQueues) preemptUnstarted(k *keyQueue) {
	f := k.active
	if f == nil || f.firm || f.revoked || !f.unstarted() || k.due.len() == 0 ||
		!k.due.top().before(entry{dueMs: f.dueMs, seq: f.seq}) {
		return
	}
	if f.phase == held {
		kq.leases.revoke(f)
	} else {
		f.revoked = true
	}
}

// mayGo reports that a timer in a destination queue is the head of its key, and that the key has no
// lease.
func (kq *keyQueues) mayGo(q *topicQueue, e entry) bool {
	c, _ := kq.refOf(e.handle)
	k := c.key
	return k != nil && k.queue == q && k.leased == 0 && k.ready &&
		k.head.handle == e.handle && k.head.seq == e.seq && k.head.rev == e.rev
}

// take gives the key to its head, whose lease is being proposed.
func (kq *keyQueues) take(f *activeLease) {
	k := kq.refs[f.handle].key
	f.key, f.firm, f.kept = k, k.blocking, f.kept || f.dueMs <= k.freeMs
	kq.clearHead(k)
	k.leased++
	k.active = f
}

// reserve gives the key to its head, whose lease for a consumer is being proposed.
func (kq *keyQueues) reserve(e entry) {
	k := kq.refs[e.handle].key
	kq.clearHead(k)
	k.leased++
	k.holder = e.handle
	kq.refs[e.handle] = keyRef{key: k, seq: e.seq, leased: true}
}

// freed frees the key when a lease has ended, or was not granted. A timer that will be tried again
// still blocks the key.
func (kq *keyQueues) freed(f *activeLease) {
	k := f.key
	if f.key = nil; k == nil || !kq.active || k.queue.keys == nil {
		return
	}
	k.leased--
	k.freeMs = kq.now.WallMs
	if k.active == f {
		k.active = nil
	}
	kq.block(k, f.handle)
	kq.moveUp(k)
}

// moveUp puts the next timer of the key into its destination queue.
func (kq *keyQueues) moveUp(k *keyQueue) {
	first := k.head
	if kq.pickHead(k); k.head == first {
		kq.queueHead(k)
	}
	if k.head.handle != 0 && k.ready && k.leased == 0 {
		kq.env.WakeNext()
	}
}

// block makes a timer block its key if it is leased or in backoff. If several are in backoff, which
// can only be from before the topic was serial, the earliest blocks.
func (kq *keyQueues) block(k *keyQueue, h timer.Handle) {
	t := kq.table
	d := t.Due(h)
	switch {
	case d.State == timer.Leased:
		kq.refs[h] = keyRef{key: k, seq: d.Seq, leased: true}
		k.leased++
		k.holder = h
		return
	case !d.InBackoff(kq.now.WallMs):
		return
	case k.head.handle == h:
		k.blocking = true
		return
	case k.blocking:
		if first := t.Due(k.head.handle); !d.Earlier(&first) {
			return
		}
	}
	if k.head.handle != 0 {
		kq.requeueHead(k)
	}
	k.head, k.blocking = entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev}, true
	kq.refs[h] = keyRef{key: k, seq: d.Seq}
	t.Rearm(h, d.Seq) // it may have been popped before it became the head
}

// review updates the key and the limit of a timer that an entry may have changed. A timer reserved
// for a pull keeps both until its lease is applied or dropped.
func (kq *keyQueues) review(h timer.Handle) {
	if h == 0 || len(kq.refs)+len(kq.limits.carried) == 0 {
		return
	}
	if seq, ok := kq.pulls.reserved[h]; ok && kq.table.Live(h, seq) {
		return
	}
	kq.limits.uncountCarried(h)
	c, ok := kq.refOf(h)
	if !ok {
		return
	}
	k := c.key
	switch {
	case c.leased:
		if d := kq.table.Due(h); d.Seq == c.seq && d.State == timer.Leased {
			return
		}
		delete(kq.refs, h)
		k.leased--
		k.freeMs = kq.now.WallMs
	case kq.current(k.head):
		return
	default:
		if k.blocking {
			k.freeMs = kq.now.WallMs
		}
		kq.clearHead(k)
	}
	kq.block(k, h)
	kq.moveUp(k)
}

// resumed handles a timer that a client has let go. In backoff it blocks its key again. Its lateness
// counts as that of a timer that a gate has delayed.
func (kq *keyQueues) resumed(h timer.Handle) {
	d := kq.table.Due(h)
	if !kq.active || d.State != timer.Scheduled || d.Paused {
		return
	}
	q := kq.topics.queue(d.Topic)
	q.limitedMs = kq.now.WallMs
	if q.keys == nil || !d.InBackoff(kq.now.WallMs) {
		return
	}
	if _, ok := kq.refOf(h); ok {
		return
	}
	k := kq.key(q, h)
	kq.block(k, h)
	kq.moveUp(k)
}

// reviewDropped reviews the timers that are gone from the slots after from, up to last (0: all):
// one step of dropping their topic. It visits the slots or all refs, whichever are fewer.
func (kq *keyQueues) reviewDropped(from, last timer.Handle) {
	if last == 0 {
		last = kq.table.LastHandle()
	}
	gone := func(h timer.Handle) bool {
		c, claimed := kq.refs[h]
		f, foreign := kq.limits.carried[h]
		return claimed && !kq.table.Live(h, c.seq) || foreign && !kq.table.Live(h, f.seq)
	}
	if len(kq.refs)+len(kq.limits.carried) == 0 || from >= last {
		return
	}
	if int(last-from) <= len(kq.refs)+len(kq.limits.carried) {
		for h := from + 1; h <= last; h++ {
			if gone(h) {
				kq.review(h)
			}
		}
		return
	}
	var few []timer.Handle
	for h := range kq.refs {
		if h > from && h <= last && gone(h) {
			few = append(few, h)
		}
	}
	for h := range kq.limits.carried {
		if h > from && h <= last && gone(h) {
			few = append(few, h)
		}
	}
	slices.Sort(few) // the order of effects must be deterministic
	for _, h := range few {
		kq.review(h)
	}
}

// scanBlockers walks the table in slices for timers that block their keys, and for former leaders'
// leases that count at a limit. Until it is done no timer of a serial or limited topic is leased.
func (kq *keyQueues) scanBlockers() {
	if !kq.scanning {
		return
	}
	next, done := kq.table.ScanAttempted(kq.scanFrom, scanBudget, func(h timer.Handle) {
		d := kq.table.Due(h)
		q := kq.topics.queue(d.Topic)
		kq.limits.countCarried(q, h, &d)
		if q.keys == nil {
			return
		}
		if f := kq.leases.byTimer[h]; f != nil && f.key != nil && f.seq == d.Seq {
			return
		}
		if c, ok := kq.refOf(h); ok && (c.seq != d.Seq || c.leased || c.key.blocking) {
			kq.review(h)
			return
		}
		k := kq.key(q, h)
		kq.block(k, h)
		kq.moveUp(k)
	})
	kq.scanFrom, kq.scanning = next, !done
	if !done {
		kq.env.WakeNext()
		return
	}
	kq.limits.endCarriedOver(true) // the walk has counted those that still hold
}

// findBlockers starts scanBlockers.
func (kq *keyQueues) findBlockers() { kq.scanning, kq.scanFrom = true, 0 }

// begin prepares a new leadership: it must find the timers that former leaders left leased or
// in backoff.
func (kq *keyQueues) begin() {
	for _, f := range kq.leases.byTimer {
		f.key = nil // scanBlockers finds its lease
	}
	for _, id := range kq.table.TopicIDs() {
		t := kq.topic(id)
		if t == nil || !t.Policy.Serial && t.Policy.Concurrency == 0 {
			continue
		}
		kq.findBlockers()
		if t.Policy.Serial {
			kq.inOrder[id] = true
		}
	}
}

// setOrder starts or stops keeping key queues for a topic, as its policy says.
func (kq *keyQueues) setOrder(q *topicQueue) {
	want := q.topic != nil && q.topic.Policy.Serial
	switch {
	case want == (q.keys != nil):
		if !want {
			delete(kq.inOrder, q.id)
		}
	case want:
		q.keys = map[uint64]*keyQueue{}
		if kq.inOrder[q.id] {
			return
		}
		kq.inOrder[q.id] = true
		if c := kq.table.Counts(q.id); c.Scheduled+c.Leased == 0 {
			return
		}
		kq.findBlockers()
		for _, h := range kq.leases.handles() { // the walk may pass before their leases are applied
			if f := kq.leases.byTimer[h]; f.queue.queue == q {
				f.key = kq.key(q, h)
				f.key.leased++
				f.key.active = f
			}
		}
	default:
		delete(kq.inOrder, q.id)
		q.keys, q.keyRing, q.inLine = nil, order.Ring[*keyQueue]{}, 0 // refOf drops the refs that are left
		q.order++
		kq.due.rearmAll() // the queued timers come back through the wheel
	}
}

// forget drops what is known of a topic that is gone.
func (kq *keyQueues) forget(id timer.TopicID) { delete(kq.inOrder, id) }

// pruneBudget is about how many keys, and entries of them, are pruned in one sweep.
const pruneBudget = 4 * PopBudget

// prune removes outdated entries from key queues once more than half must be outdated (I15),
// some keys at a time, in turn. A long queue is set aside for compact.
func (kq *keyQueues) prune(q *topicQueue) {
	for n, work := q.keyRing.Len(), 0; n > 0 && work < pruneBudget; n-- {
		k := q.keyRing.Rotate()
		before := k.due.len()
		if before > PopBudget {
			kq.deferCompaction(k)
			return
		}
		work += 1 + before
		k.due.filter(kq.current)
		q.inLine -= before - k.due.len()
	}
}

func (kq *keyQueues) deferCompaction(k *keyQueue) {
	k.queue.inLine -= k.due.len()
	kq.compaction.add(staleQueue{items: k.due.items})
	k.due = heap[entry]{}
}

// blockedBy reports whether another timer of the same key goes first, and its id.
func (kq *keyQueues) blockedBy(q *topicQueue, h timer.Handle) (head string, blocked bool) {
	if q.keys == nil {
		return "", false
	}
	k := q.keys[kq.table.KeyHash(h)]
	switch {
	case k == nil:
		return "", false
	case k.leased > 0:
		return kq.holderOf(k), true
	case k.head.handle != 0 && k.head.handle != h:
		return kq.table.ID(k.head.handle), true
	}
	return "", false
}

// holderOf returns the id of the timer whose lease has the key; "" if unknown. Of several leases,
// from before the topic was serial, only the last is known.
func (kq *keyQueues) holderOf(k *keyQueue) string {
	if k.active != nil {
		return kq.table.ID(k.active.handle)
	}
	if c := kq.refs[k.holder]; c.key == k && c.leased {
		return kq.table.ID(k.holder)
	}
	return ""
}
