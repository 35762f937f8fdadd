package peer

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

func TestConfigOfNothing(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Fatal("no error")
	}
}

func TestRunOnce(t *testing.T) {
	a, _ := pair(t, nil)
	ln := loopback(t)
	defer ln.Close()
	if err := a.Run(context.Background(), ln); err == nil {
		t.Error("Run twice")
	}
	if _, err := a.Call(timeout(t), 2, 1, nil); err != nil {
		t.Error(err)
	}
}

func TestNothingBeforeRun(t *testing.T) {
	tr, err := New(Config{
		Self: func() Hello { return helloOf(1) }, Address: func(uint64) string { return "nowhere" },
		Admit: func(Hello) error { return nil }, Handler: newHost(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if tr.Send(2, nil) {
		t.Error("a frame was taken")
	}
	if _, err := tr.Call(timeout(t), 2, 1, nil); !errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
	if _, _, err := tr.CallAddr(timeout(t), "127.0.0.1:1", 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, errStopped) {
		t.Error(err)
	}
	if err := tr.SendFile(timeout(t), 2, nil, nil, 0); !errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
}

func TestLostListenerEndsRun(t *testing.T) {
	tr, err := New(Config{
		Self: func() Hello { return helloOf(1) }, Address: func(uint64) string { return "" },
		Admit: func(Hello) error { return nil }, Handler: newHost(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ln := loopback(t)
	ln.Close()
	if err := tr.Run(context.Background(), ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestForget(t *testing.T) {
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), nil)
	removed := make(chan struct{})
	a := start(t, addresses, loopback(t), helloOf(1), func(c *Config) {
		c.Admit = func(h Hello) error {
			select {
			case <-removed:
				return errors.New("removed")
			default:
				return nil
			}
		}
	})
	ctx := timeout(t)
	if _, err := a.Call(ctx, 2, 1, nil); err != nil {
		t.Fatal(err)
	}
	b.Send(1, []byte("x"))
	within(t, "frame", a.host.frames)
	a.Send(2, []byte("x"))
	within(t, "frame", b.host.frames)
	close(removed)
	addresses.set(2, "")
	a.Forget(2)
	a.Forget(3)
	within(t, "break", b.host.unreachable)
	if _, err := a.Call(ctx, 2, 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, errNoAddress) {
		t.Errorf("got %v", err)
	}
	if _, err := b.Call(ctx, 1, 1, nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v", err)
	}
	if s := a.Stats(); len(s) != 0 {
		t.Errorf("stats %+v", s)
	}
	for deadline := time.Now().Add(handshakeLimit); b.Stats()[0].Heard; {
		if time.Now().After(deadline) {
			t.Fatal("the connection to a forgotten node stays")
		}
		<-time.After(time.Millisecond)
	}
}

func TestStats(t *testing.T) {
	a, b := pair(t, nil)
	a.Send(2, make([]byte, 1000))
	within(t, "frame", b.host.frames)
	if _, err := a.Call(timeout(t), 2, 1, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	s := a.Stats()
	if len(s) != 1 || s[0].Node != 2 || s[0].Starts != 1 || !s[0].Control || !s[0].Call || s[0].Heard || s[0].Calls != 0 {
		t.Errorf("of the one that dials: %+v", s)
	}
	s = b.Stats()
	if len(s) != 1 || s[0].Node != 1 || s[0].Control || s[0].Call || !s[0].Heard {
		t.Errorf("of the other: %+v", s)
	}
}

// A listener that is out of files for a while is asked again.
func TestAcceptErrorsPass(t *testing.T) {
	ln := &failingListener{Listener: loopback(t), failures: 2}
	addresses := newBook()
	b := start(t, addresses, ln, helloOf(2), nil)
	a := start(t, addresses, loopback(t), helloOf(1), nil)
	if _, _, err := a.CallAddr(timeout(t), b.addr, 1, nil); err != nil {
		t.Error(err)
	}
}

type failingListener struct {
	net.Listener
	failures int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}
