package scheduler

import "carillon/timer"

// sweepBudget is how many topics, and how many destination queues, a sweep looks at.
const sweepBudget = 4096

// Sweep drops idle queues and outdated entries, so that deleted topics and receivers cost nothing.
// It continues from where the last one ended.
func (s *Scheduler) Sweep() {
	if !s.active {
		return
	}
	s.topics.forgetIdle()
	if len(s.compaction.queues) > 0 {
		return
	}
	s.compaction.prune(&s.due.later, s.table.Totals().Scheduled)
	s.compaction.prune(&s.due.exact, s.table.Totals().Scheduled)
	for range min(sweepBudget, len(s.topics.list)) {
		q := s.topics.nextToSweep()
		if q == nil {
			return
		}
		s.sweepTopic(q)
	}
}

// sweepTopic drops a topic that has nothing, and has its timers queued again once an eighth of the
// entries must be outdated (I15): they are counted as if they waited.
func (s *Scheduler) sweepTopic(q *topicQueue) {
	timers := int(s.table.Counts(q.id).Scheduled)
	if q.queued() > timers+timers/8 && len(q.moving) == 0 {
		s.changed.reroute(q)
	}
	if q.waitInLine() > 2*timers+512 {
		s.keys.prune(q)
	}
	s.keys.forgetRested(q)
	if len(q.dests)+len(q.moving)+len(q.keys) == 0 && q.tenant == nil && !q.listed && !q.deferred.In() && !q.withSlot.In() {
		s.topics.forgetTopic(q)
	}
}

// staleQueue is a queue that was set aside because most of it, or its front, is outdated; for
// example its topic was dropped.
type staleQueue struct {
	items []entry
	once  bool // a timer may be in it twice
}

// compaction holds queues that are being rid of their outdated entries.
type compaction struct {
	queues []staleQueue
	seen   map[timer.Handle]bool // timers that were found in them, of those that may be in one twice

	*leader
	due *dueQueues
}

func newCompaction(s *Scheduler) compaction {
	return compaction{
		leader: &s.leader,
		due:    &s.due,
	}
}

// prune sets a queue aside for compact once more than half of it must be outdated (I15).
func (c *compaction) prune(h *heap[entry], timers int64) {
	if int64(h.len()) <= 2*timers+512 {
		return
	}
	c.add(staleQueue{h.items, true})
	*h = heap[entry]{}
}

func (c *compaction) add(p staleQueue) {
	c.queues = append(c.queues, p)
	c.env.WakeNext()
}

// compact queues the current entries of staleQueues again, at most PopBudget a turn. Serial topics
// wait until it is done.
func (c *compaction) compact() {
	if len(c.queues) == 0 {
		return
	}
	if c.seen == nil {
		c.seen = map[timer.Handle]bool{}
	}
	horizon := c.now.WallMs + c.due.lookAhead.Milliseconds()
	for budget, over := PopBudget, false; budget > 0 && !over && len(c.queues) > 0; {
		c.compactOne(horizon)
		var steps int
		steps, over = c.due.spentOn(1)
		budget -= steps
	}
	if len(c.queues) > 0 {
		c.env.WakeNext()
		return
	}
	c.queues, c.seen = nil, nil
}

// compactOne queues the last entry of the last of the staleQueues again, if it is current.
func (c *compaction) compactOne(horizon int64) {
	p := &c.queues[len(c.queues)-1]
	last := len(p.items) - 1
	if last < 0 {
		c.queues = c.queues[:len(c.queues)-1]
		return
	}
	e, once := p.items[last], p.once
	p.items = p.items[:last]
	if !c.current(e) || once && c.seen[e.handle] {
		return
	}
	if once {
		c.seen[e.handle] = true
	}
	c.due.classify(e, horizon) // it may set more aside
}
