package web

import (
	"sync"
	"time"

	"carillon/internal/order"
)

// gateOps is less than one worker of shards queues (shard.Config.MaxQueued), so that batches alone
// are not refused there, after all the work of reading them.
const gateOps = 16_000

// Gate bounds the operations of batches that a node works on at once. A batch that finds it full
// waits its turn, as it arrived: it is not read until then, so that clients that send more than the
// node takes are slowed down, and leave the processors to those who write what was let in. What
// waits is bounded by the connections and by the budget of bodies. Cost: O(1). The zero Gate is
// open. Safe for use by any goroutine.
type Gate struct {
	mu   sync.Mutex
	used int // operations
	line order.Ring[*waitingBatch]
}

type waitingBatch struct {
	spot    order.Spot[*waitingBatch]
	ops     int
	entered chan struct{}
}

// Enter lets a batch of so many operations in, at once or within a time. It reports whether it
// did; then Leave is to be called. waited: not at once.
func (g *Gate) Enter(ops int, within time.Duration, ended <-chan struct{}) (waited, entered bool) {
	g.mu.Lock()
	if g.line.Len() == 0 && g.fits(ops) {
		g.used += ops
		g.mu.Unlock()
		return false, true
	}
	b := &waitingBatch{ops: ops, entered: make(chan struct{})}
	b.spot.Of = b
	g.line.Push(&b.spot)
	g.mu.Unlock()
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case <-b.entered:
		return true, true
	case <-patience.C:
	case <-ended:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !b.spot.In() { // it was let in meanwhile
		return true, true
	}
	b.spot.Leave()
	g.admit() // it may have been too large for what is free
	return true, false
}

// Leave ends a batch that was let in.
func (g *Gate) Leave(ops int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= ops
	g.admit()
}

// Waiting is how many batches wait.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.line.Len()
}

// admit lets in those whose turn it is.
func (g *Gate) admit() {
	for g.line.Len() > 0 && g.fits(g.line.First().ops) {
		b := g.line.First()
		b.spot.Leave()
		g.used += b.ops
		close(b.entered)
	}
}

// fits reports whether there is room: for any batch, if there is no other.
func (g *Gate) fits(ops int) bool { return g.used == 0 || g.used+ops <= gateOps }
