package scheduler

import (
	"maps"
	"reflect"
	"slices"
)

// Refresh takes over changed topics. If a policy has changed, the topic's timers are queued again,
// since their destinations may have changed.
func (l *Scheduler) Refresh() {
	if !l.active {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.due.topics)) {
		q, topic := l.due.topics[id], l.topic(id)
		if topic == q.topic {
			continue
		}
		if q.topic != nil && q.topic.Paused && topic != nil && !topic.Paused {
			q.resumedMs = l.now.WallMs
		}
		same := topic != nil && q.topic != nil && reflect.DeepEqual(&topic.Policy, &q.topic.Policy)
		q.topic = topic
		if same {
			l.applyPause(q)
			continue
		}
		l.setOrder(q)
		l.setLimit(q)
		l.reroute(q)
	}
	for id := range l.keys.inOrder {
		if t := l.topic(id); t == nil || !t.Policy.Serial {
			delete(l.keys.inOrder, id)
		}
	}
}

// applyPause takes over that a topic was paused or resumed. A paused topic returns its unused
// slots.
func (l *Scheduler) applyPause(q *topicQueue) {
	if !q.topic.Paused {
		l.join(q)
		return
	}
	for _, n := range q.lanes {
		if n.spare != nil {
			n.spare.Cancel()
			n.spare = nil
		}
	}
}

// reroute starts to queue a topic's timers again.
func (l *Scheduler) reroute(q *topicQueue) {
	for key := range l.due.routes {
		if key.topic == q.id {
			delete(l.due.routes, key)
		}
	}
	if len(q.moving) == 0 {
		l.due.rerouting = append(l.due.rerouting, q)
	}
	for _, old := range q.lanes {
		if old.spare != nil {
			old.spare.Cancel()
			old.spare = nil
		}
		old.old = true
		q.moving = append(q.moving, old)
	}
	q.lanes = nil
	l.env.Wake()
}

// move queues timers of changed topics again, at most PopBudget a turn.
func (l *Scheduler) move() {
	for budget := PopBudget; len(l.due.rerouting) > 0 && budget > 0; {
		q := l.due.rerouting[0]
		if len(q.moving) == 0 {
			l.due.rerouting = l.due.rerouting[1:]
			continue
		}
		budget -= l.moveSome(q, budget)
	}
	if len(l.due.rerouting) > 0 {
		l.env.WakeNext()
	}
}

// moveSome empties the last of a topic's old destination queues within the budget, and returns how
// much of the budget it used.
func (l *Scheduler) moveSome(q *topicQueue, budget int) (used int) {
	old := q.moving[len(q.moving)-1]
	for _, h := range []*heap[entry]{&old.fresh, &old.backlog} {
		for ; used < budget && len(h.items) > 0; used++ {
			last := len(h.items) - 1
			e := h.items[last]
			h.items = h.items[:last]
			l.classify(e, max(e.dueMs, l.now.WallMs+l.due.lookAhead.Milliseconds()))
		}
	}
	if old.len() == 0 {
		old.fresh, old.backlog = heap[entry]{}, heap[entry]{}
		q.moving = q.moving[:len(q.moving)-1]
	}
	return used + 1
}
