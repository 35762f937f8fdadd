package task

import (
	"context"
	"math"
	"sync"
	"time"
)

// Goroutines is the Env of a node: goroutines, and the machine's timers.
type Goroutines struct {
	mono func() time.Duration
	work sync.WaitGroup
}

// NewGoroutines is an Env with a monotonic clock.
func NewGoroutines(mono func() time.Duration) *Goroutines { return &Goroutines{mono: mono} }

func (g *Goroutines) Now() time.Duration { return g.mono() }

func (g *Goroutines) Go(run func()) { g.work.Go(run) }

// Wait returns when all that was begun with Go has ended. Nothing may be begun by others than these
// meanwhile.
func (g *Goroutines) Wait() { g.work.Wait() }

func (g *Goroutines) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == Forever {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func (g *Goroutines) Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(together(g.mono(), d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Long sleeps end at whole multiples of wakeGrid, at which the host's workers wake as well: an idle
// node pays for each moment at which something wakes, and little for what wakes with it.
const (
	wakeGrid  = 50 * time.Millisecond
	longSleep = 200 * time.Millisecond
)

// together returns d, to the nearest wakeGrid if d is long.
func together(now, d time.Duration) time.Duration {
	if d < longSleep || d > math.MaxInt64/2 {
		return d
	}
	return (now + d).Round(wakeGrid) - now
}

func (g *Goroutines) NewSignal() Signal { return make(channel, 1) }

// channel is a Signal; its capacity is 1.
type channel chan struct{}

func (c channel) Set() {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c channel) Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-c:
		return true
	default:
	}
	var over <-chan time.Time
	if d != Forever {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-c:
		return true
	case <-over:
	case <-ctx.Done():
	}
	return false
}
