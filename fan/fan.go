// Package fan has the goroutines that a request starts and waits for.
package fan

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Group is such goroutines. A panic on one of them goes on where they are waited for, which costs that request only; by itself it would end the
// process. The zero value is ready for use.
type Group struct {
	work  sync.WaitGroup
	panic atomic.Pointer[string]
}

// Go has do run on a goroutine of its own.
func (g *Group) Go(do func()) {
	g.work.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				text := fmt.Sprintf("%v\n%s", v, debug.Stack())
				g.panic.CompareAndSwap(nil, &text)
			}
		}()
		do()
	})
}

// Wait returns when all have ended, and panics with the first of their panics.
func (g *Group) Wait() {
	g.work.Wait()
	if text := g.panic.Load(); text != nil {
		panic(*text)
	}
}
