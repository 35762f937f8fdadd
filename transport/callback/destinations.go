package callback

import (
	"carillon/internal/delivery"
	"carillon/transport/callback/address"
)

// idleKind orders the idle destinations by how little is lost with them.
type idleKind int

const (
	unproven idleKind = iota // it has never answered
	proven                   // it has; its pace and its connections are lost with it
	sick                     // a breaker of it is not closed, and would be forgotten
	idleKinds
)

// keepLocked has the pool keep a new destination, in place of an idle one if it is full: evicted,
// whose connections are to be closed. It reports false if none is idle: then there is no place.
// Cost: O(1).
func (p *Pool) keepLocked(d *destination) (evicted *destination, kept bool) {
	if p.destinations[d.key] == d {
		p.usedLocked(d)
		return nil, true
	}
	if len(p.destinations) >= p.config.MaxDestinations {
		if evicted = p.evictLocked(); evicted == nil {
			return nil, false
		}
	}
	d.client = d.newClient()
	d.recent = p.recent.PushFront(d)
	p.destinations[d.key] = d
	return evicted, true
}

// newDestination makes a destination that the pool does not keep yet.
func (p *Pool) newDestination(k address.Key) *destination {
	d := &destination{pool: p, key: k, label: k.String(), gates: make(map[string]*breakerScope)}
	d.place.Of = d
	return d
}

// usedLocked records that a destination was used, and whether it is idle now.
func (p *Pool) usedLocked(d *destination) {
	if d.recent == nil {
		return
	}
	d.lastUse = p.sweptAt
	d.place.Leave()
	p.recent.MoveToFront(d.recent)
	if !d.idle() {
		return
	}
	kind := proven
	switch {
	case d.state() != delivery.BreakerClosed:
		kind = sick
	case !d.slots.Answered():
		kind = unproven
	}
	p.idle[kind].Push(&d.place)
}

// evictLocked drops the longest unused idle destination: one that never answered, rather than one
// that did. Of the sick ones, half of the places are kept, so that their breakers are not
// forgotten. It returns nil if none is idle.
func (p *Pool) evictLocked() *destination {
	kind := unproven
	if p.idle[unproven].Len() == 0 {
		kind = proven
		if n := p.idle[sick].Len(); n > 0 && (p.idle[proven].Len() == 0 || n > p.config.MaxDestinations/2) {
			kind = sick
		}
	}
	if p.idle[kind].Len() == 0 {
		return nil
	}
	d := p.idle[kind].First()
	p.dropLocked(d)
	return d
}

// dropLocked forgets an idle destination. Its connections are closed without the lock: of a herd to
// many receivers each call closes one, and all calls need the lock.
func (p *Pool) dropLocked(d *destination) {
	if !d.idle() {
		panic("callback: a destination in use was dropped: " + d.label)
	}
	for _, g := range d.gates {
		if g.alarm != nil {
			g.alarm.Stop()
		}
	}
	d.place.Leave()
	p.recent.Remove(d.recent)
	delete(p.destinations, d.key)
	d.dropped.Store(true)
}
