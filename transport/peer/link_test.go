package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestFramesArriveInOrder(t *testing.T) {
	a, b := pair(t, nil)
	const n = 2000
	for i := range n {
		if !a.Send(2, fmt.Appendf(nil, "frame %d", i)) {
			t.Fatalf("frame %d was dropped", i)
		}
	}
	for i := range n {
		if got, want := within(t, "frame", b.host.frames), (received{1, fmt.Sprintf("frame %d", i)}); got != want {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	big := string(make([]byte, 3<<20)) // larger than the read buffer and than one write
	a.Send(2, []byte(big))
	a.Send(2, nil)
	if got := within(t, "frame", b.host.frames); got.frame != big {
		t.Errorf("got %d bytes", len(got.frame))
	}
	if got := within(t, "frame", b.host.frames); got.frame != "" {
		t.Errorf("got %d bytes, want none", len(got.frame))
	}
}

// Frames that wait while the link dials leave in one write.
func TestWaitingFramesLeaveInOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		all := make(chan struct{})
		a, b := memoryPair(t, m, func(c *Config) {
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) { <-all; return m.dial(ctx, addr) }
		})
		const n = 100
		for i := range n {
			a.Send(2, fmt.Appendf(nil, "%d", i))
		}
		close(all)
		for range n {
			within(t, "frame", b.host.frames)
		}
		synctest.Wait()
		if got := m.writes.Load(); got != 3 {
			t.Errorf("%d writes, want 3: a hello each way and the frames", got)
		}
		a.stop()
		b.stop()
	})
}

func TestQueueIsBounded(t *testing.T) {
	free := make(chan struct{})
	addresses := newBook()
	addresses.set(2, "nowhere")
	a := start(t, addresses, loopback(t), helloOf(1), func(c *Config) {
		c.QueueBytes = 1000
		c.DialTimeout = handshakeLimit
		c.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
			select {
			case <-free:
			case <-ctx.Done():
			}
			return nil, errors.New("no route")
		}
	})
	frame := make([]byte, 400)
	var taken int
	for a.Send(2, frame) {
		taken++
	}
	if taken != 2 {
		t.Errorf("%d frames of 400 bytes waited in 1000 bytes", taken)
	}
	within(t, "report", a.host.unreachable) // of the one that found no room
	if s := a.Stats(); len(s) != 1 || s[0].QueuedBytes != 2*(400+frameHeaderBytes) {
		t.Errorf("stats %+v", s)
	}
	close(free)
	within(t, "report", a.host.unreachable) // of those that waited for the dial
	if s := a.Stats(); s[0].QueuedBytes != 0 {
		t.Errorf("stats %+v", s)
	}
	if a.Send(2, frame) {
		t.Error("a lane that is down took a frame")
	}
	if _, err := a.Call(timeout(t), 2, 1, nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v, want ErrNotSent", err)
	}
	if a.Send(99, frame) {
		t.Error("a frame to nobody was taken")
	}
	if _, err := a.Call(timeout(t), 99, 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, errNoAddress) {
		t.Errorf("got %v, want ErrNotSent", err)
	}
	if a.Send(2, make([]byte, 65<<20)) {
		t.Error("a frame above the limit was taken")
	}
}

func TestReportsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := memoryPair(t, m, nil)
		b.stop()
		began := time.Now()
		for time.Since(began) < 950*time.Millisecond {
			a.Send(2, []byte("x"))
			<-time.After(time.Millisecond)
		}
		if n := len(a.host.unreachable); n < 8 || n > 10 {
			t.Errorf("%d reports in 950 ms, want at most one each 100 ms", n)
		}
		a.stop()
	})
}

// A partition that says nothing is noticed within 3 s on both sides; after it, the link
// comes back by itself.
func TestSilentPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		release := make(chan struct{})
		a, b := memoryPair(t, m, func(c *Config) {
			c.Handler.(*host).call = func(ctx context.Context, _ uint64, _ uint8, _ []byte) ([]byte, error) {
				<-ctx.Done()
				release <- struct{}{}
				return nil, ctx.Err()
			}
		})
		a.Send(2, []byte("before"))
		within(t, "frame", b.host.frames)
		result := make(chan error, 1)
		go func() { _, err := a.Call(context.Background(), 2, 1, nil); result <- err }()
		<-time.After(10 * time.Second) // idle, and alive by heartbeats
		if len(a.host.unreachable) != 0 || !a.Stats()[0].Control {
			t.Error("an idle connection broke")
		}

		m.cut.Store(true)
		began := time.Now()
		within(t, "report", a.host.unreachable)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("noticed after %v", took)
		}
		within(t, "end of the handler's context", release)
		if err := within(t, "end of the call", result); !errors.Is(err, ErrUnknown) {
			t.Errorf("got %v, want ErrUnknown", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("both sides noticed after %v", took)
		}
		<-time.After(5 * time.Second)
		if len(a.host.goneOnes) != 0 {
			t.Error("silence was taken as the end of the process")
		}

		m.cut.Store(false)
		healed := time.Now()
		for !a.Stats()[0].Control {
			<-time.After(10 * time.Millisecond)
		}
		if took := time.Since(healed); took > 2*time.Second {
			t.Errorf("back after %v", took)
		}
		a.Send(2, []byte("after"))
		if got := within(t, "frame", b.host.frames); got.frame != "after" {
			t.Errorf("got %v", got)
		}
		a.stop()
		b.stop()
	})
}

