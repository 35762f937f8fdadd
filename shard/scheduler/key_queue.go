package scheduler

import (
	"slices"

	"carillon/timer"
)

// In a topic that is serial the timers of one key go one at a time, in order of due time, then
// arrival; in an ordered one all timers are of one key. The leader keeps a line for each key that
// has something due, leased, or in backoff, and lets only the first of each line into its
// destination queue.
//
// Invariant (I21): a lease is proposed only for the first of a line whose key has no lease; and
// only in a turn in which everything that is due has left the wheel, so that nobody earlier is
// missing from the line.

// keyQueue is the line of one key.
type keyQueue struct {
	queue    *topicQueue
	order    uint32 // of the queue; another: the topic is not serial any more, or anew
	hash     uint64
	due      heap[entry]  // who is due and not first; some may have changed since
	head     entry        // who goes next; handle 0: nobody
	blocking bool         // first has been attempted: the key is blocked until it is over. Else an earlier one takes its place
	ready    bool         // first may go now, and stands in its destination queue if the key has no lease
	freeMs   int64        // when it last got free of one who blocked it; wall clock. Who was due by then has been held
	leased   int          // leases that have not ended. Only what began before the topic was serial, or under another leader, makes it two
	active   *activeLease // this leader's lease
	holder   timer.Handle // of a lease that a consumer or a former leader has
}

// keyRef says what a timer means to the line of its key: it is first, or leased.
type keyRef struct {
	key    *keyQueue
	seq    uint64
	leased bool // by somebody else than key.active lease
}

// keyQueues are the queues of keys: each topicQueue has those of its own, here is how timers find
// them.
type keyQueues struct {
	refs     map[timer.Handle]keyRef
	inOrder  map[timer.TopicID]bool // topics whose blockers have been looked for
	scanning bool                   // for timers that block their keys, and for leases that count at a limit
	scanFrom timer.Handle
}

// keyRefOf is what a timer means to the line of its key. A claim of a line that is no more is
// dropped when it is met.
func (l *Scheduler) keyRefOf(h timer.Handle) (c keyRef, ok bool) {
	if c, ok = l.keys.refs[h]; ok && c.key.order != c.key.queue.order {
		delete(l.keys.refs, h)
		return keyRef{}, false
	}
	return c, ok
}

func (k *keyQueue) empty() bool {
	return k.leased == 0 && k.head.handle == 0 && k.due.len() == 0
}

// key is the line that a timer belongs to.
func (l *Scheduler) key(q *topicQueue, h timer.Handle) *keyQueue {
	hash := uint64(0)
	if !q.topic.Policy.Ordered {
		hash = l.table.KeyHash(h)
	}
	k := q.keys[hash]
	if k == nil {
		k = &keyQueue{queue: q, order: q.order, hash: hash}
		q.keys[hash] = k
	}
	return k
}

// enter puts a timer that is due into the line of its key.
func (l *Scheduler) enter(q *topicQueue, e entry) {
	e.priority = 0
	k := l.key(q, e.handle)
	if k.head.handle == e.handle && k.head.seq == e.seq {
		if k.blocking || k.head.rev == e.rev { // its next attempt has come, or its destination queue was made anew
			k.head, k.ready = e, true
			l.queueHead(k)
			return
		}
		l.clearHead(k)
	}
	k.due.push(e)
	q.inLine++
	l.pickHead(k)
}

// queueHead puts the first into its destination queue, if the key has no lease.
func (l *Scheduler) queueHead(k *keyQueue) {
	if k.head.handle != 0 && k.ready && k.leased == 0 {
		l.queueUp(k.head)
	}
}

// pickHead finds who is first among those that are due.
func (l *Scheduler) pickHead(k *keyQueue) {
	for n := 0; k.due.len() > 0 && !l.current(k.due.top()); n++ {
		if k.pop(); n == PopBudget {
			l.deferKeyCompaction(k)
		}
	}
	switch {
	case k.leased > 0:
		l.preemptUnstarted(k)
		return
	case k.blocking:
		return
	case k.head.handle != 0 && !l.current(k.head):
		l.clearHead(k)
	}
	switch {
	case k.due.len() == 0:
	case k.head.handle == 0:
		l.promoteHead(k)
	case k.due.top().before(k.head):
		l.requeueHead(k)
		l.promoteHead(k)
	}
	if k.empty() {
		delete(k.queue.keys, k.hash)
	}
}

func (k *keyQueue) pop() entry {
	k.queue.inLine--
	return k.due.pop()
}

// current reports that a timer is as it was when it was queued.
func (l *Scheduler) current(e entry) bool {
	return l.table.ScheduledAt(e.handle, e.seq, e.rev)
}

// promoteHead makes the earliest that is due the first.
func (l *Scheduler) promoteHead(k *keyQueue) {
	k.head, k.ready = k.pop(), true
	l.keys.refs[k.head.handle] = keyRef{key: k, seq: k.head.seq}
	l.queueHead(k)
}

