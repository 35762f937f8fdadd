package scheduler

import (
	"slices"
	"time"

	"carillon/timer"
)

// What happens to the queues of keys apart from the way of a timer: entries that change its state,
// a new leadership, another policy, and outdated entries.

// Review updates the key and the limit of a timer that an entry may have changed. A timer reserved
// for a pull keeps both until its lease is applied or dropped.
func (kq *keyQueues) Review(h timer.Handle) {
	if h == 0 || len(kq.refs)+len(kq.limits.carried.byTimer) == 0 {
		return
	}
	if r, ok := kq.pulls.reserved[h]; ok && kq.table.Live(h, r.seq) {
		return
	}
	kq.limits.uncountCarried(h)
	c, ok := kq.refOf(h)
	if !ok {
		return
	}
	l := c.lane
	k := l.key
	switch {
	case c.leased:
		if d := kq.table.Due(h); d.Seq == c.seq && d.State == timer.Leased {
			return
		}
		delete(kq.refs, h)
		kq.unlease(k)
	case kq.current(l.head):
		return
	default:
		if l.blocking {
			k.freeMs = kq.now.WallMs
		}
		kq.clearHead(l)
		kq.rest(l)
	}
	kq.block(k, h)
	kq.moveUp(k)
}

// Resumed handles a timer that a client has let go. In backoff it blocks its key again. Its
// lateness counts as that of a timer that a gate has delayed.
func (kq *keyQueues) Resumed(h timer.Handle) {
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

// passOver handles an entry that has left its destination queue without a lease: it is outdated, or
// other lanes have used up its key's limits.
func (kq *keyQueues) passOver(e entry) {
	kq.Review(e.handle)
	l := kq.laneOf(e)
	if l == nil || l.key.queue.mode.serial {
		return
	}
	if kq.leases.stands(e) {
		kq.requeueHead(l)
	} else { // its lease is being proposed already, or it expires
		kq.clearHead(l)
	}
	kq.rest(l)
	kq.moveUp(l.key)
}

// ReviewDropped reviews the timers that are gone from the slots after from, up to last (0: all):
// one step of dropping their topic. It visits the slots or all refs, whichever are fewer.
func (kq *keyQueues) ReviewDropped(from, last timer.Handle) {
	if last == 0 {
		last = kq.table.LastHandle()
	}
	gone := func(h timer.Handle) bool {
		c, claimed := kq.refs[h]
		f, foreign := kq.limits.carried.byTimer[h]
		return claimed && !kq.table.Live(h, c.seq) || foreign && !kq.table.Live(h, f.seq)
	}
	if len(kq.refs)+len(kq.limits.carried.byTimer) == 0 || from >= last {
		return
	}
	if int(last-from) <= len(kq.refs)+len(kq.limits.carried.byTimer) {
		for h := from + 1; h <= last; h++ {
			if gone(h) {
				kq.Review(h)
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
	for h := range kq.limits.carried.byTimer {
		if h > from && h <= last && gone(h) {
			few = append(few, h)
		}
	}
	slices.Sort(few) // the order of effects must be deterministic
	for _, h := range few {
		kq.Review(h)
	}
}

// scanBlockers walks the table in slices for timers that hold their keys, and for former leaders'
// leases that count at a limit. Until it is done no timer of a topic with such is leased.
func (kq *keyQueues) scanBlockers() {
	if !kq.scanning {
		return
	}
	found := func(h timer.Handle) {
		kq.env.Spent(1)
		d := kq.table.Due(h)
		q := kq.topics.queue(d.Topic)
		kq.limits.countCarried(q, h, &d)
		if q.keys == nil {
			return
		}
		if f := kq.leases.byTimer[h]; f != nil && f.key != nil && f.seq == d.Seq {
			return
		}
		if c, ok := kq.refOf(h); ok && (c.seq != d.Seq || c.leased || c.lane.blocking || !q.mode.serial) {
			kq.Review(h)
			return
		}
		k := kq.key(q, h)
		kq.block(k, h)
		kq.moveUp(k)
	}
	var done bool
	kq.scanFrom, done = kq.inSlices(kq.scanFrom, func(from timer.Handle, slots int) (timer.Handle, bool) {
		return kq.table.ScanLeased(from, slots, true, found)
	})
	if kq.scanning = !done; kq.scanning {
		return
	}
	kq.limits.recounted = true
	kq.limits.endCarriedOver()
}

// findBlockers starts scanBlockers.
func (kq *keyQueues) findBlockers() { kq.scanning, kq.scanFrom = true, 0 }

// begin prepares a new leadership: it must find the timers that former leaders left leased or
// in backoff.
func (kq *keyQueues) begin() {
	for _, f := range kq.leases.byTimer {
		f.key = nil // scanBlockers finds its lease
	}
	kq.survey = survey{keys: kq, left: kq.table.TopicRows().Len()}
}

// survey notes, in slices, what the topics with timers are as a leadership begins. A topic that gets
// a queue before its turn has come is looked at then.
type survey struct {
	keys  *keyQueues
	left  int  // the rows of the table below it have not been looked at
	seeks bool // scanBlockers was started
}

// run looks at some topics.
func (sv *survey) run() {
	if sv.left == 0 {
		return
	}
	kq := sv.keys
	rows := kq.table.TopicRows()
	for n, over := 0, false; n < PopBudget && !over; n += scanStep {
		for range min(scanStep, sv.left) {
			sv.left--
			if id := rows.At(sv.left); id != 0 && kq.topics.byID[id] == nil {
				sv.lookAt(id)
			}
		}
		over = kq.env.Spent(scanStep/4) || sv.left == 0
	}
	if sv.left > 0 {
		kq.env.WakeNext()
	}
}

// lookAtNew looks at a topic that gets a queue, unless its turn has come, or it had no timers as the
// leadership began.
func (sv *survey) lookAtNew(id timer.TopicID) {
	if sv.left == 0 {
		return
	}
	if row, ok := sv.keys.table.TopicRows().Of(id); ok && row < sv.left {
		sv.lookAt(id)
	}
}

// lookAt notes what a topic is. One walk of scanBlockers serves all: a topic with a lease that the
// walk has passed has had a queue since.
func (sv *survey) lookAt(id timer.TopicID) {
	kq := sv.keys
	t := kq.topic(id)
	mode := keyModeOf(t)
	if mode.on() || t != nil && t.Policy.Concurrency > 0 {
		kq.limits.found[id] = t.Policy.Concurrency > 0
		if !sv.seeks {
			sv.seeks = true
			kq.findBlockers()
		}
	}
	switch {
	case mode.on():
		kq.since[id] = kq.leader.since
	case t == nil:
		kq.unknown[id] = true
	}
}

// longAgo is when a bucket was empty that is full by now, whatever its rate.
const longAgo = -1 << 62

// setOrder starts or stops keeping key queues for a topic, by its policy. Keys that are kept for
// something else are dropped and made again, with all that counts.
func (kq *keyQueues) setOrder(q *topicQueue) {
	want := keyModeOf(q.topic)
	if want == q.mode {
		if !want.on() {
			delete(kq.since, q.id)
		}
		if q.topic != nil { // there was no rate
			delete(kq.unknown, q.id)
		}
		return
	}
	since := time.Duration(longAgo) // no rate held before
	if q.mode.on() || kq.unknown[q.id] {
		since = kq.now.Mono
	}
	delete(kq.unknown, q.id)
	if q.mode.on() {
		delete(kq.since, q.id)
		q.topicKeys = topicKeys{order: q.order + 1, virtual: q.virtual} // refOf drops the refs that are left
		kq.due.rearmAll()                                               // the queued timers come back through the wheel
	}
	q.mode = want
	q.shareTurns()
	if !want.on() {
		return
	}
	q.keys = map[uint64]*keyQueue{}
	if _, known := kq.since[q.id]; known {
		return
	}
	kq.since[q.id] = since
	if c := kq.table.Counts(q.id); c.Scheduled+c.Leased == 0 {
		return
	}
	if want.most > 0 {
		kq.findBlockers()
	}
	for f := range q.activeLeases() {
		f.key = nil // one that was dropped
		if want.most > 0 && f.phase >= started {
			continue // the walk finds it
		}
		f.key = kq.key(q, f.handle)
		f.key.leased++
		f.key.active = f
		f.takenAt = noToken
	}
}

// forget drops what is known of a topic that is gone. One that this node has not learned of yet may
// have a rate.
func (kq *keyQueues) forget(id timer.TopicID) {
	delete(kq.since, id)
	if kq.cfg.Topics.Given(id) {
		delete(kq.unknown, id)
	}
}

// pruneBudget is about how many keys, and entries of them, are pruned in one sweep.
const pruneBudget = 4 * PopBudget

// prune removes outdated entries from key queues once more than half must be outdated (I15),
// some keys at a time, in turn. A long queue is set aside for compact. A step pays for 16 entries.
func (kq *keyQueues) prune(q *topicQueue) {
	more, work := true, 0
	lane := func(l *keyLane) {
		used, long := kq.pruneLane(l)
		work += 1 + used
		more = !kq.env.Spent(1+used/16) && work < pruneBudget && !long
	}
	for n := q.keyRing.Len(); n > 0 && more; n-- {
		k := q.keyRing.Rotate()
		lane(&k.first)
		if k.keyTurns != nil {
			for n := k.lanes.Len(); n > 0 && more; n-- {
				lane(k.lanes.Rotate())
			}
		}
		kq.forgetEmpty(k)
	}
}

// pruneLane removes the outdated entries of a lane. long: there are so many that it is set aside.
func (kq *keyQueues) pruneLane(l *keyLane) (entries int, long bool) {
	before := l.due.len()
	if before > PopBudget {
		kq.deferCompaction(l)
		return 0, true
	}
	l.due.filter(kq.current)
	l.key.count(l.due.len()-before, 0)
	kq.rest(l)
	return before, false
}

func (kq *keyQueues) deferCompaction(l *keyLane) {
	l.key.count(-l.due.len(), 0)
	kq.compaction.add(staleQueue{heap: l.due})
	l.due = heap[entry]{}
	kq.rest(l)
}

// preemptUnstarted returns a lease that was taken ahead of its due time, if an earlier timer of the
// key has come since.
func (kq *keyQueues) preemptUnstarted(k *keyQueue) {
	f, due := k.active, &k.first.due
	if f == nil || f.firm || f.revoked || !f.unstarted() || due.len() == 0 ||
		!due.top().before(entry{dueMs: f.dueMs, seq: f.seq}) {
		return
	}
	if f.phase == held {
		kq.leases.revoke(f)
	} else {
		f.revoked = true
	}
}
