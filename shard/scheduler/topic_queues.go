package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// topicQueues are the topics with timers that have left the wheel and have no lease yet, and what
// their destination queues wait for.
//
// Cost: a timer that becomes due, a permit, a credit or a refusal costs O(log n) in the destination
// queues of its topic. Whatever is done for all topics or destinations is done in slices.
type topicQueues struct {
	byID      map[timer.TopicID]*topicQueue
	list      []*topicQueue // all of them, in no order
	turns     turns
	deferred  order.Ring[*topicQueue] // topics that wait until the order of their keys is known
	withSlot  order.Ring[*topicQueue]
	spares    order.Ring[*destQueue] // with permits that are not used yet
	idle      order.Ring[*destQueue] // the longest first
	shut      heap[shutKey]          // what a breaker or a limit refused, by when to ask again; keys too
	gathering order.Heap[*group]     // by when they go
	sweepAt   int
	sweeps    int64
	made      int // queues, since spentOn

	*leader
	compaction *compaction
	due        *dueQueues
	keys       *keyQueues
	limits     *topicLimits
	pulls      *pulledTopics
}

func newTopicQueues(s *Scheduler) topicQueues {
	return topicQueues{
		byID: map[timer.TopicID]*topicQueue{}, turns: turns{tenants: map[string]*tenantTurns{}}, leader: &s.leader,
		compaction: &s.compaction, due: &s.due, keys: &s.Keys, limits: &s.limits, pulls: &s.Pulls,
	}
}

// shutKey orders what was refused: a destination queue, a topic or a key.
type shutKey struct {
	until time.Duration // monotonic
	dest  *destQueue
	topic *topicQueue
	key   *keyQueue
}

func (k shutKey) before(o shutKey) bool { return k.until < o.until }

// queue finds or makes the queue of a topic.
func (tq *topicQueues) queue(id timer.TopicID) *topicQueue {
	q := tq.byID[id]
	if q != nil {
		return q
	}
	q = &topicQueue{queues: tq, id: id, topic: tq.topic(id), at: len(tq.list)}
	q.turn.Of, q.deferred.Of, q.withSlot.Of, q.limited.Of = q, q, q, q
	q.destinations = newDestinations()
	tq.byID[id] = q
	tq.list = append(tq.list, q)
	tq.keys.setOrder(q)
	tq.limits.set(q)
	tq.countQueue()
	return q
}

// forgetTopic drops the queue of a topic that has nothing.
func (tq *topicQueues) forgetTopic(q *topicQueue) {
	tq.limits.leave(q)
	delete(tq.byID, q.id)
	if q.topic == nil {
		tq.keys.forget(q.id)
	}
	last := len(tq.list) - 1
	tq.list[q.at] = tq.list[last]
	tq.list[q.at].at = q.at
	tq.list[last] = nil
	tq.list = tq.list[:last]
}

// resumeDeferred gives the deferred topics their turns again, once the order of keys is known.
func (tq *topicQueues) resumeDeferred() {
	if !tq.due.caughtUp || len(tq.compaction.queues) > 0 || tq.keys.scanning {
		return
	}
	for n := 0; tq.deferred.Len() > 0; n++ {
		if n == PopBudget {
			tq.env.WakeNext()
			return
		}
		q := tq.deferred.First()
		q.deferred.Leave()
		tq.join(q)
	}
}

// join gives a topic its turns; a pulled topic is marked ready instead.
func (tq *topicQueues) join(q *topicQueue) {
	switch {
	case tq.byID[q.id] != q || q.deferred.In():
	case q.pulled():
		tq.pulls.markReady(q)
	case q.tenant == nil && (q.topic == nil || q.id == table.CanaryTopic):
		tq.turns.join(q, "")
	case q.tenant == nil:
		tq.turns.join(q, tq.cfg.Dispatcher.Tenant(q.topic))
	}
}

