package peer

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// breakLinks closes the connections to a node.
func (t *Transport) breakLinks(node uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for c := range t.conns {
		if c.hello.Node == node && c.arrival == 0 {
			go c.close(errReplaced)
		}
	}
}

// refusals are those of a node in a row.
func (t *Transport) refusals(node uint64) int {
	p := t.record(node)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal.count
}

// TestRefusedAddressIsAHint: the first refusal is told at once, and once. That the process seems to
// be gone takes several over a while.
func TestRefusedAddressIsAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := memoryPair(t, m, nil)
		a.Send(2, []byte("x"))
		within(t, "frame", b.host.frames)
		<-time.After(2 * time.Second) // a connection that lasted
		if a.FindsGone(t.Context(), 2, 1) {
			t.Error("a process that listens refuses")
		}
		began := time.Now()
		b.stop()
		if got := within(t, "hint", a.host.goneOnes); got != (gone{2, 1}) {
			t.Errorf("got %v", got)
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("after %v", took)
		}
		if a.FindsGone(t.Context(), 2, 1) {
			t.Error("two refusals are enough")
		}
		<-time.After(refusedTime)
		if n := a.refusals(2); n < refusedTimes {
			t.Errorf("%d refusals in that time", n)
		}
		if !a.FindsGone(t.Context(), 2, 1) || a.FindsGone(t.Context(), 2, 2) {
			t.Error("the process that ended does not refuse, or another one does")
		}
		<-time.After(10 * time.Second)
		if n := len(a.host.goneOnes); n != 0 {
			t.Errorf("told %d times more", n)
		}
		a.stop()
	})
}

// TestEndOfAYoungConnection: the end of a process is noticed at once also by a node that has just
// connected to it.
func TestEndOfAYoungConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memoryPair(t, newMemory(), nil)
		a.Send(2, []byte("x"))
		within(t, "frame", b.host.frames)
		<-time.After(100 * time.Millisecond)
		began := time.Now()
		b.stop()
		within(t, "hint", a.host.goneOnes)
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("after %v", took)
		}
		a.stop()
	})
}

// TestConnectionsThatBreakAgainAndAgain: a link whose connections break at once waits longer before
// each dial, and dials at once only once in a while.
func TestConnectionsThatBreakAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var dials atomic.Int64
		a, b := memoryPair(t, m, func(c *Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				dials.Add(1)
				return dial(ctx, addr)
			}
		})
		a.Send(2, []byte("x"))
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			<-time.After(time.Millisecond)
			a.Transport.breakLinks(2)
		}
		if n := dials.Load(); n < 10 || n > 80 {
			t.Errorf("%d dials in 10 s", n)
		}
		a.stop()
		b.stop()
	})
}

// TestNextProcessAnswersForTheEnd: a process has surely ended when a later one of its node answers,
// although that admits nobody yet.
func TestNextProcessAnswersForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := memoryPair(t, m, nil)
		a.Send(2, []byte("x"))
		within(t, "frame", b.host.frames)
		<-time.After(2 * time.Second)
		b.stop()
		within(t, "hint", a.host.goneOnes)
		next := helloOf(2)
		next.Starts, next.Nonce = 2, 99
		var admits atomic.Bool
		b = start(t, newBook(), m.listen("b"), next, func(c *Config) {
			c.Dial = m.dial
			c.Admit = func(h Hello) error {
				if h.Lane != LaneOnce && !admits.Load() {
					return errors.New("it reads its log")
				}
				return nil
			}
		})
		if !a.FindsGone(t.Context(), 2, 1) || a.FindsGone(t.Context(), 2, 2) {
			t.Error("the process that ended is not taken for gone, or its successor is")
		}
		synctest.Wait() // the dial that was refused is over: what had waited for it is dropped
		admits.Store(true)
		for !a.Send(2, []byte("x")) {
			<-time.After(10 * time.Millisecond)
		}
		within(t, "frame", b.host.frames)
		if !a.FindsGone(t.Context(), 2, 1) || a.FindsGone(t.Context(), 2, 2) {
			t.Error("once the next process is met: the one before is not taken for gone, or its successor is")
		}
		a.stop()
		b.stop()
	})
}

// refusing has something in the network refuse connections to b while refuse is set.
func refusing(refuse *atomic.Bool) func(*Config) {
	return func(c *Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "b" && refuse.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, addr)
		}
	}
}

