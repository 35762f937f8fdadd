package task

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func inBubble(t *testing.T, test func(t *testing.T, g *Goroutines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		g := NewGoroutines(func() time.Duration { return time.Since(begin) })
		test(t, g)
		g.Wait()
	})
}

func TestSignalRemembersOneSet(t *testing.T) {
	inBubble(t, func(t *testing.T, g *Goroutines) {
		s := g.NewSignal()
		s.Set()
		s.Set()
		if !s.Wait(t.Context(), 0) {
			t.Error("what was set is forgotten")
		}
		if s.Wait(t.Context(), time.Second) || g.Now() != time.Second {
			t.Errorf("it was set twice, or the wait ended after %s", g.Now())
		}
		ctx, cancel := g.WithTimeout(t.Context(), Forever)
		g.Go(func() {
			g.Sleep(t.Context(), time.Second)
			cancel()
		})
		if s.Wait(ctx, Forever) || g.Now() != 2*time.Second {
			t.Errorf("a wait goes on beyond its context, to %s", g.Now())
		}
	})
}

func TestGroupWaitsForAll(t *testing.T) {
	inBubble(t, func(t *testing.T, g *Goroutines) {
		all := NewGroup(g)
		all.Wait() // of none
		var done atomic.Int32
		for i := range 5 {
			all.Go(func() {
				g.Sleep(t.Context(), time.Duration(i)*time.Second)
				done.Add(1)
			})
		}
		all.Wait()
		if done.Load() != 5 || g.Now() != 4*time.Second {
			t.Errorf("%d of 5 have ended after %s", done.Load(), g.Now())
		}
		all.Go(func() { done.Add(1) }) // it can be used again
		all.Wait()
		if done.Load() != 6 {
			t.Error("the last one has not ended")
		}
	})
}

func TestEveryEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, g *Goroutines) {
		ctx, cancel := g.WithTimeout(context.Background(), 3500*time.Millisecond)
		defer cancel()
		n := 0
		Every(ctx, g, time.Second, func() { n++ })
		if n != 4 || g.Now() != 3500*time.Millisecond {
			t.Errorf("%d times, until %s", n, g.Now())
		}
	})
}

// TestLongSleepsEndTogether: what sleeps long wakes at the same moments, again and again as often
// as it asked for. A short sleep is exact.
func TestLongSleepsEndTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, g *Goroutines) {
		g.Sleep(t.Context(), 137*time.Millisecond)
		if g.Now() != 137*time.Millisecond {
			t.Errorf("a short sleep ended after %s", g.Now())
		}
		for n := 1; n <= 100; n++ {
			g.Sleep(t.Context(), 250*time.Millisecond)
			if want := 150*time.Millisecond + time.Duration(n)*250*time.Millisecond; g.Now() != want {
				t.Fatalf("sleep %d ended at %s, want %s", n, g.Now(), want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if g.Sleep(ctx, Forever) || g.Now() != 25150*time.Millisecond {
			t.Error("a sleep goes on beyond its context")
		}
	})
}
