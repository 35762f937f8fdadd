package scheduler

import (
	"reflect"

	"carillon/timer"
)

// Refresh takes over changed topics, in slices. One whose turn comes is looked at then, so that
// nothing is leased by an old policy.
func (l *Scheduler) Refresh() {
	if l.active {
		l.due.refreshAt = len(l.due.list)
	}
}

// refreshSome looks at the topics that may have changed, at most PopBudget a turn. It goes down the
// list: a topic that is dropped meanwhile is replaced by one that was looked at.
func (l *Scheduler) refreshSome() {
	d := &l.due
	for n := 0; d.refreshAt > 0; n++ {
		if n == PopBudget || l.env.Spent(1) {
			l.env.WakeNext()
			return
		}
		if d.refreshAt--; d.refreshAt >= len(d.list) {
			continue
		}
		q := d.list[d.refreshAt]
		if t := l.topic(q.id); t != q.topic {
			l.refresh(q, t)
		}
	}
}

// refresh takes over a changed topic. If its policy has changed, its timers are queued again, since
// their destinations may have changed.
func (l *Scheduler) refresh(q *topicQueue, topic *timer.Topic) {
	if q.topic != nil && q.topic.Paused && topic != nil && !topic.Paused {
		q.resumedMs = l.now.WallMs
	}
	same := topic != nil && q.topic != nil && reflect.DeepEqual(&topic.Policy, &q.topic.Policy)
	q.topic = topic
	switch {
	case !same:
		l.setOrder(q)
		l.setLimit(q)
		l.reroute(q)
	case topic.Paused: // others may use its slots
		l.returnSpares(q)
		l.returnCredits(q)
	default:
		l.join(q)
	}
}

// reroute starts to queue a topic's timers again. Cost: O(permits that it has).
func (l *Scheduler) reroute(q *topicQueue) {
	l.returnSpares(q)
	l.returnCredits(q)
	l.due.turns.leave(q)
	if len(q.moving) == 0 {
		l.due.rerouting = append(l.due.rerouting, q)
		q.moved = map[timer.Handle]bool{}
	}
	q.moving = append(q.moving, q.dests)
	q.movingEntries += q.queued()
	q.clearDests()
	l.env.Wake()
}

// move queues timers of changed topics again, at most PopBudget a turn.
func (l *Scheduler) move() {
	for budget := PopBudget; len(l.due.rerouting) > 0; {
		if budget <= 0 || l.env.Spent(0) {
			l.env.WakeNext()
			return
		}
		q := l.due.rerouting[0]
		if len(q.moving) == 0 {
			l.due.rerouting = l.due.rerouting[1:]
			q.moved, q.movingEntries = nil, 0
			l.join(q)
			continue
		}
		used, _ := l.spentOn(l.moveSome(q, budget))
		budget -= used
	}
}

// moveSome empties the last of a topic's old destination queues within the budget, and returns how
// much of the budget it used. Outdated entries are dropped, and those that are queued twice.
func (l *Scheduler) moveSome(q *topicQueue, budget int) (used int) {
	list := &q.moving[len(q.moving)-1]
	if len(*list) == 0 {
		q.moving = q.moving[:len(q.moving)-1]
		return 1
	}
	old := (*list)[len(*list)-1]
	for _, h := range []*heap[entry]{&old.fresh, &old.backlog} {
		for ; used < budget && len(h.items) > 0; used++ {
			last := len(h.items) - 1
			e := h.items[last]
			h.items = h.items[:last]
			q.movingEntries--
			if l.current(e) && !q.moved[e.handle] {
				q.moved[e.handle] = true
				l.classify(e, max(e.dueMs, l.now.WallMs+l.due.lookAhead.Milliseconds()))
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
