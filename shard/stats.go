package shard

import (
	"sync"

	"carillon/shard/scheduler"
	"carillon/timer"
)

// Stats are the host's gauges.
type Stats struct {
	Scheduled, Leased, Done, Dead int64         // timers of led shards
	Overdue                       int64         // due and not called yet
	Waiting                       timer.Waiting // those of them that wait, by what for
	Leads                         int
	Faults                        int // replicas that are stopped, or whose state is wrong or differs
	MemoryBytes                   int64
	Memory                        Memory
	Queued                        int64 // client operations that are not answered yet

	// SealedBy counts the sealed header values of callbacks by their key. Equal values count once
	// per shard.
	SealedBy map[string]int64
}

// Stats returns the gauges.
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
	if g.table == nil || !g.scheduler.Leads() {
		return
	}
	c := g.scheduler.Totals()
	s.Scheduled += c.Scheduled
	s.Leased += c.Leased
	s.Done += c.Done
	s.Dead += c.Dead
	s.MemoryBytes += g.table.MemoryBytes()
	s.SealedBy = g.table.SealedBy(s.SealedBy)
	g.scheduler.Overdue(func(_ timer.TopicID, timers, _ int64) { s.Overdue += timers })
	for cause, n := range g.scheduler.Waiting() {
		s.Waiting[cause] += n
	}
}

// DueFor counts the due timers in the destination queues of the shards that this node leads, by
// destination. Of a serial topic only the first timer of each key is in a queue.
func (h *Host) DueFor() map[scheduler.Destination]int {
	var mu sync.Mutex
	sum := map[scheduler.Destination]int{}
	h.onWorkers(func(w *worker) {
		mu.Lock()
		defer mu.Unlock()
		for _, g := range w.groups {
			if g.table != nil && g.scheduler.Leads() {
				g.scheduler.DueFor(sum)
			}
		}
	})
	return sum
}

// Held returns how many leases of a topic with a limit this node has acquired or inherited, and
// that have not ended.
func (h *Host) Held(id timer.TopicID) int { return h.limits.Held(id) }
