package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Settled reports whether nothing happens before NextWake by itself: what is due waits for an
// instant, for a client or for a consumer. It is for a manual clock, by which no lease is ahead of
// its time. Cost: O(1) while a lease is active or being queued, else O(topics with queues).
func (s *Scheduler) Settled() bool {
	if !s.active || !s.timed || s.doubted || s.HasProposals() || len(s.leases.byTimer)+len(s.pulls.reserved) > 0 {
		return false
	}
	if !s.due.caughtUp || s.due.rearming || s.inherited.scanning || s.keys.scanning || len(s.compaction.queues) > 0 ||
		len(s.changed.rerouting) > 0 || s.changed.refreshAt > 0 || s.topics.deferred.Len() > 0 {
		return false
	}
	for _, q := range s.topics.list {
		if q.entries[waiting] > 0 || q.asks[0] || q.asks[1] {
			return false
		}
	}
	return true
}

// Left counts the timers that were due by now and have not ended, once Settled. Cost: O(entries of
// the queues).
func (s *Scheduler) Left() int64 {
	n := s.table.Totals().Leased - s.table.Counts(table.CanaryTopic).Leased
	seen := map[timer.Handle]bool{}
	count := func(list ...entry) {
		for _, e := range list {
			if !seen[e.handle] && s.current(e) {
				seen[e.handle] = true
				n++
			}
		}
	}
	for _, q := range s.topics.list {
		for _, d := range q.dests {
			count(d.fresh.items...)
			count(d.backlog.items...)
		}
		for _, k := range q.keys {
			count(k.due.items...)
		}
	}
	for i := range s.zones.list {
		count(s.zones.list[i].entry)
	}
	return n
}
