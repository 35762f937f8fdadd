package wal

import "sync"

// MemGate holds back, in a hook of a MemFS, what a host's background goroutines do to the disk while the one that drives the host is at work:
// the order of all effects then depends on nobody's scheduler, and the hook may look at what the driver owns. The zero gate is open.
type MemGate struct {
	mu   sync.Mutex
	shut bool
	wait chan struct{} // closed when it opens; made by the first who waits
}

// Shut makes who comes to the gate wait until it is open.
func (g *MemGate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// Open lets all pass.
func (g *MemGate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	if g.wait != nil {
		close(g.wait)
		g.wait = nil
	}
}

// Pass returns when the gate is open.
func (g *MemGate) Pass() {
	g.mu.Lock()
	if !g.shut {
		g.mu.Unlock()
		return
	}
	if g.wait == nil {
		g.wait = make(chan struct{})
	}
	wait := g.wait
	g.mu.Unlock()
	<-wait
}
