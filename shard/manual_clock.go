package shard

import (
	"math"
	"sync/atomic"
)

// A manual clock stands still while there is work. It is moved to the next instant at which
// something is due once all work of the present one is done: Settled finds that. What waits for an
// instant must therefore be in Scheduler.NextWake, and what waits for work under way must keep
// Scheduler.Settled false. A poll would do neither.

// manualClock is what the workers have to do by themselves, for Host.Settled.
type manualClock struct {
	turns atomic.Uint64          // that have begun
	rests []atomic.Pointer[rest] // by worker; nil: it is in a turn, or has something to do
	moved chan struct{}          // capacity 1: a turn has ended
}

// rest is the state of a worker that has nothing to do at an instant.
type rest struct{ nowMs, nextMs int64 }

func newManualClock(workers int) *manualClock {
	return &manualClock{rests: make([]atomic.Pointer[rest], workers), moved: make(chan struct{}, 1)}
}

// turnBegins is called before a worker takes its events.
func (m *manualClock) turnBegins(w *worker) {
	if m != nil {
		m.turns.Add(1)
		m.rests[w.number].Store(nil)
	}
}

// turnEnds records what the worker has to do. Cost: O(its groups), and once they have nothing to do
// O(their topics with queues).
func (m *manualClock) turnEnds(w *worker) {
	if m == nil {
		return
	}
	if r, ok := w.rest(); ok {
		m.rests[w.number].Store(&r)
	}
	select {
	case m.moved <- struct{}{}:
	default:
	}
}

// rest reports whether the worker has nothing to do now, and when it next has, in wall-clock ms.
func (w *worker) rest() (r rest, ok bool) {
	r = rest{nowMs: w.now.WallMs, nextMs: math.MaxInt64}
	if len(w.again)+len(w.stalled)+len(w.out.inflight)+len(w.out.closed) > 0 || w.out.frame != nil {
		return r, false
	}
	for _, g := range w.groups {
		if len(g.pipeline.proposals)+g.machine.waits() > 0 || g.pipeline.refusedUntil != 0 || g.machine.hasWork() || !g.serving {
			return r, false
		}
	}
	for _, s := range w.shards {
		if !s.scheduler.Settled() {
			return r, false
		}
		r.nextMs = min(r.nextMs, s.scheduler.NextWake())
	}
	return r, r.nextMs > r.nowMs
}

// Settled reports whether the shards have nothing to do at the present instant of a manual clock,
// and when they next have, in wall-clock ms; math.MaxInt64: never. Calls of a Dispatcher that have
// ended, but are not handed on yet, are not seen. It has one caller at a time, as TurnEnded.
func (h *Host) Settled() (nextMs int64, settled bool) {
	m, nextMs := h.manual, int64(math.MaxInt64)
	turns, nowMs := m.turns.Load(), h.cfg.Clock.Look().WallMs
	for _, w := range h.workers {
		w.box.mu.Lock()
		events := len(w.box.events)
		w.box.mu.Unlock()
		r := m.rests[w.number].Load()
		if events > 0 || r == nil || r.nowMs != nowMs {
			return 0, false
		}
		nextMs = min(nextMs, r.nextMs)
	}
	// A turn may have made events for a worker that was looked at before.
	return nextMs, m.turns.Load() == turns
}

// TurnEnded returns a channel that gets a value when Settled may have changed.
func (h *Host) TurnEnded() <-chan struct{} { return h.manual.moved }

// ClockMoved has the workers look at a manual clock that was moved.
func (h *Host) ClockMoved() {
	for _, w := range h.workers {
		select {
		case w.box.wake <- struct{}{}:
		default:
		}
	}
}

// DropFinished has the shards drop finished timers that are kept for too long, which each entry
// does and a clock that runs sees to: the canary's entries do. It reports whether there are any;
// they are gone once it reports none.
func (h *Host) DropFinished() bool {
	var some atomic.Bool
	h.onWorkers(func(w *worker) {
		for _, s := range w.shards {
			if s.scheduler.Leads() && s.table.FinishedOverdue(w.now.WallMs) {
				some.Store(true)
				s.putCanary()
				w.touch(s.g)
			}
		}
	})
	return some.Load()
}

// Left counts the timers that were due by now and have not ended, and those of them that are
// leased.
func (h *Host) Left() (n, leased int64) {
	var sums [2]atomic.Int64
	h.onWorkers(func(w *worker) {
		for _, s := range w.shards {
			n, leased := s.scheduler.Left()
			sums[0].Add(n)
			sums[1].Add(leased)
		}
	})
	return sums[0].Load(), sums[1].Load()
}
