package callback

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"carillon/internal/delivery"
)

// bomb is a connection that panics when it is written to, while it is armed.
type bomb struct {
	net.Conn
	armed *atomic.Bool
}

func (b bomb) Write(p []byte) (int, error) {
	if b.armed.Load() {
		panic("a deliberate one")
	}
	return b.Conn.Write(p)
}

// TestPanicCostsOneCall: the call ends as a failure that says nothing about the receiver, its
// connection is not used again, and the worker goes on.
func TestPanicCostsOneCall(t *testing.T) {
	r := receive(t, always(answer200))
	var log bytes.Buffer
	var armed atomic.Bool
	p := startPool(t, Config{
		Policy: local, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			return bomb{c, &armed}, err
		},
	})
	w := newWaiter()
	for i, connections := range []int{1, 1, 2, 2} {
		permit, v := acquire(p, Call{Key: keyOf(t, r.url), Limit: 1, Breaker: Breaker{Failures: 1}}, w)
		switch v.Kind {
		case delivery.Granted:
		case delivery.ReceiverFull:
			permit = <-w.granted
		default:
			t.Fatalf("call %d: %+v", i, v)
		}
		bad := i%2 == 1
		armed.Store(bad)
		out := make(chan Outcome, 1)
		permit.Start(post(r.url), func(o Outcome) { out <- o })
		o := <-out
		if bad && (!o.failed() || o.Err != "internal error" || o.EndedMs == 0) || !bad && o.Err != "" {
			t.Errorf("call %d: %+v", i, o)
		}
		if n := r.connections(); n != connections {
			t.Errorf("%d connections after call %d, want %d", n, i, connections)
		}
	}
	if text := log.String(); !strings.Contains(text, "a deliberate one") || !strings.Contains(text, "worker_test.go") {
		t.Errorf("the log does not say where: %s", text)
	}
}
