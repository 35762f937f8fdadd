package scheduler

// sweepBudget is how many topics, and how many destination queues, a sweep looks at.
const sweepBudget = 4096

// Sweep drops idle queues and outdated entries, so that deleted topics and receivers cost nothing.
// It goes on from where the last one ended.
func (s *Scheduler) Sweep() {
	if !s.active {
		return
	}
	s.topics.sweeps++
	for n := 0; n < sweepBudget && s.topics.idle.Len() > 0 && s.topics.idle.First().idleSince < s.topics.sweeps-1; n++ {
		s.topics.forgetDest(s.topics.idle.First())
	}
	if len(s.compaction.queues) > 0 {
		return
	}
	s.compaction.prune(&s.due.later, s.table.Totals().Scheduled)
	s.compaction.prune(&s.due.exact, s.table.Totals().Scheduled)
	for range min(sweepBudget, len(s.topics.list)) {
		if s.topics.sweepAt--; s.topics.sweepAt < 0 || s.topics.sweepAt >= len(s.topics.list) {
			if s.topics.sweepAt = len(s.topics.list) - 1; s.topics.sweepAt < 0 {
				return
			}
		}
		s.sweepTopic(s.topics.list[s.topics.sweepAt])
	}
}

// sweepTopic drops a topic that has nothing, and has its timers queued again once an eighth of the
// entries must be outdated (I15): they are counted as if they waited.
func (s *Scheduler) sweepTopic(q *topicQueue) {
	timers := int(s.table.Counts(q.id).Scheduled)
	if q.queued() > timers+timers/8 && len(q.moving) == 0 {
		s.changed.reroute(q)
	}
	if q.inLine > 2*timers+512 {
		s.keys.prune(q)
	}
	if len(q.dests)+len(q.moving)+len(q.keys) == 0 && q.tenant == nil && !q.listed && !q.deferred.In() && !q.withSlot.In() {
		s.topics.forgetTopic(q)
	}
}
