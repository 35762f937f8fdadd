package scheduler

import (
	"reflect"

	"carillon/timer"
)

// changedTopics takes over the policies of topics that have changed, and queues their timers again.
type changedTopics struct {
	rerouting []*topicQueue   // topics whose timers are being queued again
	named     []timer.TopicID // to be looked at
	refreshAt int             // topics in topicQueues.list below it are to be looked at, too

	*leader
	due    *dueQueues
	keys   *keyQueues
	limits *topicLimits
	topics *topicQueues
}

func newChangedTopics(s *Scheduler) changedTopics {
	return changedTopics{
		leader: &s.leader,
		due:    &s.due, keys: &s.Keys, limits: &s.limits, topics: &s.topics,
	}
}

// begin takes over changed topics, in slices; ids: none if any may have changed. One whose turn
// comes is looked at then, so that nothing is leased by an old policy. It reports whether there is
// something to do. Cost: O(1) for each that is named, in all O(topics with queues) if none is.
func (ct *changedTopics) begin(ids []timer.TopicID) (some bool) {
	if !ct.active {
		return false
	}
	if len(ids) == 0 {
		ct.refreshAt = len(ct.topics.list)
		return true
	}
	for _, id := range ids {
		if ct.topics.byID[id] != nil {
			ct.named, some = append(ct.named, id), true
		}
	}
	return some
}

// refreshSome looks at the topics that may have changed, at most PopBudget a turn.
func (ct *changedTopics) refreshSome() {
	for n := 0; ct.waiting(); n++ {
		if n == PopBudget || ct.env.Spent(1) {
			ct.env.WakeNext()
			return
		}
		if q := ct.next(); q != nil {
			if t := ct.topic(q.id); t != q.topic {
				ct.refresh(q, t)
			}
		}
	}
}

// waiting reports that topics are still to be looked at.
func (ct *changedTopics) waiting() bool { return len(ct.named) > 0 || ct.refreshAt > 0 }

// next takes one of them; nil if it is gone. It goes down the list: a topic that is dropped
// meanwhile is replaced by one that was looked at.
func (ct *changedTopics) next() *topicQueue {
	if last := len(ct.named) - 1; last >= 0 {
		id := ct.named[last]
		ct.named = ct.named[:last]
		return ct.topics.byID[id]
	}
	if ct.refreshAt--; ct.refreshAt >= len(ct.topics.list) {
		return nil
	}
	return ct.topics.list[ct.refreshAt]
}

// refresh takes over a changed topic. If its policy has changed, its timers are queued again, since
// their destinations may have changed.
func (ct *changedTopics) refresh(q *topicQueue, topic *timer.Topic) {
	if resumed(q.topic, topic) {
		q.resumedMs = ct.now.WallMs
	}
	same := topic != nil && q.topic != nil && reflect.DeepEqual(&topic.Policy, &q.topic.Policy)
	if !same && ct.spreadsOtherwise(q, topic) {
		ct.due.rearmAll() // the timers wait in the wheel, by the old policy
	}
	q.topic = topic
	if same {
		ct.followPause(q)
		return
	}
	ct.keys.setOrder(q)
	ct.limits.set(q)
	ct.reroute(q)
}

// spreadsOtherwise reports whether timers that wait for their spread wait for another time by a new
// policy. Their number is known, but not which they are: a walk finds them.
func (ct *changedTopics) spreadsOtherwise(q *topicQueue, topic *timer.Topic) bool {
	if topic == nil || q.topic == nil || topic.Policy.SpreadMs == q.topic.Policy.SpreadMs && topic.Policy.Serial == q.topic.Policy.Serial {
		return false
	}
	wheel, _ := ct.table.WheelWaits(q.id)
	return wheel.Spread > 0
}

// reroute starts to queue a topic's timers again. Cost: O(permits that it has).
func (ct *changedTopics) reroute(q *topicQueue) {
	ct.topics.returnSpares(q)
	ct.topics.returnCredits(q)
	ct.topics.leave(q)
	ct.limits.rest(q) // consumers may fetch its timers now: it asks for none by itself then
	if len(q.moving) == 0 {
		ct.rerouting = append(ct.rerouting, q)
	}
	q.moving = append(q.moving, q.dests)
	q.moved = map[timer.Handle]bool{} // those that were moved are to be moved once more
	q.destinations = newDestinations()
	ct.env.Wake()
}

// move queues timers of changed topics again, at most PopBudget a turn.
func (ct *changedTopics) move() {
	for budget := PopBudget; len(ct.rerouting) > 0; {
		if budget <= 0 || ct.env.Spent(0) {
			ct.env.WakeNext()
			return
		}
		q := ct.rerouting[0]
		if len(q.moving) == 0 {
			ct.rerouting = ct.rerouting[1:]
			q.moved = nil
			ct.topics.join(q)
			continue
		}
		used, _ := ct.due.spentOn(ct.moveSome(q, budget))
		budget -= used
	}
}

// moveSome empties the last of a topic's old destination queues within the budget, and returns how
// much of the budget it used. Outdated entries are dropped, and those that are queued twice.
func (ct *changedTopics) moveSome(q *topicQueue, budget int) (used int) {
	list := &q.moving[len(q.moving)-1]
	if len(*list) == 0 {
		q.moving = q.moving[:len(q.moving)-1]
		return 1
	}
	old := (*list)[len(*list)-1]
	for _, h := range []*heap[entry]{&old.fresh, &old.backlog} {
		for ; used < budget && h.len() > 0; used++ {
			e := h.takeLast()
			if ct.current(e) && !q.moved[e.handle] {
				q.moved[e.handle] = true
				ct.due.classify(e, max(e.dueMs, ct.now.WallMs+ct.due.lookAhead.Milliseconds()))
			}
		}
	}
	if old.len() == 0 {
		old.fresh, old.backlog = heap[entry]{}, heap[entry]{}
		old.idleSpot.Leave()
		*list = (*list)[:len(*list)-1]
	}
	return used + 1
}
