package sim

import (
	"context"
	"time"

	"carillon/node/task"
	"carillon/timer"
)

// Consumers hang up while their pull waits, as those do that are killed or whose patience is at an end. The node that they have asked sees the end of the connection
// some time later. Whatever it looks for from then on is for nobody: no lease may be asked for by a look that began later, and what was taken by one that was under way goes back.

// hangUp is a pull whose consumer may hang up.
type hangUp struct {
	w      *World
	over   bool // it was answered
	seen   bool // the node has seen the end of the connection …
	at     time.Duration
	looked time.Duration // when the look began that is under way, or was last
}

// pullValue is the key of a context's *hangUp.
type pullValue struct{}

// pullOf is the pull that something is done for; nil: none that hangs up.
func pullOf(ctx context.Context) *hangUp {
	h, _ := ctx.Value(pullValue{}).(*hangUp)
	return h
}

// hangsUp gives a pull's context an end that may come before the pull's.
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

// looks notes that a look at what is ready begins.
func (h *hangUp) looks() {
	if h != nil {
		h.looked = h.w.now
	}
}

// asks notes what is asked of another node for a pull.
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

// Methods of package route.
const (
	offersMethod = 32
	takeMethod   = 33
)

// takes checks that a lease may be asked for.
func (h *hangUp) takes() {
	if h != nil && h.seen && h.looked > h.at {
		h.w.violate("hung up", "a lease is asked for at %v for a consumer that had hung up at %v, by a look that began at %v", h.w.now, h.at, h.looked)
	}
}

// leaseOf is a pull's lease: of an odd number of milliseconds if its consumer may hang up. Then nobody knows how long it lasts, as it may be given back.
func leaseOf(lasts time.Duration, hangsUp bool) time.Duration {
	return lasts.Truncate(2*time.Millisecond) + time.Duration(b2u(hangsUp))*time.Millisecond
}

// surely is how long a lease lasts at least, from when it was asked for.
func surely(leaseMs int64) time.Duration {
	if leaseMs%2 == 1 {
		return 0
	}
	return msOf(leaseMs)
}

// handed checks what a pull gives out, and says whether its consumer has hung up. Then there is nothing for it.
func (h *hangUp) handed(list []timer.PulledTimer) bool {
	if h == nil {
		return false
	}
	if h.over = true; !h.seen {
		return false
	}
	if len(list) > 0 {
		h.w.violate("hung up", "%s is given to a consumer that had hung up at %v", list[0].Timer.ID, h.at)
	}
	return true
}