// TestRefusalsOfALivingProcess: something in the network refuses connections in the name of a
// process that lives. Each word that comes from it takes the belief back, and so does a connection
// that its address takes again.
func TestRefusalsOfALivingProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		a, b := memoryPair(t, newMemory(), refusing(&refuse))
		a.Send(2, []byte("x"))
		within(t, "frame", b.host.frames)
		b.Send(1, []byte("x"))
		within(t, "frame", a.host.frames)
		<-time.After(2 * time.Second)
		refuse.Store(true)
		a.Transport.breakLinks(2)
		within(t, "hint", a.host.goneOnes)
		for range 40 {
			<-time.After(100 * time.Millisecond)
			b.Send(1, []byte("x"))
			within(t, "frame", a.host.frames)
			if a.FindsGone(t.Context(), 2, 1) {
				t.Fatal("a process that is heard is taken for gone")
			}
		}
		<-time.After(refusedTime + backoffMax)
		refuse.Store(false)
		if a.FindsGone(t.Context(), 2, 1) {
			t.Error("an address that takes connections refuses")
		}
		for !a.Send(2, []byte("again")) {
			<-time.After(10 * time.Millisecond)
		}
		within(t, "frame", b.host.frames)
		if n := len(a.host.goneOnes); n != 0 {
			t.Errorf("told %d times more", n)
		}
		a.stop()
		b.stop()
	})
}

// TestRefusalsWhileAConnectionStands: a process that is silent for long may live while a connection
// from it stands. It is taken for gone soon after that has ended.
func TestRefusalsWhileAConnectionStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		a, b := memoryPair(t, newMemory(), func(c *Config) {
			c.Heartbeat, c.IdleTimeout = time.Hour, 10*time.Hour
			refusing(&refuse)(c)
		})
		b.Send(1, []byte("x"))
		within(t, "frame", a.host.frames)
		a.Send(2, []byte("x"))
		within(t, "frame", b.host.frames)
		<-time.After(2 * time.Second)
		refuse.Store(true)
		a.Transport.breakLinks(2)
		within(t, "hint", a.host.goneOnes)
		for range 100 {
			<-time.After(refusedTime)
			if a.FindsGone(t.Context(), 2, 1) {
				t.Fatal("a process whose connection stands is taken for gone")
			}
		}
		b.stop()
		<-time.After(time.Millisecond)
		if !a.FindsGone(t.Context(), 2, 1) {
			t.Error("a process that has ended does not refuse")
		}
		a.stop()
	})
}

func TestRefusalHintsNothingOfAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		addresses := newBook()
		addresses.set(2, "b") // nobody listens
		a := start(t, addresses, m.listen("a"), helloOf(1), func(c *Config) { c.Dial = m.dial })
		a.Send(2, []byte("x"))
		<-time.After(10 * time.Second)
		if n := len(a.host.goneOnes); n != 0 {
			t.Error("a node that was never met is gone")
		}
		b := start(t, addresses, m.listen("b"), helloOf(2), func(c *Config) { c.Dial = m.dial })
		for !a.Send(2, []byte("x")) {
			<-time.After(10 * time.Millisecond)
		}
		within(t, "frame", b.host.frames)
		addresses.set(2, "elsewhere") // it is said to have moved: a refusal there says nothing
		b.stop()
		<-time.After(10 * time.Second)
		if n := len(a.host.goneOnes); n != 0 {
			t.Error("a refusal at another address is taken for the end")
		}
		a.stop()
	})
}

func TestHigherStartsIsAHint(t *testing.T) {
	addresses := newBook()
	a := start(t, addresses, loopback(t), helloOf(1), nil)
	b := start(t, addresses, loopback(t), helloOf(2), nil)
	b.Send(1, []byte("first"))
	within(t, "frame", a.host.frames)

	next := helloOf(2)
	next.Starts, next.Nonce = 5, 99
	c := start(t, addresses, loopback(t), next, nil)
	c.Send(1, []byte("second"))
	if got := within(t, "frame", a.host.frames); got.frame != "second" {
		t.Errorf("got %v", got)
	}
	if got := within(t, "hint", a.host.goneOnes); got != (gone{2, 1}) {
		t.Errorf("got %v", got)
	}
	if starts, nonce, ok := a.Met(2); starts != 5 || nonce != 99 || !ok {
		t.Errorf("met start %d, nonce %d, %v", starts, nonce, ok)
	}
	if _, _, ok := a.Met(9); ok {
		t.Error("a stranger was met")
	}
	within(t, "break of the old process's connection", b.host.unreachable)
	if _, err := b.Call(timeout(t), 1, 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrRefused) {
		t.Errorf("the older process got %v, want a refusal", err)
	}
	if s := a.Stats(); len(s) != 1 || s[0].Starts != 5 || !s[0].Heard {
		t.Errorf("stats %+v", s)
	}
}
