package sim

import (
	"context"
	"time"

	"carillon/node/task"
	"carillon/timer"
)

// Consumers disconnect during a waiting pull, because they are killed or out of patience. Their
// node sees the end of the connection some time later. From then on it must not lease anything for
// that pull: no search that began later may ask for a lease, and timers that an earlier search has
// leased are given back.

// hangUp is a pull whose consumer may disconnect.
type hangUp struct {
	w      *World
	over   bool // it was answered
	seen   bool // the node has seen the end of the connection …
	at     time.Duration
	looked time.Duration // start of the newest search
}

// pullValue is the context key of a *hangUp.
type pullValue struct{}

// pullOf is the pull that a context belongs to; nil: none, or one that does not disconnect.
func pullOf(ctx context.Context) *hangUp {
	h, _ := ctx.Value(pullValue{}).(*hangUp)
	return h
}

// hangsUp makes a context for a pull. It ends when the node sees the end of the connection.
func (n *node) hangsUp(after time.Duration) (context.Context, *hangUp) {
	h, life := &hangUp{w: n.w}, n.life
	ctx, cancel := n.tasks.WithTimeout(n.tasks.ctx, task.Forever)
	ctx.(*taskContext).pull = h
	n.w.after(after, func() {
		if n.life != life || h.over {
			return
		}
		n.doFrom(n.id, func() {
			h.seen, h.at = true, n.w.now
			n.w.counts.HungUp++
			cancel()
		})
	})
	return ctx, h
}

// looks records the start of a search for ready timers.
func (h *hangUp) looks() {
	if h != nil {
		h.looked = h.w.now
	}
}

// asks records a request of the pull to another node.
func (h *hangUp) asks(method uint8) {
	if h == nil {
		return
	}
	switch method {
	case offersMethod:
		h.looks()
	case takeMethod:
		h.takes()
	}
}

// Method numbers of package route.
const (
	offersMethod = 32
	takeMethod   = 33
)

// takes checks that the pull may ask for a lease.
func (h *hangUp) takes() {
	if h != nil && h.seen && h.looked > h.at {
		h.w.violate("hung up", "a lease is asked for at %v although the node saw its consumer disconnect at %v, before the search began at %v", h.w.now, h.at, h.looked)
	}
}

// leaseOf is the lease time of a pull: an odd number of milliseconds if its consumer may
// disconnect. Such a lease may be given back at any time.
func leaseOf(lasts time.Duration, hangsUp bool) time.Duration {
	return lasts.Truncate(2*time.Millisecond) + time.Duration(b2u(hangsUp))*time.Millisecond
}

// surely is the least duration of a lease, from the request on.
func surely(leaseMs int64) time.Duration {
	if leaseMs%2 == 1 {
		return 0
	}
	return msOf(leaseMs)
}

// handed checks the result of a pull and reports whether its consumer has disconnected. In that
// case the result must be empty.
func (h *hangUp) handed(list []timer.PulledTimer) bool {
	if h == nil {
		return false
	}
	if h.over = true; !h.seen {
		return false
	}
	if len(list) > 0 {
		h.w.violate("hung up", "%s is given to a consumer that had disconnected at %v", list[0].Timer.ID, h.at)
	}
	return true
}