func TestBackoff(t *testing.T) {
	for failures, most := range []time.Duration{50, 50, 100, 200, 400, 800, 1000, 1000} {
		most *= time.Millisecond
		for range 100 {
			if d := backoff(failures); d < most/2 || d > most {
				t.Fatalf("after %d failures: %v, want %v to %v", failures, d, most/2, most)
			}
		}
	}
}

// A node that has just connected to us is dialled at once, not after the backoff.
func TestReturningNodeIsDialledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := memoryPair(t, m, nil)
		b.stop()
		a.Send(2, []byte("lost"))
		<-time.After(time.Minute) // the backoff is at its longest
		hello := helloOf(2)
		hello.Starts, hello.Nonce = 2, 77
		addresses := newBook()
		addresses.set(1, "a")
		b = start(t, addresses, m.listen("b"), hello, func(c *Config) { c.Dial = m.dial })
		b.Send(1, []byte("I am back"))
		within(t, "frame", a.host.frames)
		synctest.Wait()
		if !a.Stats()[0].Control {
			t.Error("not connected")
		}
		a.stop()
		b.stop()
	})
}

func TestStuckReceiverHurtsOnlyItself(t *testing.T) {
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), nil)
	stuck := loopback(t)
	defer stuck.Close()
	addresses.set(3, stuck.Addr().String())
	held := make(chan net.Conn, 100)
	go func() { // welcomes, and then reads nothing
		for {
			nc, err := stuck.Accept()
			if err != nil {
				close(held)
				return
			}
			body, _ := encodeHello(helloOf(3))
			if _, err := readGreeting(nc); err == nil {
				_, _ = nc.Write(greeting{protocolVersion, welcome, body}.encode())
			}
			held <- nc
		}
	}()
	a := start(t, addresses, loopback(t), helloOf(1), func(c *Config) {
		c.QueueBytes = 1 << 20
		c.Heartbeat = 50 * time.Millisecond
	})
	frame := make([]byte, 64<<10)
	for a.Send(3, frame) { // never blocks: ends when the queue is full
		if _, err := a.Call(timeout(t), 2, 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		a.Send(2, []byte("y"))
		within(t, "frame", b.host.frames)
	}
	if got := within(t, "report", a.host.unreachable); got != 3 {
		t.Errorf("node %d is reported, want 3", got)
	}
	within(t, "first connection", held)
	a.stop()
	stuck.Close()
	for nc := range held {
		nc.Close()
	}
}

// TestRefusalThatPassesIsNoWarning: a refusal for a moment is not worth an operator's attention;
// one for good is.
func TestRefusalThatPassesIsNoWarning(t *testing.T) {
	for refusal, warnings := range map[error]int{fmt.Errorf("%w: it is asked first", ErrLater): 0, errors.New("a stranger"): 1} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			refused := 0
			m := newMemory()
			a, b := memoryPair(t, m, func(c *Config) {
				if c.Self().Node != 1 {
					return
				}
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				c.Admit = func(Hello) error {
					if refused++; refused < 3 {
						return refusal
					}
					return nil
				}
			})
			for !a.Send(2, []byte("x")) || len(b.host.frames) == 0 {
				<-time.After(50 * time.Millisecond)
			}
			a.stop()
			b.stop()
			if got := strings.Count(log.String(), "not connected"); got != warnings || refused < 3 {
				t.Errorf("%v: %d warnings, want %d: %s", refusal, got, warnings, log.String())
			}
		})
	}
}

// TestNameThatLeadsNowhere: a node whose name does not resolve, or resolves to where nobody answers,
// is reached where it was heard. One whose name leads to it is never looked for there.
func TestNameThatLeadsNowhere(t *testing.T) {
	for what, fails := range map[string]error{"unresolved": &net.DNSError{Err: "no such host", IsNotFound: true}, "unanswered": syscall.ETIMEDOUT, "fine": nil} {
		synctest.Test(t, func(t *testing.T) {
			m, heard := newMemory(), atomic.Int64{}
			a, b := memoryPair(t, m, func(c *Config) {
				c.Address = func(node uint64) string { return []string{"", "a.example", "b.example"}[node] }
				c.HeardAt = func(node uint64) string { return []string{"", "a", "b"}[node] }
				c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
					name, named := strings.CutSuffix(addr, ".example")
					if named && fails != nil {
						return nil, fails
					}
					if !named {
						heard.Add(1)
					}
					return m.dial(ctx, name)
				}
			})
			a.Send(2, []byte("x"))
			for began := time.Now(); len(b.host.frames) == 0; <-time.After(50 * time.Millisecond) {
				if a.Send(2, []byte("x")); time.Since(began) > 2*time.Second {
					t.Fatalf("%s: nothing arrives", what)
				}
			}
			if n := heard.Load(); (n > 0) != (fails != nil) {
				t.Errorf("%s: %d times where it was heard", what, n)
			}
			a.stop()
			b.stop()
		})
	}
}
