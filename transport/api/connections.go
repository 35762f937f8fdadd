package api

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds of connections besides Limits.Connections.
const (
	probeRoom     = 64              // connections beyond the limit that may only ask for health
	probeShare    = 8               // of them, of one address
	probeTime     = 2 * time.Second // how long one of them may take
	idleQueueMost = 256             // idle connections that one search remembers
	idleSearch    = 20 * time.Millisecond
)

// connections counts the open connections, all and of each address, and finds room for one more: no
// address has more than its share, and where all places are taken the connection goes that has
// waited longest for a request. Nothing that is being received or answered is cut off. Where that
// leaves no place, a few more connections may still ask for health. Safe for use by any goroutine.
type connections struct {
	most  int // of all addresses
	share int // of one address

	mu        sync.Mutex
	open      map[*framedConn]struct{}
	addresses map[netip.Addr]*addressConns
	idle      idleQueue
	places    int // connections that count against most
	probes    int // connections in the probe room
}

// addressConns counts the open connections of one address.
type addressConns struct {
	open   map[*framedConn]struct{} // without those in the probe room
	idle   idleQueue
	probes int
}

func newConnections(most int) *connections {
	return &connections{most: most, share: max(1, most/2), open: map[*framedConn]struct{}{}, addresses: map[netip.Addr]*addressConns{}}
}

// admit gives c a place. It returns the connection that must be closed for it, if any, and false
// when there is no place.
func (cs *connections) admit(c *framedConn, now time.Time) (evicted *framedConn, ok bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	a := cs.addresses[c.address]
	if a == nil {
		a = &addressConns{open: map[*framedConn]struct{}{}}
		cs.addresses[c.address] = a
	}
	switch {
	case len(a.open) >= cs.share:
		evicted = a.idle.next(a.open, now)
	case cs.places >= cs.most:
		evicted = cs.idle.next(cs.open, now)
	default:
		cs.add(c, a, now)
		return nil, true
	}
	if evicted != nil {
		cs.remove(evicted)
		if cs.addresses[c.address] == nil { // it was the only one of this address
			cs.addresses[c.address] = a
		}
		cs.add(c, a, now)
		return evicted, true
	}
	if cs.probes < probeRoom && a.probes < probeShare {
		c.probeUntil = now.Add(probeTime)
		cs.open[c] = struct{}{}
		cs.probes++
		a.probes++
		return nil, true
	}
	cs.tidy(c.address, a)
	return nil, false
}

func (cs *connections) add(c *framedConn, a *addressConns, now time.Time) {
	c.idleSince.Store(now.UnixNano())
	cs.open[c] = struct{}{}
	a.open[c] = struct{}{}
	cs.places++
}

// forget takes a closed connection out; it may have gone before.
func (cs *connections) forget(c *framedConn) {
	cs.mu.Lock()
	cs.remove(c)
	cs.mu.Unlock()
}

func (cs *connections) remove(c *framedConn) {
	if _, known := cs.open[c]; !known {
		return
	}
	delete(cs.open, c)
	a := cs.addresses[c.address]
	if c.probing() {
		cs.probes--
		a.probes--
	} else {
		delete(a.open, c)
		cs.places--
	}
	cs.tidy(c.address, a)
}

// tidy forgets an address that has nothing open.
func (cs *connections) tidy(address netip.Addr, a *addressConns) {
	if len(a.open) == 0 && a.probes == 0 {
		delete(cs.addresses, address)
	}
}

// evictIdle takes out the connection that has waited longest for a request, for another client that
// needs its file. nil: none waits.
func (cs *connections) evictIdle(now time.Time) *framedConn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.idle.next(cs.open, now)
	if c != nil {
		cs.remove(c)
	}
	return c
}

func (cs *connections) where(f func(*framedConn) bool) (picked []*framedConn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		if f(c) {
			picked = append(picked, c)
		}
	}
	return picked
}

// idleQueue holds the connections of a set that have waited longest, as one search found them: a
// search looks at all of them, so it serves many evictions. An entry whose connection has been used
// since is passed over.
type idleQueue struct {
	waiting []idleConn
	empty   time.Time // when a search last found nothing
}

type idleConn struct {
	conn  *framedConn
	since int64
}

// next evicts the first of set; nil when none waits.
func (q *idleQueue) next(set map[*framedConn]struct{}, now time.Time) *framedConn {
	for {
		for len(q.waiting) > 0 {
			first := q.waiting[0]
			q.waiting = q.waiting[1:]
			if first.conn.evict(first.since) {
				return first.conn
			}
		}
		if now.Sub(q.empty) < idleSearch {
			return nil
		}
		q.search(set)
		if len(q.waiting) == 0 {
			q.empty = now
			return nil
		}
	}
}

func (q *idleQueue) search(set map[*framedConn]struct{}) {
	q.waiting = nil
	for c := range set {
		if since := c.idleSince.Load(); since > 0 {
			q.waiting = append(q.waiting, idleConn{c, since})
		}
	}
	slices.SortFunc(q.waiting, func(a, b idleConn) int { return int(a.since - b.since) })
	if len(q.waiting) > idleQueueMost {
		q.waiting = slices.Clone(q.waiting[:idleQueueMost])
	}
}
