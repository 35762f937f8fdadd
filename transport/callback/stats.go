package callback

import (
	"cmp"
	"slices"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback/address"
)

// maxListed bounds the lists of Breakers and Destinations.
const maxListed = 1000

// lockChunk is how many destinations are looked at in one hold of the lock, so that
// Acquire is never held up for long.
const lockChunk = 128

// all lists the destinations, the last used first.
func (p *Pool) all() []*destination {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*destination, 0, len(p.destinations))
	for e := p.recent.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*destination))
	}
	return all
}

// DestinationStat is one destination as metrics and the console see it.
type DestinationStat struct {
	Destination string                // scheme://host:port
	Breaker     delivery.BreakerState // the worst of its scopes
	Permits     int
	Latency     time.Duration // moving mean
	// When its breaker came into this state; zero: it was never in another.
	Since     time.Time
	ProbeIn   time.Duration // while it is open: when a call may go again
	LastError string        // "" none yet
	FailedAt  time.Time     // when that was
	InRow     int64         // calls that failed since one succeeded
	// Topics are the first of those whose timers called it since this node knows it. MoreTopics:
	// there were others.
	Topics     []string
	MoreTopics bool
}

// stat is the destination as it is now. Its pool's lock is held.
func (d *destination) stat() DestinationStat {
	s := DestinationStat{
		Destination: d.label, Permits: d.slots.Calls(), Latency: time.Duration(d.latency.Load()), InRow: d.inRow.Load(),
	}
	for _, g := range d.gates {
		state := g.circuit.state()
		if state < s.Breaker {
			continue
		}
		if at := g.circuit.changedAt.Load(); at != nil && (state > s.Breaker || s.Since.IsZero() || at.Before(s.Since)) {
			s.Since = *at
		}
		if s.Breaker = state; state == delivery.BreakerOpen {
			s.ProbeIn = max(s.ProbeIn, d.pool.until(g.circuit.retryAt(true)))
		}
	}
	if c := d.topics.Load(); c != nil {
		s.Topics, s.MoreTopics = c.topics, c.more
	}
	if f := d.failure.Load(); f != nil {
		s.LastError, s.FailedAt = f.text, f.at
	}
	return s
}

// State is how a destination is for a key. One that was never called is well.
func (p *Pool) State(k address.Key) delivery.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.destinations[k.Unscoped()]
	if d == nil {
		return delivery.State{Name: k.String()}
	}
	s := delivery.State{Name: d.label}
	g := cmp.Or(d.gates[k.Scope], d.gates[""]) // that of no scope where there were too many
	if g == nil {
		return s
	}
	if s.Breaker = g.circuit.state(); s.Breaker == delivery.BreakerOpen {
		s.ProbeIn = max(0, p.until(g.circuit.retryAt(true)))
	}
	return s
}

// Destinations calls fn for at most 1,000 destinations, those with a breaker that
// is not closed first, then the last used. fn runs without locks.
func (p *Pool) Destinations(fn func(DestinationStat)) {
	all := p.all()
	stats := make([]DestinationStat, 0, len(all))
	for chunk := range slices.Chunk(all, lockChunk) {
		p.mu.Lock()
		for _, d := range chunk {
			stats = append(stats, d.stat())
		}
		p.mu.Unlock()
	}
	sick := func(s DestinationStat) int { return min(int(s.Breaker), 1) }
	slices.SortStableFunc(stats, func(a, b DestinationStat) int { return sick(b) - sick(a) })
	for _, s := range stats[:min(len(stats), maxListed)] {
		fn(s)
	}
}

// Breakers calls fn for the same destinations with the state of their breaker.
func (p *Pool) Breakers(fn func(destination string, state delivery.BreakerState)) {
	p.Destinations(func(s DestinationStat) { fn(s.Destination, s.Breaker) })
}
