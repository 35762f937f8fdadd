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
	UnknownZone                   int64         // … of which in a time zone that this node lacks
	Waiting                       timer.Waiting // … of all that wait, by what for; for a leader also those of replicas that know of none
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
	walkLeaders(h, func(l *timerShard, at *int) bool {
		return l.scheduler.Overdue(at, func(_ timer.TopicID, timers, _ int64) { s.Overdue += timers })
	})
	walkLeaders(h, func(l *timerShard, at *int) bool { return l.scheduler.Waiting(at, &s.Waiting) })
	return s
}

func (g *group) stats(s *Stats) {
	if g.leader {
		s.Leads++
	}
	if g.fault() != "" || g.compare.differs {
		s.Faults++
	}
	g.machine.stats(s)
}

// walkLeaders has the workers look at the shards that this node leads, a slice of one of them in
// each event, so that their turns stay short. look goes on at the cursor, and reports whether the
// shard is done. It runs on one worker at a time.
func walkLeaders[Cursor any](h *Host, look func(s *timerShard, at *Cursor) (done bool)) {
	type place struct {
		shard int
		at    Cursor
	}
	var mu sync.Mutex
	places := map[*worker]*place{}
	for more := true; more; {
		more = false
		h.onWorkers(func(w *worker) {
			mu.Lock()
			defer mu.Unlock()
			p := places[w]
			if p == nil {
				p = &place{}
				places[w] = p
			}
			for p.shard < len(w.shards) {
				s := w.shards[p.shard]
				if s.scheduler.Leads() && !look(s, &p.at) {
					more = true
					return
				}
				*p = place{shard: p.shard + 1}
			}
		})
	}
}

// DueFor counts the due timers in the destination queues of the shards that this node leads, by
// destination. Of a serial topic only the first timer of each key is in a queue.
func (h *Host) DueFor() map[scheduler.Destination]int {
	sum := map[scheduler.Destination]int{}
	walkLeaders(h, func(l *timerShard, at *scheduler.DueCursor) bool { return l.scheduler.DueFor(at, sum) })
	return sum
}

// Held returns how many leases of a topic with a limit this node has acquired or inherited, and
// that have not ended.
func (h *Host) Held(id timer.TopicID) int { return h.limits.Held(id) }
