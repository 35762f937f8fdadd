package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

type codedError struct{}

func (codedError) Error() string  { return "not the leader" }
func (codedError) PeerCode() byte { return 7 }

func TestCalls(t *testing.T) {
	a, b := pair(t, func(c *Config) {
		c.Handler.(*host).call = func(_ context.Context, from uint64, method uint8, body []byte) ([]byte, error) {
			switch method {
			case 1:
				return fmt.Appendf(nil, "%d says %s", from, body), nil
			case 2:
				return nil, fmt.Errorf("forward: %w", codedError{})
			case 3:
				return nil, errors.New("plain\nerror")
			}
			panic("no such method")
		}
	})
	ctx := timeout(t)
	if got, err := a.Call(ctx, 2, 1, []byte("hi")); string(got) != "1 says hi" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	var remote *RemoteError
	if _, err := a.Call(ctx, 2, 2, nil); !errors.As(err, &remote) || *remote != (RemoteError{7, "forward: not the leader"}) {
		t.Errorf("got %v", err)
	}
	if _, err := a.Call(ctx, 2, 3, nil); !errors.As(err, &remote) || *remote != (RemoteError{0, "plain error"}) {
		t.Errorf("got %v", err)
	}
	if _, err := a.Call(ctx, 2, 4, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("a panic gave %v, want ErrUnknown", err)
	}
	got, h, err := a.CallAddr(ctx, b.addr, 1, []byte("who?"))
	if string(got) != "1 says who?" || err != nil || h.Node != 2 || h.Lane != LaneOnce {
		t.Errorf("got %q, %+v, %v", got, h, err)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	a, _ := pair(t, nil)
	ctx := timeout(t)
	var wait sync.WaitGroup
	for worker := range 64 {
		wait.Go(func() {
			for i := range 100 {
				body := fmt.Sprintf("%d/%d", worker, i)
				if got, err := a.Call(ctx, 2, 'm', []byte(body)); string(got) != "m"+body || err != nil {
					t.Errorf("got %q, %v, want m%s", got, err, body)
				}
			}
		})
	}
	wait.Wait()
}

// blocked is a handler whose calls wait for their context, and say when they have begun.
func blocked(begun chan struct{}) func(*Config) {
	return func(c *Config) {
		c.Handler.(*host).call = func(ctx context.Context, _ uint64, _ uint8, _ []byte) ([]byte, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	begun := make(chan struct{}, 1)
	a, _ := pair(t, blocked(begun))
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { _, err := a.Call(ctx, 2, 1, nil); result <- err }()
	within(t, "call", begun)
	cancel()
	if err := within(t, "result", result); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := a.Stats()[0].Calls; n != 0 {
		t.Errorf("%d calls in flight", n)
	}
	if _, err := a.Call(ctx, 2, 1, nil); err == nil {
		t.Error("a call with an ended context succeeded")
	}
	expired, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	if _, err := a.Call(expired, 2, 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// The handler's context ends at the caller's deadline.
func TestDeadlineTravels(t *testing.T) {
	left := make(chan time.Duration, 1)
	a, _ := pair(t, func(c *Config) {
		c.Handler.(*host).call = func(ctx context.Context, _ uint64, _ uint8, _ []byte) ([]byte, error) {
			deadline, ok := ctx.Deadline()
			if !ok {
				left <- 0
			} else {
				left <- time.Until(deadline)
			}
			return nil, nil
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := a.Call(ctx, 2, 1, nil); err != nil {
		t.Fatal(err)
	}
	if d := <-left; d < 50*time.Second || d > time.Minute {
		t.Errorf("%v left, want nearly a minute", d)
	}
	if _, err := a.Call(context.Background(), 2, 1, nil); err != nil {
		t.Fatal(err)
	}
	if d := <-left; d != 0 {
		t.Errorf("%v left, want no deadline", d)
	}
}

func TestCallEndsWithItsConnection(t *testing.T) {
	begun := make(chan struct{}, 1)
	a, b := pair(t, blocked(begun))
	result := make(chan error, 2)
	go func() { _, err := a.Call(context.Background(), 2, 1, nil); result <- err }()
	within(t, "call", begun)
	go func() { _, _, err := a.CallAddr(context.Background(), b.addr, 1, nil); result <- err }()
	within(t, "call", begun)
	b.stop()
	for range 2 {
		if err := within(t, "result", result); !errors.Is(err, ErrUnknown) {
			t.Errorf("got %v, want ErrUnknown", err)
		}
	}
}

func TestCallsEndWithTheTransport(t *testing.T) {
	begun := make(chan struct{}, 1)
	a, _ := pair(t, blocked(begun))
	result := make(chan error, 1)
	go func() { _, err := a.Call(context.Background(), 2, 1, nil); result <- err }()
	within(t, "call", begun)
	a.stop()
	if err := within(t, "result", result); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
	if _, err := a.Call(context.Background(), 2, 1, nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v, want ErrNotSent", err)
	}
	if a.Send(2, nil) {
		t.Error("a stopped transport took a frame")
	}
}

// A frame that waits in the outbox when the connection breaks never reached the wire.
func TestUnwrittenCallsAreCertain(t *testing.T) {
	out := newOutbox(1 << 20)
	a := &call{done: make(chan struct{}, 1)}
	b := &call{done: make(chan struct{}, 1)}
	a.batch, _ = out.push(kindCall, nil, []byte("a"))
	out.take(nil)
	b.batch, _ = out.push(kindCall, nil, []byte("b"))
	s := calls{waiting: map[uint64]*call{1: a, 2: b}}
	out.close()
	s.fail(out, errReplaced)
	<-a.done
	<-b.done
	if !errors.Is(a.err, ErrUnknown) || !errors.Is(b.err, ErrNotSent) || !errors.Is(b.err, errReplaced) {
		t.Errorf("written: %v; unwritten: %v", a.err, b.err)
	}
}

// A call waits for the one dial of a fresh link, and no longer than its context.
func TestCallWaitsForTheFirstDial(t *testing.T) {
	dials := make(chan struct{}, 1)
	addresses := newBook()
	addresses.set(2, "nowhere")
	a := start(t, addresses, loopback(t), helloOf(1), func(c *Config) {
		c.DialTimeout = time.Hour
		c.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
			dials <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { _, err := a.Call(ctx, 2, 1, nil); result <- err }()
	within(t, "dial", dials)
	cancel()
	if err := within(t, "result", result); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCallsAreLimited(t *testing.T) {
	for _, side := range []string{"caller", "answerer"} {
		t.Run(side, func(t *testing.T) {
			begun := make(chan struct{}, 1)
			one := func(c *Config) { c.MaxCalls = 1 }
			addresses := newBook()
			b := start(t, addresses, loopback(t), helloOf(2), func(c *Config) {
				blocked(begun)(c)
				if side == "answerer" {
					one(c)
				}
			})
			a := start(t, addresses, loopback(t), helloOf(1), func(c *Config) {
				if side == "caller" {
					one(c)
				}
			})
			ctx, cancel := context.WithCancel(context.Background())
			result := make(chan error, 1)
			go func() { _, err := a.Call(ctx, 2, 1, nil); result <- err }()
			within(t, "call", begun)
			if _, err := a.Call(timeout(t), 2, 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, errCallsFull) {
				t.Errorf("got %v, want ErrNotSent", err)
			}
			cancel()
			within(t, "result", result)
			b.stop()
		})
	}
}

// One call may be larger than the answerer holds of calls together; a second one beside it is not
// heard.
func TestBytesOfCallsAreLimited(t *testing.T) {
	begun := make(chan struct{}, 1)
	a, _ := pair(t, func(c *Config) { blocked(begun)(c); c.QueueBytes = 1000 })
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { _, err := a.Call(ctx, 2, 1, make([]byte, 2000)); result <- err }()
	within(t, "call", begun)
	if _, err := a.Call(timeout(t), 2, 1, []byte("x")); !errors.Is(err, ErrNotSent) || !errors.Is(err, errCallsFull) {
		t.Errorf("got %v, want ErrNotSent", err)
	}
	cancel()
	within(t, "result", result)
}

func TestCallSizesAreLimited(t *testing.T) {
	a, _ := pair(t, func(c *Config) {
		c.MaxFrame = 100_000
		c.Handler.(*host).call = func(_ context.Context, _ uint64, _ uint8, body []byte) ([]byte, error) {
			return append(body, body...), nil
		}
	})
	ctx := timeout(t)
	if got, err := a.Call(ctx, 2, 1, make([]byte, 50_000)); len(got) != 100_000 || err != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	var remote *RemoteError
	if _, err := a.Call(ctx, 2, 1, make([]byte, 50_001)); !errors.As(err, &remote) {
		t.Errorf("got %v, want the other side's error", err)
	}
	if _, err := a.Call(ctx, 2, 1, make([]byte, 64<<20+1)); !errors.Is(err, ErrNotSent) || !errors.Is(err, errTooLarge) {
		t.Errorf("got %v, want ErrNotSent", err)
	}
}

// Replies larger together than the queue wait for room; they are not lost.
func TestManyLargeReplies(t *testing.T) {
	const size = 300_000
	a, _ := pair(t, func(c *Config) {
		c.QueueBytes = 1000
		c.Handler.(*host).call = func(context.Context, uint64, uint8, []byte) ([]byte, error) { return make([]byte, size), nil }
	})
	ctx := timeout(t)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if got, err := a.Call(ctx, 2, 1, nil); len(got) != size || err != nil {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		})
	}
	wait.Wait()
}
