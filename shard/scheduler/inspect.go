package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Inspection counts a scheduler's state, for tests only.
type Inspection struct {
	Leading    bool
	Held       int // applied leases that are not due yet
	Proposed   int // leases in the log's pipeline, as counted
	Unstarted  int // leases with an unused permit, without the canary's
	Spare      int // unused permits of destination queues
	Later      int // timers beyond the look-ahead
	Compacting int // queues that compact has not finished

	ConsumerLeases, ConsumerEnds int // consumers' leases; their ends, stale ones included

	KeyRefs           int // timers that are head of their key, or lease it
	GoneRefs, OldRefs int // … of timers that are gone; … of key queues that were dropped

	Leases map[timer.Handle]InspectedLease
	Topics map[timer.TopicID]InspectedTopic
}

// InspectedLease is a lease for a call.
type InspectedLease struct {
	Pending bool // in the log's pipeline, not applied yet
	Waiting int  // client changes that wait for it
}

// InspectedTopic counts the queues of a topic.
type InspectedTopic struct {
	Queued int // entries of its destination queues
	InLine int // entries of its key queues, without heads
	Keys   int
	Calls  int // leases that its destination queues count
}

// InspectedLimit counts the uses of a topic's limit.
type InspectedLimit struct {
	Leases, Waiting int
}

// Inspect is for tests, from any goroutine.
func (l *Limits) Inspect() map[timer.TopicID]InspectedLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[timer.TopicID]InspectedLimit{}
	for id, b := range l.topics {
		b.mu.Lock()
		all[id] = InspectedLimit{Leases: b.leases, Waiting: b.line.Len()}
		b.mu.Unlock()
	}
	return all
}

// Inspect counts the scheduler's state. Like its other methods it runs on the replica's worker.
func (v *view) Inspect() *Inspection {
	i := &Inspection{
		Leading: v.active, Held: v.leases.held.len(), Proposed: v.leases.proposed, Later: v.due.later.len(), Compacting: len(v.compaction.queues),
		ConsumerLeases: len(v.consumers.byTimer), ConsumerEnds: v.consumers.ends.len(), KeyRefs: len(v.keys.refs),
		Leases: map[timer.Handle]InspectedLease{}, Topics: map[timer.TopicID]InspectedTopic{},
	}
	for h, f := range v.leases.byTimer {
		i.Leases[h] = InspectedLease{Pending: f.phase == proposed, Waiting: len(f.waiting)}
		if f.queue.queue.id != table.CanaryTopic && f.unstarted() {
			i.Unstarted++
		}
	}
	for id, q := range v.topics.byID {
		t := InspectedTopic{InLine: q.inLine, Keys: len(q.keys)}
		for _, n := range q.dests {
			t.Queued += n.len()
			t.Calls += n.flying
			i.Spare += len(n.spares)
		}
		i.Topics[id] = t
	}
	for h, c := range v.keys.refs {
		if !v.table.Live(h, c.seq) {
			i.GoneRefs++
		}
		if c.lane.key.dropped() {
			i.OldRefs++
		}
	}
	return i
}

// Settled reports whether nothing happens before NextWake by itself: what is due waits for an
// instant, for a client or for a consumer. It is for a manual clock, by which no lease is ahead of
// its time. Cost: O(1) while a lease is active or being queued, else O(topics with queues).
func (s *Scheduler) Settled() bool {
	if !s.active || !s.timed || s.doubted || !s.cfg.Topics.Current() || s.HasProposals() || len(s.Leases.byTimer)+len(s.Pulls.reserved) > 0 {
		return false
	}
	if !s.due.caughtUp || s.due.rearming || s.inherited.scanning || s.Keys.scanning || len(s.compaction.queues)+s.compaction.sweeping > 0 ||
		len(s.changed.rerouting) > 0 || s.changed.refreshAt > 0 || s.topics.deferred.Len() > 0 {
		return false
	}
	for _, q := range s.topics.list {
		if q.standing[waiting] > 0 || q.asks[0] || q.asks[1] {
			return false
		}
	}
	return true
}

// Left counts the timers that were due by now and have not ended, once they have left the wheel, and
// those of them that are leased. Cost: O(entries of the queues).
func (s *Scheduler) Left() (n, leased int64) {
	_, inWheel := s.table.WheelWaits(table.CanaryTopic)
	leased = s.table.Totals().Leased - s.table.Counts(table.CanaryTopic).Leased
	n = leased + inWheel.Paused
	seen := map[timer.Handle]bool{}
	count := func(e entry) {
		if !seen[e.handle] && s.current(e) {
			seen[e.handle] = true
			n++
		}
	}
	countAll := func(list *heap[entry]) {
		for e := range list.all() {
			count(e)
		}
	}
	for _, q := range s.topics.list {
		for _, d := range q.dests {
			countAll(&d.fresh)
			countAll(&d.backlog)
		}
		for _, k := range q.keys {
			countAll(&k.first.due)
			if k.keyTurns != nil {
				for _, l := range k.more {
					countAll(&l.due)
				}
			}
		}
	}
	for i := range s.zones.list {
		count(s.zones.list[i].entry)
	}
	return n, leased
}