// countQueue counts a queue that was made, which takes time of the turn.
func (tq *topicQueues) countQueue() { tq.made++ }

// forgetIdle drops destination queues that had nothing in the last two sweeps.
func (tq *topicQueues) forgetIdle() {
	tq.sweeps++
	for n := 0; n < sweepBudget && tq.idle.Len() > 0 && tq.idle.First().idleSince < tq.sweeps-1 && !tq.env.Spent(1); n++ {
		tq.forgetDest(tq.idle.First())
	}
}

// nextToSweep returns the topics in turn; nil if there is none. It goes down the list, as
// changedTopics does.
func (tq *topicQueues) nextToSweep() *topicQueue {
	if tq.sweepAt--; tq.sweepAt < 0 || tq.sweepAt >= len(tq.list) {
		tq.sweepAt = len(tq.list) - 1
	}
	if tq.sweepAt < 0 {
		return nil
	}
	return tq.list[tq.sweepAt]
}

// takeMade returns how many queues were made since it was last called.
func (tq *topicQueues) takeMade() int {
	n := tq.made
	tq.made = 0
	return n
}

// askAgain gives a topic its turn again after a while.
func (tq *topicQueues) askAgain(q *topicQueue, after time.Duration) {
	tq.shut.push(shutKey{until: tq.now.Mono + after, topic: q})
}

// leave takes a topic's turns away, until it joins again.
func (tq *topicQueues) leave(q *topicQueue) { tq.turns.leave(q) }

// reopen has what was refused ask again when its time has come.
func (tq *topicQueues) reopen() {
	for n := 0; tq.shut.len() > 0 && tq.shut.top().until <= tq.now.Mono; n++ {
		if n == PopBudget || tq.env.Spent(1) {
			tq.env.WakeNext()
			return
		}
		k := tq.shut.pop()
		switch {
		case k.topic != nil:
			tq.join(k.topic)
			continue
		case k.key != nil:
			tq.keys.reopen(k.key, k.until)
			continue
		}
		if d := k.dest; d.shutUntil == k.until && tq.keeps(d) {
			d.shutUntil, d.shutMs = 0, tq.now.WallMs
			tq.update(d)
			tq.join(d.queue)
		}
	}
}

// ordered reports that the order of the topic's timers is known: in a serial topic no earlier one
// of a key is missing, and all leases that count at its limits are found.
func (tq *topicQueues) ordered(q *topicQueue) bool {
	if q.mode.serial && (!tq.due.caughtUp || len(q.moving) > 0 || len(tq.compaction.queues) > 0) {
		return false
	}
	return !tq.keys.scanning || !tq.keys.needsScan(q)
}

// creditGranted handles a slot that a topic waited for.
func (tq *topicQueues) creditGranted(q *topicQueue, class int, c delivery.Credit) {
	q.asks[class] = false
	if !tq.active || tq.byID[q.id] != q || q.pulled() || q.credits[class] != nil {
		c.Cancel()
		return
	}
	q.credits[class] = c
	tq.withSlot.Push(&q.withSlot)
	tq.join(q)
	tq.env.Wake()
}

// returnCredits gives the slots that a topic cannot use now to others.
func (tq *topicQueues) returnCredits(q *topicQueue) {
	q.withSlot.Leave()
	for class, c := range q.credits {
		if c != nil {
			q.credits[class] = nil
			c.Cancel()
		}
	}
}

// returnSpares gives the permits of a topic to others.
func (tq *topicQueues) returnSpares(q *topicQueue) {
	for q.ready[0].Len() > 0 {
		tq.returnPermits(q.ready[0].First())
	}
}

// deliveryChanged handles a logged change of a topic's delivery, by call or by pull: timers that it
// held back may go now.
func (tq *topicQueues) deliveryChanged(topic timer.TopicID) {
	if q := tq.byID[topic]; tq.active && q != nil {
		tq.join(q)
		tq.env.WakeNext()
	}
}
