package callback

import (
	"container/list"
	"crypto/tls"
	"slices"
	"sync/atomic"
	"time"
)

// maxGates bounds the breakers of one destination; further scopes share the
// unnamed one.
const maxGates = 1024

// gate is one breaker scope at a destination.
type gate struct {
	scope   string
	circuit *circuit
	permits int // out now
	lastUse time.Time
}

// class counts the permits that were granted under one limit.
type class struct{ limit, permits int }

// destination is one receiver. All fields but secure, conns and latency are
// guarded by the pool's lock.
type destination struct {
	pool  *Pool
	key   Key // Scope ""
	label string

	permits int     // Invariant: the sum over classes, and over gates
	classes []class // ascending limit, none empty
	gates   map[string]*gate
	lines   []*line // none empty; the first is served next
	lastUse time.Time
	recent  *list.Element // in pool.recent

	ring               *ring
	ringPrev, ringNext *destination

	alarm   *time.Timer // wakes lines that wait for a breaker
	alarmAt time.Time   // zero: not set

	secure  *tls.Config // nil: http
	conns   connStack
	latency atomic.Int64 // moving mean of call times, ns
}

// gateFor returns the scope's breaker. Another policy makes another breaker: what
// the old one had counted was counted by other rules.
func (d *destination) gateFor(scope string, policy Breaker) *gate {
	g := d.gates[scope]
	if g == nil && len(d.gates) >= maxGates && scope != "" {
		if g = d.gates[""]; g != nil {
			return g
		}
		scope, policy = "", Breaker{}.withDefaults()
	}
	if g == nil {
		g = &gate{scope: scope, circuit: newCircuit(policy)}
		d.gates[scope] = g
	} else if g.circuit.policy != policy {
		g.circuit = newCircuit(policy)
	}
	return g
}

// room reports whether a call under this limit may be added. A limit bounds the
// calls granted under it or a lower one. So the destination never has more calls
// than the highest limit asked for, and a topic with a low limit is not starved by
// another that keeps more calls out than that.
func (d *destination) room(limit int) bool {
	sum, checked := 0, false
	for _, c := range d.classes {
		if !checked && c.limit > limit {
			if sum >= limit {
				return false
			}
			checked = true
		}
		sum += c.permits
		if c.limit >= limit && sum >= c.limit {
			return false
		}
	}
	return checked || sum < limit
}

func (d *destination) addPermit(g *gate, limit int) {
	d.permits++
	g.permits++
	i, found := slices.BinarySearchFunc(d.classes, limit, func(c class, limit int) int { return c.limit - limit })
	if !found {
		d.classes = slices.Insert(d.classes, i, class{limit: limit})
	}
	d.classes[i].permits++
}

func (d *destination) removePermit(g *gate, limit int) {
	d.permits--
	g.permits--
	i, found := slices.BinarySearchFunc(d.classes, limit, func(c class, limit int) int { return c.limit - limit })
	if !found || d.permits < 0 || g.permits < 0 {
		panic("callback: a permit came back twice")
	}
	d.classes[i].permits--
	if d.classes[i].permits == 0 {
		d.classes = slices.Delete(d.classes, i, i+1)
	}
}

func (d *destination) lineFor(g *gate, limit int) *line {
	for _, l := range d.lines {
		if l.gate == g && l.limit == limit {
			return l
		}
	}
	return nil
}

func (d *destination) dropLine(l *line) {
	d.lines = slices.DeleteFunc(d.lines, func(other *line) bool { return other == l })
}

// nextAllowed finds the first line that may be served, takes its breaker's
// allowance, and turns the lines so that it is last next time. With none, askAt is
// when a breaker may have changed its mind; zero if only slots are missing.
func (d *destination) nextAllowed() (l *line, tell func(error), askAt time.Time) {
	for i, l := range d.lines {
		if !d.room(l.limit) {
			continue
		}
		tell, retryAt := l.gate.circuit.allow()
		if tell != nil {
			d.lines = append(slices.Delete(d.lines, i, i+1), l)
			return l, tell, time.Time{}
		}
		if askAt.IsZero() || retryAt.Before(askAt) {
			askAt = retryAt
		}
	}
	return nil, nil, askAt
}

// idle reports that nothing depends on the destination being kept.
func (d *destination) idle() bool { return d.permits == 0 && len(d.lines) == 0 }

// state is the worst of its breakers.
func (d *destination) state() int {
	worst := stateClosed
	for _, g := range d.gates {
		worst = max(worst, g.circuit.state())
	}
	return worst
}

// dropIdleGates forgets breakers that nobody used since the given time.
func (d *destination) dropIdleGates(since time.Time) {
	for scope, g := range d.gates {
		if g.permits == 0 && g.lastUse.Before(since) && !d.hasLine(g) && g.circuit.state() == stateClosed {
			delete(d.gates, scope)
		}
	}
}

func (d *destination) hasLine(g *gate) bool {
	return slices.ContainsFunc(d.lines, func(l *line) bool { return l.gate == g })
}

// observe adds one call to the moving latency, weight one eighth.
func (d *destination) observe(took time.Duration) {
	for {
		old := d.latency.Load()
		mean := int64(took)
		if old != 0 {
			mean = old + (int64(took)-old)/8
		}
		if d.latency.CompareAndSwap(old, mean) {
			return
		}
	}
}
