// Package silence finds the nodes from which nothing arrives any more.
package silence

import (
	"slices"
	"sync"
	"time"
)

// Watch finds the nodes that fall silent: a machine that loses its power, or its network, ends
// no connection. Cost: O(1) for each frame, and O(nodes in contact) for each call of NewlySilent.
//
// Invariant: a node is found silent only if nothing has arrived from it for as long as after,
// and this process ran meanwhile.
//
// Its methods may be called from any goroutine.
type Watch struct {
	after time.Duration // a node is silent if nothing has arrived from it for this time
	// maxGap bounds what one look adds to a silence: a process that stood still has received nothing,
	// through no fault of the others.
	maxGap time.Duration

	mu     sync.Mutex
	lasts  map[uint64]time.Duration // how long ago a node was heard last; a silent one is not in it
	looked time.Duration
}

// New returns a Watch whose nodes fall silent after the given time.
func New(after, maxGap time.Duration) *Watch { return &Watch{after: after, maxGap: maxGap} }

// InContact reports that something has arrived from a node. Deliver does so by itself.
func (w *Watch) InContact(node uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lasts == nil {
		w.lasts = map[uint64]time.Duration{}
	}
	w.lasts[node] = 0
}

// NewlySilent returns the nodes that have fallen silent, each once, in order.
func (w *Watch) NewlySilent(now time.Duration) (silent []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	passed := min(now-w.looked, w.maxGap)
	w.looked = now
	for node := range w.lasts {
		if w.lasts[node] += passed; w.lasts[node] >= w.after {
			delete(w.lasts, node)
			silent = append(silent, node)
		}
	}
	slices.Sort(silent)
	return silent
}