// clearHead leaves the line without a first.
func (l *Scheduler) clearHead(k *keyQueue) {
	delete(l.keys.refs, k.head.handle)
	k.head, k.blocking, k.ready = entry{}, false, false
}

// requeueHead puts the first back among the others. One whose time has not come is in the wheel.
func (l *Scheduler) requeueHead(k *keyQueue) {
	if k.ready {
		k.due.push(k.head)
		k.queue.inLine++
	}
	l.clearHead(k)
}

// preemptUnstarted gives a lease back that was taken ahead of its time, when somebody earlier has
// come meanwhile.
func (l *Scheduler) preemptUnstarted(k *keyQueue) {
	f := k.active
	if f == nil || f.firm || f.revoked || !f.unstarted() || k.due.len() == 0 ||
		!k.due.top().before(entry{dueMs: f.dueMs, seq: f.seq}) {
		return
	}
	if f.phase == held {
		l.revoke(f)
	} else {
		f.revoked = true
	}
}

// mayGo reports that a timer which stands in a destination queue is the first of its line, and that
// its key has no lease.
func (l *Scheduler) mayGo(q *topicQueue, e entry) bool {
	c, _ := l.keyRefOf(e.handle)
	k := c.key
	return k != nil && k.queue == q && k.leased == 0 && k.ready &&
		k.head.handle == e.handle && k.head.seq == e.seq && k.head.rev == e.rev
}

// takeKey gives the key to its first, whose lease is being proposed.
func (l *Scheduler) takeKey(f *activeLease) {
	k := l.keys.refs[f.handle].key
	f.key, f.firm, f.kept = k, k.blocking, f.kept || f.dueMs <= k.freeMs
	l.clearHead(k)
	k.leased++
	k.active = f
}

// freed gives the key back when a lease has ended, or was not granted. Its timer blocks on if it
// will be tried again.
func (l *Scheduler) freed(f *activeLease) {
	k := f.key
	if f.key = nil; k == nil || !l.active || k.queue.keys == nil {
		return
	}
	k.leased--
	k.freeMs = l.now.WallMs
	if k.active == f {
		k.active = nil
	}
	l.block(k, f.handle)
	l.moveUp(k)
}

// moveUp lets whoever is next into its destination queue.
func (l *Scheduler) moveUp(k *keyQueue) {
	first := k.head
	if l.pickHead(k); k.head == first {
		l.queueHead(k)
	}
	if k.head.handle != 0 && k.ready && k.leased == 0 {
		l.env.WakeNext()
	}
}

// block makes a timer block its key if it does: somebody calls it, or it has been attempted and
// waits for its next attempt. Of several that wait, which can only be from before the topic was
// serial, the earliest does.
func (l *Scheduler) block(k *keyQueue, h timer.Handle) {
	t := l.table
	d := t.Due(h)
	switch {
	case d.State == timer.Leased:
		l.keys.refs[h] = keyRef{key: k, seq: d.Seq, leased: true}
		k.leased++
		k.holder = h
		return
	case !d.InBackoff(l.now.WallMs):
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
		l.requeueHead(k)
	}
	k.head, k.blocking = entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev}, true
	l.keys.refs[h] = keyRef{key: k, seq: d.Seq}
	t.Rearm(h, d.Seq) // it may have left the wheel before this was known
}

// Review looks again at a timer that an entry may have changed. One that is being taken keeps its
// key and counts, until the log has its lease or will not have it.
func (l *Scheduler) Review(h timer.Handle) {
	if h == 0 || len(l.keys.refs)+len(l.limits.carried) == 0 {
		return
	}
	if seq, ok := l.consumers.reserved[h]; ok && l.table.Live(h, seq) {
		return
	}
	l.uncountCarried(h)
	c, ok := l.keyRefOf(h)
	if !ok {
		return
	}
	k := c.key
	switch {
	case c.leased:
		if d := l.table.Due(h); d.Seq == c.seq && d.State == timer.Leased {
			return
		}
		delete(l.keys.refs, h)
		k.leased--
		k.freeMs = l.now.WallMs
	case l.current(k.head):
		return
	default:
		if k.blocking {
			k.freeMs = l.now.WallMs
		}
		l.clearHead(k)
	}
	l.block(k, h)
	l.moveUp(k)
}

// ReviewDropped looks again at the timers of these slots, after from and up to the last (0: of
// all), that are gone: a step in the dropping of their topic. It looks at the slots or at all
// claims, whichever are fewer.
func (l *Scheduler) ReviewDropped(from, last timer.Handle) {
	if last == 0 {
		last = l.table.LastHandle()
	}
	gone := func(h timer.Handle) bool {
		c, claimed := l.keys.refs[h]
		f, foreign := l.limits.carried[h]
		return claimed && !l.table.Live(h, c.seq) || foreign && !l.table.Live(h, f.seq)
	}
	if len(l.keys.refs)+len(l.limits.carried) == 0 || from >= last {
		return
	}
	if int(last-from) <= len(l.keys.refs)+len(l.limits.carried) {
		for h := from + 1; h <= last; h++ {
			if gone(h) {
				l.Review(h)
			}
		}
		return
	}
	var few []timer.Handle
	for h := range l.keys.refs {
		if h > from && h <= last && gone(h) {
			few = append(few, h)
		}
	}
	for h := range l.limits.carried {
		if h > from && h <= last && gone(h) {
			few = append(few, h)
		}
	}
	slices.Sort(few) // what is done for each must not depend on chance
	for _, h := range few {
		l.Review(h)
	}
}

