package slots

import (
	"slices"

	"carillon/internal/order"
)

// Destination is one receiver's part: its calls and its waiters. The zero value is ready for use.
// It belongs to one Slots.
type Destination struct {
	calls    int
	waiters  int
	answered bool         // the last call that proved anything had an answer
	limits   []limitCount // of its calls and waiters; ascending, none without any
	gates    map[Breaker]*gate
	open     order.Ring[*gate] // those with a waiter that may go
	claim    claim             // for the next waiter that may go
}

// limitCount counts the calls and waiters with one limit.
type limitCount struct{ limit, n int }

// gate is what waits for one breaker, or has its leave, at a receiver.
type gate struct {
	destination *Destination
	breaker     Breaker
	topics      map[Share]*standing
	waiters     order.Ring[*waiter]
	parked      bool                  // the breaker refused; see Wake
	next        order.Ring[*standing] // those with a waiter that are below their limit
	spot        order.Spot[*gate]     // in destination.open
}

// standing is one topic's calls and waiters at a gate.
type standing struct {
	gate    *gate
	of      Share
	calls   int
	limit   int // the newest that was asked for
	waiters order.Line[*waiter]
	spot    order.Spot[*standing] // in gate.next
}

// waiter waits at a receiver.
type waiter struct {
	standing *standing
	who      any
	limit    int
	long     bool
	turn     order.Turn[*waiter] // in standing.waiters
	atGate   order.Spot[*waiter] // in gate.waiters
}

// Calls are the slots that are out for it.
func (d *Destination) Calls() int { return d.calls }

// Waits reports that somebody waits for it.
func (d *Destination) Waits() bool { return d.waiters > 0 }

// Answered reports that its last call had an answer.
func (d *Destination) Answered() bool { return d.answered }

// WaitsFor reports that a waiter or a call has to do with this breaker.
func (d *Destination) WaitsFor(b Breaker) bool { return d.gates[b] != nil }

func (d *Destination) class(long bool) Class {
	if long || !d.answered {
		return risky
	}
	return steady
}

// most is the highest limit of its calls and waiters: as many calls may be out.
func (d *Destination) most() int {
	if len(d.limits) == 0 {
		return 0
	}
	return d.limits[len(d.limits)-1].limit
}

func (d *Destination) countLimit(limit, n int) {
	i, found := slices.BinarySearchFunc(d.limits, limit, func(c limitCount, limit int) int { return c.limit - limit })
	if !found {
		d.limits = slices.Insert(d.limits, i, limitCount{limit: limit})
	}
	if d.limits[i].n += n; d.limits[i].n == 0 {
		d.limits = slices.Delete(d.limits, i, i+1)
	}
}

// standing finds a topic's standing; nil if it has neither calls nor waiters.
func (d *Destination) standing(b Breaker, of Share) *standing {
	if g := d.gates[b]; g != nil {
		return g.topics[of]
	}
	return nil
}

// enter finds or makes a topic's standing.
func (d *Destination) enter(b Breaker, of Share) *standing {
	g := d.gates[b]
	if g == nil {
		g = &gate{destination: d, breaker: b, topics: map[Share]*standing{}}
		g.spot.Of = g
		if d.gates == nil {
			d.gates = map[Breaker]*gate{}
		}
		d.gates[b] = g
	}
	st := g.topics[of]
	if st == nil {
		st = &standing{gate: g, of: of}
		st.spot.Of = st
		g.topics[of] = st
	}
	return st
}

// leave drops a standing without calls and waiters.
func (st *standing) leave() {
	if st.calls > 0 || st.waiters.Len() > 0 {
		return
	}
	g := st.gate
	delete(g.topics, st.of)
	if len(g.topics) == 0 {
		delete(g.destination.gates, g.breaker)
	}
}

// add has somebody wait.
func (st *standing) add(w *waiter) {
	w.standing, w.turn.Of, w.atGate.Of = st, w, w
	st.limit = w.limit
	st.waiters.Push(&w.turn)
	st.gate.waiters.Push(&w.atGate)
	st.gate.destination.waiters++
	st.gate.destination.countLimit(w.limit, 1)
	st.review()
}

// remove takes a waiter out that is not served.
func (st *standing) remove(w *waiter) {
	st.waiters.Leave(&w.turn)
	st.gone(w)
}

// serve takes a waiter out that gets a slot.
func (st *standing) serve(w *waiter) {
	st.waiters.Serve(&w.turn)
	st.gone(w)
}

func (st *standing) gone(w *waiter) {
	w.atGate.Leave()
	st.gate.destination.waiters--
	st.gate.destination.countLimit(w.limit, -1)
	st.review()
	st.leave()
}

// review puts the standing and its gate in turn, or out of it.
func (st *standing) review() {
	g := st.gate
	if st.waiters.Len() > 0 && st.calls < st.limit {
		g.next.Push(&st.spot)
	} else {
		st.spot.Leave()
	}
	g.review()
}

func (g *gate) review() {
	if g.next.Len() > 0 && !g.parked {
		g.destination.open.Push(&g.spot)
	} else {
		g.spot.Leave()
	}
}

// next is the waiter whose turn it is; nil if none may go.
func (d *Destination) next() *waiter {
	if d.open.Len() == 0 || d.calls >= d.most() {
		return nil
	}
	return d.open.First().next.First().waiters.First()
}

// rotate gives the next turn to another breaker, and another topic.
func (d *Destination) rotate(st *standing) {
	if st.spot.In() {
		st.gate.next.Rotate()
	}
	if st.gate.spot.In() {
		d.open.Rotate()
	}
}
