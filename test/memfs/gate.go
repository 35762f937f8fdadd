package memfs

import (
	"sync"
)

// Gate holds back, in a hook of an FS, the operations of a host's background goroutines on the disk
// while the driver of the host is at work. The order of all effects is then independent of the Go
// scheduler, and the hook may look at the driver's state. The zero Gate is open.
type Gate struct {
	mu   sync.Mutex
	shut bool
	wait chan struct{} // closed when it opens; made by the first that waits
}

// Shut makes every Pass wait until the gate is open.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// Open lets every Pass return.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	if g.wait != nil {
		close(g.wait)
		g.wait = nil
	}
}

// Pass returns when the gate is open.
func (g *Gate) Pass() {
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