// scanBlockers walks the table in slices for timers that block their keys, and for leases of former
// leaders that count at a limit. Until it is done nothing of such topics is leased.
func (l *Scheduler) scanBlockers() {
	if !l.keys.scanning {
		return
	}
	next, done := l.table.ScanAttempted(l.keys.scanFrom, scanBudget, func(h timer.Handle) {
		d := l.table.Due(h)
		q := l.queue(d.Topic)
		l.countCarried(q, h, &d)
		if q.keys == nil {
			return
		}
		if f := l.leases.byTimer[h]; f != nil && f.key != nil && f.seq == d.Seq {
			return
		}
		if c, ok := l.keyRefOf(h); ok && (c.seq != d.Seq || c.leased || c.key.blocking) {
			l.Review(h)
			return
		}
		k := l.key(q, h)
		l.block(k, h)
		l.moveUp(k)
	})
	l.keys.scanFrom, l.keys.scanning = next, !done
	if !done {
		l.env.WakeNext()
		return
	}
	l.endCarriedOver(true) // what there was of it is counted
}

// findBlockers begins the walk.
func (l *Scheduler) findBlockers() { l.keys.scanning, l.keys.scanFrom = true, 0 }

// beginOrder is for the begin of a leadership: what former leaders left in backoff or leased must
// be found.
func (l *Scheduler) beginOrder() {
	l.keys = keyQueues{refs: map[timer.Handle]keyRef{}, inOrder: map[timer.TopicID]bool{}}
	for _, f := range l.leases.byTimer {
		f.key = nil // the walk finds its lease
	}
	for _, id := range l.table.TopicIDs() {
		t := l.topic(id)
		if t == nil || !t.Policy.InOrder() && t.Policy.Concurrency == 0 {
			continue
		}
		l.findBlockers()
		if t.Policy.InOrder() {
			l.keys.inOrder[id] = true
		}
	}
}

// setOrder begins or ends keeping lines for a topic, as its policy says.
func (l *Scheduler) setOrder(q *topicQueue) {
	want := q.topic != nil && q.topic.Policy.InOrder()
	switch {
	case want == (q.keys != nil):
	case want:
		q.keys = map[uint64]*keyQueue{}
		if l.keys.inOrder[q.id] {
			return
		}
		l.keys.inOrder[q.id] = true
		if c := l.table.Counts(q.id); c.Scheduled+c.Leased == 0 {
			return
		}
		l.findBlockers()
		for _, h := range l.activeHandles() { // the walk may meet one before its lease is applied
			if f := l.leases.byTimer[h]; f.queue.queue == q {
				f.key = l.key(q, h)
				f.key.leased++
				f.key.active = f
			}
		}
	default:
		delete(l.keys.inOrder, q.id)
		q.keys, q.inLine = nil, 0 // what claims of these keys are left mean nothing any more: see keyRefOf
		q.order++
		l.RearmAll() // who stood in the lines comes by the wheel
	}
}

// pruneBudget is how much of the lines is pruned in one turn, more or less.
const pruneBudget = 16 * PopBudget

// pruneLines takes out of the lines what has changed since, once that must be the larger part
// (I15): as much as one turn may. A long line is set aside.
func (l *Scheduler) pruneLines(q *topicQueue, timers int64) {
	if int64(q.inLine) <= 2*timers+512 {
		return
	}
	// Which lines are pruned must not depend on the order of a map: of several long ones that with
	// the least hash, and of the others, where they are more than one turn may, a part by their
	// hashes, another in each sweep.
	var long *keyQueue
	work := 0
	for _, k := range q.keys {
		if n := k.due.len(); n <= PopBudget {
			work += 1 + n
		} else if long == nil || k.hash < long.hash {
			long = k
		}
	}
	q.sweeps++
	parts := uint64(1 + work/pruneBudget)
	for _, k := range q.keys {
		if n := k.due.len(); n <= PopBudget && k.hash%parts == q.sweeps%parts {
			k.due.filter(l.current)
			q.inLine -= n - k.due.len()
		}
	}
	if long != nil {
		l.deferKeyCompaction(long)
	}
}

func (l *Scheduler) deferKeyCompaction(k *keyQueue) {
	k.queue.inLine -= k.due.len()
	l.deferCompaction(staleQueue{items: k.due.items})
	k.due = heap[entry]{}
}
