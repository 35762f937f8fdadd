package web

import (
	"crypto/sha256"
	"sync"
	"time"

	"carillon/internal/order"
)

const (
	// gateOps is less than one worker of shards queues (shard.Config.MaxQueued), so that batches
	// alone are not refused there, after all the work of reading them.
	gateOps = 16_000
	// turnOps is what a token gets in its turn: a batch of the most operations. Larger batches would
	// take several turns.
	turnOps = 1000
)

// Gate bounds the operations of batches that a node works on at once. A batch that finds it full
// waits: it is not read until its turn, so that clients that send more than the node takes are
// slowed down, and leave the processors to those who write what was let in. Each token has a line
// of its own, and the lines take turns by operations (deficit round robin): so a token's batch
// waits for about one batch of each other token, however many these have. Requests without a token
// are in one line. What waits is bounded by the connections and by the budget of bodies. Cost: O(1)
// for a batch, amortized; the gate keeps the tokens with a batch that waits, and no others. The
// zero Gate is open. Safe for use by any goroutine.
type Gate struct {
	mu      sync.Mutex
	used    int // operations
	waiting int // batches
	lines   map[[sha256.Size]byte]*tokenLine
	turns   order.Ring[*tokenLine] // of lines
}

// tokenLine is the batches of one token that wait, in the order in which they came.
type tokenLine struct {
	token   [sha256.Size]byte
	batches order.Ring[*waitingBatch]
	turn    order.Spot[*tokenLine]
	credit  int // the operations that it may still have in this turn
}

type waitingBatch struct {
	line    *tokenLine
	spot    order.Spot[*waitingBatch] // in line.batches
	ops     int
	entered chan struct{}
}

// Enter lets a token's batch of so many operations in, at once or within a time; nil: the API asks
// for no token. It reports whether it did; then Leave is to be called. waited: not at once.
func (g *Gate) Enter(who *Principal, ops int, within time.Duration, ended <-chan struct{}) (waited, entered bool) {
	g.mu.Lock()
	if g.waiting == 0 && g.fits(ops) {
		g.used += ops
		g.mu.Unlock()
		return false, true
	}
	b := g.push(who, ops)
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
	g.remove(b)
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
	return g.waiting
}

// push has a batch wait in its token's line.
func (g *Gate) push(who *Principal, ops int) *waitingBatch {
	token := who.Token()
	l := g.lines[token]
	if l == nil {
		l = &tokenLine{token: token, credit: turnOps}
		l.turn.Of = l
		if g.lines == nil {
			g.lines = map[[sha256.Size]byte]*tokenLine{}
		}
		g.lines[token] = l
		g.turns.Push(&l.turn)
	}
	b := &waitingBatch{line: l, ops: ops, entered: make(chan struct{})}
	b.spot.Of = b
	l.batches.Push(&b.spot)
	g.waiting++
	return b
}

// remove takes a batch out that waits, and with the last one its line.
func (g *Gate) remove(b *waitingBatch) {
	b.spot.Leave()
	g.waiting--
	if l := b.line; l.batches.Len() == 0 {
		l.turn.Leave()
		delete(g.lines, l.token)
	}
}

// admit lets in those whose turn it is. Behind one that does not fit nobody is let in: it would
// wait for as long as there are smaller ones.
func (g *Gate) admit() {
	for g.waiting > 0 {
		l := g.turns.First()
		b := l.batches.First()
		if b.ops > l.credit {
			l.credit += turnOps
			g.turns.Rotate()
			continue
		}
		if !g.fits(b.ops) {
			return
		}
		l.credit -= b.ops
		g.remove(b)
		g.used += b.ops
		close(b.entered)
	}
}

// fits reports whether there is room: for any batch, if there is no other.
func (g *Gate) fits(ops int) bool { return g.used == 0 || g.used+ops <= gateOps }
