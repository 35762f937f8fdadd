package shard

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"carillon/timer"
)

// CanaryError says that a shard's own timer did not fire lately, so clients' may not either.
type CanaryError struct {
	Shard timer.ShardID
	Late  time.Duration // since the last one; 0: none has passed yet
}

func (e *CanaryError) Error() string {
	if e.Late == 0 {
		return fmt.Sprintf("shard %d has not fired its canary timer yet", e.Shard)
	}
	return fmt.Sprintf("shard %d fired its canary timer %s ago", e.Shard, e.Late.Round(time.Second))
}

// NoLeaderError says that a group which has a replica here has no leader that this node hears of.
type NoLeaderError struct{ Group timer.ShardID }

func (e *NoLeaderError) Error() string {
	if e.Group == Meta {
		return "the meta group has no leader, or not one that this node can reach"
	}
	return fmt.Sprintf("shard %d has no leader, or not one that this node can reach", e.Group)
}

// Stats are the host's gauges.
type Stats struct {
	Scheduled, Leased, Done, Dead int64 // timers of led shards
	Overdue                       int64 // due, and not yet called
	Leads                         int
	Faults                        int // replicas that are stopped, or whose state is wrong or differs
	MemoryBytes                   int64
	Memory                        Memory
	Queued                        int64 // client operations without an answer

	SealedBy map[string]int64 // header values of timers' callbacks, by the key that sealed them; those that are equal count once a shard
}

// Stats gathers the gauges.
func (h *Host) Stats() Stats {
	var mu sync.Mutex
	var s Stats
	s.Memory.Arrivals = h.arriving.Load()
	h.onWorkers(func(w *worker) {
		mu.Lock()
		defer mu.Unlock()
		s.Queued += w.queued.Load()
		m := w.holds()
		s.Memory.add(&m)
		for _, g := range w.groups {
			g.stats(&s)
		}
	})
	return s
}

func (g *group) stats(s *Stats) {
	if g.leader {
		s.Leads++
	}
	if g.fault() != "" || g.compare.differs {
		s.Faults++
	}
	if g.table == nil || !g.scheduler.active {
		return
	}
	c := g.table.Totals()
	canary := g.table.Counts(canaryTopic)
	s.Scheduled += c.Scheduled - canary.Scheduled
	s.Leased += c.Leased - canary.Leased
	s.Done += c.Done - canary.Done
	s.Dead += c.Dead
	s.MemoryBytes += g.table.MemoryBytes()
	s.SealedBy = g.table.targets.sealed.addTo(s.SealedBy)
	for _, f := range g.scheduler.leases.byTimer {
		if f.hidden() && f.queue.queue.id != canaryTopic {
			s.Leased--
			s.Scheduled++
		}
	}
	for _, q := range g.scheduler.due.topics {
		n, _ := q.overdue(g.w.nowMs)
		s.Overdue += n
	}
}

// overdue counts the timers of a topic that are due and wait for a gate, and how long the oldest has.
func (q *topicQueue) overdue(nowMs int64) (n, oldestMs int64) {
	n = int64(q.inLine)
	for _, l := range slices.Concat(q.lanes, q.moving) {
		for _, h := range []*heap[entry]{&l.fresh, &l.backlog} {
			if h.len() == 0 {
				continue
			}
			n += int64(h.len())
			oldestMs = max(oldestMs, nowMs-h.top().dueMs)
		}
	}
	return n, oldestMs
}
