// Package fan runs the goroutines that a request starts and waits for.
package fan

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Panics keeps the first panic of several goroutines and repeats it on the goroutine that waits for
// them. There it costs that request only; elsewhere it would end the process. The zero value is
// ready for use.
type Panics struct{ first atomic.Pointer[string] }

// Keep runs do and keeps its panic.
func (p *Panics) Keep(do func()) {
	defer func() {
		if v := recover(); v != nil {
			text := fmt.Sprintf("%v\n%s", v, debug.Stack())
			p.first.CompareAndSwap(nil, &text)
		}
	}()
	do()
}

// Rethrow panics with the kept value, if there is one.
func (p *Panics) Rethrow() {
	if text := p.first.Load(); text != nil {
		panic(*text)
	}
}

// Group is a set of such goroutines. Their panics are kept until Wait. The zero value is ready for
// use.
type Group struct {
	work   sync.WaitGroup
	panics Panics
}

// Go runs do on a goroutine of its own.
func (g *Group) Go(do func()) {
	g.work.Go(func() { g.panics.Keep(do) })
}

// Wait returns when all goroutines have ended. It panics with the first of their panics.
func (g *Group) Wait() {
	g.work.Wait()
	g.panics.Rethrow()
}
