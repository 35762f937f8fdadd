package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// gate holds calls open until it is lifted or their client disconnects.
type gate struct {
	open chan struct{}
	once sync.Once
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) lift() { g.once.Do(func() { close(g.open) }) }

func (g *gate) hold(_ http.ResponseWriter, r *http.Request, _ int) {
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
}

// TestTerminateDrains: after SIGTERM calls in flight finish and are not repeated.
func TestTerminateDrains(t *testing.T) {
	t.Parallel()
	const inFlight = 20
	g := newGate()
	rcv := newReceiver(t, g.hold)
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "drain", rcv.url(), "")
	for i := range inFlight {
		c.must(t, 201, "POST", "/v1/topics/drain/timers", fmt.Sprintf(`{"id":"d%d","delay_ms":0,"payload":%d}`, i, i))
	}
	c.must(t, 201, "POST", "/v1/topics/drain/timers", `{"id":"far","delay":"1h"}`)
	poll(t, patience, "the calls are in flight", func() bool { return rcv.open.Load() == inFlight })
	node.signal(t, syscall.SIGTERM)
	poll(t, patience, "intake stops", func() bool { return c.do("GET", "/healthz", "").status == 0 })
	if !node.alive() {
		t.Fatalf("exited with %d while calls were in flight", node.code)
	}
	if rcv.open.Load() != inFlight {
		t.Fatalf("%d calls were cut off by SIGTERM", inFlight-rcv.open.Load())
	}
	g.lift()
	if code := node.awaitExit(t, patience); code != 0 {
		t.Fatalf("exit code %d: %s", code, node.stderr)
	}
	for _, a := range rcv.arrivals() {
		if a.status != 200 {
			t.Errorf("%s: the call was cut off", a.timer)
		}
	}
	node = serve(t, dir)
	c.use(node)
	for i := range inFlight {
		if got := c.read(t, "drain", fmt.Sprintf("d%d", i)); got.State != "done" || got.Attempts != 1 {
			t.Errorf("after the restart: %+v", got)
		}
	}
	if got := c.read(t, "drain", "far"); got.State != "scheduled" {
		t.Errorf("after the restart: %+v", got)
	}
	if n := rcv.count(); n != inFlight {
		t.Errorf("%d calls for %d timers", n, inFlight)
	}
	node.stop(t)
}

// TestSecondSignalEndsAtOnce: a second SIGTERM ends a node that waits for a hanging call.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	rcv := newReceiver(t, newGate().hold)
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "hang", rcv.url(), "")
	c.must(t, 201, "POST", "/v1/topics/hang/timers", `{"id":"x","delay_ms":0}`)
	poll(t, patience, "the call is in flight", func() bool { return rcv.open.Load() == 1 })
	node.signal(t, syscall.SIGTERM)
	poll(t, patience, "intake stops", func() bool { return c.do("GET", "/healthz", "").status == 0 })
	if !node.alive() {
		t.Fatalf("exited with %d while a call was in flight", node.code)
	}
	again := time.Now()
	node.signal(t, syscall.SIGTERM)
	code := node.awaitExit(t, patience)
	// The yardstick is the node's start: a busy machine delays both.
	if took := node.endedAt.Sub(again); took > 2*time.Second+5*node.readyAfter {
		t.Errorf("took %v after the second signal, and %v from its start until it was ready", took, node.readyAfter)
	}
	if code == 0 {
		t.Errorf("exit code 0, but a call was cut off")
	}
	c.use(serve(t, dir))
	if got := c.read(t, "hang", "x"); got.State == "done" {
		t.Errorf("a call without an answer counts as done: %+v", got)
	}
}

func TestSecondProcessOnOneDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := serve(t, dir)
	code, stdout, stderr := command(t, serveArgs(dir, "127.0.0.1:0")...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "in use by another process") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	newClient(node).must(t, 200, "GET", "/readyz", "")
	node.kill()
	serve(t, dir).stop(t) // a killed process releases its lock
}

func TestPublicBindNeedsCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/none"
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:0"} {
		code, stdout, stderr := command(t, serveArgs(dir, address)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, "--insecure-no-auth") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, stdout %q, stderr %q", address, code, stdout, stderr)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused start has made %s", dir)
	}
}

// TestLeaseOutstanding: the node is killed while a call is open. The call is repeated as attempt 2,
// with a higher fence and the same webhook-id.
func TestLeaseOutstanding(t *testing.T) {
	t.Parallel()
	first := newGate()
	rcv := newReceiver(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 {
			first.hold(w, r, n)
		}
	})
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "lease", rcv.url(), "")
	c.must(t, 201, "POST", "/v1/topics/lease/timers", `{"id":"x","delay_ms":0,"payload":{"a": 1}}`)
	poll(t, patience, "the call is in flight", func() bool { return rcv.open.Load() == 1 })
	if a := c.must(t, 409, "PATCH", timerPath("lease", "x"), `{"payload":2}`); a.code() != "in_flight" {
		t.Errorf("patch of a leased timer: %s", a.body)
	}
	node.kill()
	node = serve(t, dir)
	ready := time.Now()
	c.use(node)
	poll(t, patience, "the timer is done", func() bool { return c.read(t, "lease", "x").State == "done" })
	calls := rcv.of("lease", "x")
	if len(calls) != 2 {
		t.Fatalf("%d calls: %+v", len(calls), calls)
	}
	a, b := calls[0], calls[1]
	if a.attempt != 1 || b.attempt != 2 || b.fence <= a.fence || a.webhook != b.webhook || a.webhook == "" || a.sum != b.sum || a.dueMs != b.dueMs {
		t.Errorf("first  %+v\nsecond %+v", a, b)
	}
	t.Logf("called again %v after ready", b.at.Sub(ready))
	node.stop(t)
}
