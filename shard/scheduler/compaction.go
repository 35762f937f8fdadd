package scheduler

import "carillon/timer"

// staleQueue is a queue that was set aside because most of it, or its front, is outdated; for
// example its topic was dropped.
type staleQueue struct {
	heap[entry]
	// seen are the timers that were found in it, and in those that were set aside with it. nil: no
	// timer is in it twice.
	seen map[timer.Handle]bool
}

// compaction rids queues of their outdated entries, and drops those that have nothing, so that
// deleted topics and receivers cost nothing.
type compaction struct {
	queues   []staleQueue
	sweeping int // topics that the sweep has not looked at yet

	*leader
	changed *changedTopics
	due     *dueQueues
	keys    *keyQueues
	topics  *topicQueues
}

func newCompaction(s *Scheduler) compaction {
	return compaction{
		leader:  &s.leader,
		changed: &s.changed, due: &s.due, keys: &s.Keys, topics: &s.topics,
	}
}

// keysInStep is how many keys a sweep looks at in a step of Env.Spent.
const keysInStep = 4

// sweepBudget is how many topics, and how many destination queues, a sweep looks at.
const sweepBudget = 4096

// begin begins a sweep, which continues from where the last one ended.
func (c *compaction) begin() {
	if !c.active || c.keys.survey.left > 0 { // lookAt relies on the queues that there are
		return
	}
	c.topics.forgetIdle()
	if len(c.queues) > 0 {
		return
	}
	c.prune(&c.due.later, c.table.Totals().Scheduled)
	c.prune(&c.due.exact, c.table.Totals().Scheduled)
	c.sweeping = min(sweepBudget, len(c.topics.list))
	c.sweep()
}

// sweep looks at topics, while the turn has time for them.
func (c *compaction) sweep() {
	for c.sweeping > 0 {
		c.sweeping--
		steps := 1
		if q := c.topics.nextToSweep(); q != nil {
			steps += c.sweepTopic(q) / keysInStep
		}
		if c.env.Spent(steps) && c.sweeping > 0 {
			c.env.WakeNext()
			return
		}
	}
}

// sweepTopic drops a topic that has nothing, no call that runs and no timers that wait for their
// spread: changedTopics looks only at those that are kept. It has a topic's timers queued again once
// an eighth of the entries must be outdated (I15). It returns how many keys it looked at.
func (c *compaction) sweepTopic(q *topicQueue) (keys int) {
	timers := int(c.table.Counts(q.id).Scheduled)
	if q.queued() > timers+timers/8 && len(q.moving) == 0 {
		c.changed.reroute(q)
	}
	if q.inLine > 2*timers+512 {
		c.keys.prune(q)
	}
	keys = c.keys.forgetRested(q, pruneBudget)
	wheel, _ := c.table.WheelWaits(q.id)
	if len(q.dests)+len(q.moving)+len(q.keys)+q.dueOrder.Len()+q.leases.Len() == 0 && wheel.Spread == 0 && !q.turn.In() && !q.listed && !q.deferred.In() && !q.withSlot.In() &&
		q.limiterUse.rests(c.now.Mono) && q.keyless.rests(c.now.Mono) {
		c.topics.forgetTopic(q)
	}
	return keys
}

// prune sets a queue aside for compact once more than half of it must be outdated (I15).
func (c *compaction) prune(h *heap[entry], timers int64) {
	if int64(h.len()) > 2*timers+512 {
		c.setAside(h)
	}
}

// setAside sets queues aside whose entries may be outdated, or in one twice.
func (c *compaction) setAside(queues ...*heap[entry]) {
	seen := map[timer.Handle]bool{}
	for _, h := range queues {
		if h.len() > 0 {
			c.add(staleQueue{*h, seen})
			*h = heap[entry]{}
		}
	}
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
	c.queues = nil
}

// compactOne queues the last entry of the last of the staleQueues again, if it is current.
func (c *compaction) compactOne(horizon int64) {
	p := &c.queues[len(c.queues)-1]
	if p.len() == 0 {
		c.queues = c.queues[:len(c.queues)-1]
		return
	}
	e, seen := p.takeLast(), p.seen
	if !c.current(e) || seen[e.handle] {
		return
	}
	if seen != nil {
		seen[e.handle] = true
	}
	c.table.WaitIn(e.handle, nil, 0)
	c.due.classify(e, horizon) // it may set more aside
}
