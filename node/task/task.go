// Package task is time, waiting and concurrency as node/member and node/route use them. Those
// packages read no clock, start no goroutine and wait for nothing but by an Env: a node gives them
// Goroutines, the simulator an Env of its own, in which one task runs at a time and time is an
// event queue. So both run the same code.
//
// Rules: a task waits by the Env's methods alone (and by calls into the parts that the Env's owner
// gave it: a host, other nodes), holds no mutex while it waits, and passes on contexts that came
// from WithTimeout or from its caller.
package task

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"carillon/internal/fan"
)

// Forever is a wait without an end of its own.
const Forever = time.Duration(math.MaxInt64)

// Env runs tasks. Its methods may be called by any task.
type Env interface {
	// Now is a monotonic clock.
	Now() time.Duration
	// Go runs something concurrently with its caller.
	Go(run func())
	// WithTimeout is context.WithTimeout; after Forever the context ends by its cancel function, or
	// its parent's end, alone.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Sleep returns when so much time has passed, or the context has ended: then false. One of
	// longSleep and more may end 25 ms earlier or later.
	Sleep(ctx context.Context, d time.Duration) bool
	// NewSignal makes a signal that is not set.
	NewSignal() Signal
}

// Signal wakes one task at a time. It remembers that it was set, once: Set before Wait lets the
// next Wait return at once.
type Signal interface {
	Set()
	// Wait returns true when the signal was set, and false when so much time has passed or the
	// context has ended.
	Wait(ctx context.Context, d time.Duration) bool
}

// Every does something at once and then again and again, until the context ends.
func Every(ctx context.Context, env Env, each time.Duration, do func()) {
	for {
		do()
		if !env.Sleep(ctx, each) {
			return
		}
	}
}

// Group runs several tasks at once and waits for all of them. A panic in one of them continues
// where they are waited for, which costs that request only; by itself it would end the process. A
// Group's zero value is of no use: see NewGroup.
type Group struct {
	env    Env
	left   atomic.Int32
	done   Signal
	panics fan.Panics
}

func NewGroup(env Env) *Group { return &Group{env: env, done: env.NewSignal()} }

func (g *Group) Go(run func()) {
	g.left.Add(1)
	g.env.Go(func() {
		defer func() {
			if g.left.Add(-1) == 0 {
				g.done.Set()
			}
		}()
		g.panics.Keep(run)
	})
}

// Wait returns when all tasks have ended. One task may wait at a time.
func (g *Group) Wait() {
	for g.left.Load() > 0 {
		g.done.Wait(context.Background(), Forever)
	}
	g.panics.Rethrow()
}

// Lanes does something for 0 to n-1, for at most so many of them at once, until one returns false.
func Lanes(env Env, most, n int, do func(i int) (more bool)) {
	var next atomic.Int64
	var stop atomic.Bool
	all := NewGroup(env)
	for range min(most, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !stop.Load(); i = int(next.Add(1)) - 1 {
				if !do(i) {
					stop.Store(true)
				}
			}
		})
	}
	all.Wait()
}

// Ended reports whether a channel is closed, of one that nothing is sent on.
func Ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
