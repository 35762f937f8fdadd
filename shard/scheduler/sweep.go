package scheduler

// sweepBudget is how many topics, and how many destination queues, a sweep looks at.
const sweepBudget = 4096

// Sweep drops idle queues and outdated entries, so that deleted topics and receivers cost nothing.
// It goes on from where the last one ended.
func (l *Scheduler) Sweep() {
	if !l.active {
		return
	}
	d := &l.due
	d.sweeps++
	for n := 0; n < sweepBudget && d.idle.Len() > 0 && d.idle.First().idleSince < d.sweeps-1; n++ {
		l.forgetDest(d.idle.First())
	}
	if len(d.compacting) > 0 {
		return
	}
	l.prune(&d.later, l.table.Totals().Scheduled)
	l.prune(&d.exact, l.table.Totals().Scheduled)
	for range min(sweepBudget, len(d.list)) {
		if d.sweepAt--; d.sweepAt < 0 || d.sweepAt >= len(d.list) {
			if d.sweepAt = len(d.list) - 1; d.sweepAt < 0 {
				return
			}
		}
		l.sweepTopic(d.list[d.sweepAt])
	}
}

// sweepTopic drops a topic that has nothing, and has its timers queued again once an eighth of the
// entries must be outdated (I15): they are counted as if they waited.
func (l *Scheduler) sweepTopic(q *topicQueue) {
	timers := int(l.table.Counts(q.id).Scheduled)
	if q.queued() > timers+timers/8 && len(q.moving) == 0 {
		l.reroute(q)
	}
	if q.inLine > 2*timers+512 {
		l.pruneKeys(q)
	}
	if len(q.dests)+len(q.moving)+len(q.keys) == 0 && q.tenant == nil && !q.listed && !q.deferred.In() && !q.withSlot.In() {
		l.forgetTopic(q)
	}
}
