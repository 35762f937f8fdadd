// Package fan has the goroutines that a request starts and waits for.
package fan

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Panics keeps the first panic of several goroutines, so that it goes on where they are waited for,
// which costs that request only; by itself it would end the process. The zero value is ready for
// use.
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

// GoOn panics with the value that was kept, if there is one.
func (p *Panics) GoOn() {
	if text := p.first.Load(); text != nil {
		panic(*text)
	}
}

// Group is such goroutines, with their panics kept until Wait. The zero value is ready for use.
type Group struct {
	work   sync.WaitGroup
	panics Panics
}

// Go has do run on a goroutine of its own.
func (g *Group) Go(do func()) {
	g.work.Go(func() { g.panics.Keep(do) })
}

// Wait returns when all have ended, and panics with the first of their panics.
func (g *Group) Wait() {
	g.work.Wait()
	g.panics.GoOn()
}
