// Package idle finds when all workers have nothing to do at an instant of a manual clock.
package idle

import (
	"math"
	"sync/atomic"
)

// Finder knows the workers' idle periods. Begin and End are called by each worker for its turns,
// Settled by one goroutine at a time.
type Finder struct {
	turns   atomic.Uint64            // that have begun
	periods []atomic.Pointer[Period] // by worker; nil: it is in a turn, or has something to do
	ended   chan struct{}            // capacity 1
}

// Period is from one instant to another: a worker has nothing to do until then.
type Period struct{ NowMs, NextMs int64 }

// New returns the Finder of so many workers.
func New(workers int) *Finder {
	return &Finder{periods: make([]atomic.Pointer[Period], workers), ended: make(chan struct{}, 1)}
}

// Begin is called before a worker takes its events.
func (f *Finder) Begin(worker int) {
	f.turns.Add(1)
	f.periods[worker].Store(nil)
}

// End records what the worker has to do; nil: something, now.
func (f *Finder) End(worker int, p *Period) {
	f.periods[worker].Store(p)
	select {
	case f.ended <- struct{}{}:
	default:
	}
}

// Ended returns a channel that gets a value when Settled may have changed.
func (f *Finder) Ended() <-chan struct{} { return f.ended }

// Settled reports whether no worker has anything to do at an instant, and when one next has;
// math.MaxInt64: never. hasEvents reports whether something waits for a worker's next turn.
func (f *Finder) Settled(nowMs int64, hasEvents func(worker int) bool) (nextMs int64, settled bool) {
	turns := f.turns.Load()
	nextMs = math.MaxInt64
	for i := range f.periods {
		waits := hasEvents(i)
		p := f.periods[i].Load()
		if waits || p == nil || p.NowMs != nowMs {
			return 0, false
		}
		nextMs = min(nextMs, p.NextMs)
	}
	// A turn may have made events for a worker that was looked at before.
	return nextMs, f.turns.Load() == turns
}
