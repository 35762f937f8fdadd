package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/test/testkit"
)

// running is a node under test.
type running struct {
	t    testing.TB
	base string
	node *Node
	stop func() error
}

// start runs a node on dir and waits until it is ready.
func start(t testing.TB, dir string, change ...func(*Config)) *running {
	t.Helper()
	r, done := begin(t, dir, change...)
	r.awaitReady(done)
	return r
}

// startUnready runs a node that is not expected to be ready, and waits until its API answers.
func startUnready(t *testing.T, dir string, change ...func(*Config)) *running {
	t.Helper()
	r, _ := begin(t, dir, change...)
	until(t, "the API is bound", func() bool { return r.node.Addr() != "" })
	r.base = "http://" + r.node.Addr()
	return r
}

// awaitBody polls until the path answers with the status and a part of the body.
func (r *running) awaitBody(status int, path, part string) {
	r.t.Helper()
	until(r.t, fmt.Sprintf("%s answers %d with %q", path, status, part), func() bool {
		code, body := r.call("GET", path, "")
		return code == status && strings.Contains(body, part)
	})
}

// patience is for what has no promised time: a machine may be busy.
const patience = time.Minute

// until polls, as a client does.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func begin(t testing.TB, dir string, change ...func(*Config)) (*running, chan error) {
	t.Helper()
	cfg := Config{DataDir: dir, HTTP: "127.0.0.1:0", Shards: 4, Version: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	for _, f := range change {
		f(&cfg)
	}
	n, err := New(cfg)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	r := &running{t: t, node: n}
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	return r, done
}

func (r *running) awaitReady(done chan error) {
	r.t.Helper()
	limit := patience
	if _, many := r.t.(*testing.B); many { // nodes and shards, on this machine
		limit *= 2
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		select {
		case err := <-done:
			done <- err
			r.t.Fatalf("the node ended before it was ready: %v", err)
		case <-time.After(2 * time.Millisecond): // a client polls, too
		}
		if addr := r.node.Addr(); addr != "" {
			r.base = "http://" + addr
			if code, _ := r.call("GET", "/readyz", ""); code == 200 {
				return
			}
		}
	}
	_, body := r.call("GET", "/readyz", "")
	r.t.Fatalf("not ready: %s", body)
}

func (r *running) call(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, r.base+path, strings.NewReader(body))
	testkit.Must(r.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// must is call with the status that is expected.
func (r *running) must(want int, method, path, body string) string {
	r.t.Helper()
	code, got := r.call(method, path, body)
	if code != want {
		r.t.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, code, want, got)
	}
	return got
}

// receivedFile is one callback that a receiver saw.
type receivedFile struct {
	at      time.Time
	topic   string
	timer   string
	id      string
	attempt int
	fence   uint64
	dueMs   int64
	body    string
	header  http.Header
}

// receiver records callbacks; answer decides the status.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	all    []receivedFile
	signal chan struct{}
}

func newReceiver(t testing.TB, answer func(a *receivedFile, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{signal: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := receivedFile{at: time.Now()}
		body, _ := io.ReadAll(req.Body)
		h := req.Header
		a.topic, a.timer, a.id, a.body, a.header = h.Get("Carillon-Topic"), h.Get("Carillon-Timer"), h.Get("Webhook-Id"), string(body), h
		a.attempt, _ = strconv.Atoi(h.Get("Carillon-Attempt"))
		a.fence, _ = strconv.ParseUint(h.Get("Carillon-Fence"), 10, 64)
		a.dueMs, _ = strconv.ParseInt(h.Get("Carillon-Due"), 10, 64)
		if answer != nil {
			answer(&a, w)
		}
		r.mu.Lock()
		r.all = append(r.all, a)
		r.mu.Unlock()
		select {
		case r.signal <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// await waits for n callbacks and returns all there are.
func (r *receiver) await(t *testing.T, n int) []receivedFile {
	t.Helper()
	timeout := time.After(patience)
	for {
		r.mu.Lock()
		got := append([]receivedFile(nil), r.all...)
		r.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-r.signal:
		case <-timeout:
			t.Fatalf("%d callbacks, expected %d", len(got), n)
		}
	}
}

func (r *running) timer(topic, id string) map[string]any {
	r.t.Helper()
	var v map[string]any
	testkit.Must(r.t, json.Unmarshal([]byte(r.must(200, "GET", "/v1/topics/"+topic+"/timers/"+id, "")), &v))
	return v
}

// TestFirstTimer: a node on an empty directory is ready within a second, and calls on time. The best
// of five counts: the machine may be busy.
func TestFirstTimer(t *testing.T) {
	ready, late := time.Hour, time.Hour
	for try := 0; try < 5 && (ready > time.Second || late > 100*time.Millisecond); try++ {
		begun := time.Now()
		n := start(t, t.TempDir())
		ready = min(ready, time.Since(begun))
		late = min(late, n.firstTimer(t))
	}
	if ready > time.Second {
		t.Errorf("ready after %s, promised within a second", ready)
	}
	if late > 100*time.Millisecond {
		t.Errorf("%s late", late)
	}
}

// firstTimer adds a timer and returns how late it was called.
func (r *running) firstTimer(t *testing.T) (late time.Duration) {
	t.Helper()
	rec := newReceiver(t, nil)
	r.must(201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":"a","delay":"200ms","payload":{"n":  1},"callback":{"url":"%s/hook"}}`, rec.URL))
	v := r.timer("orders", "a")
	if due := int64(v["due_ms"].(float64)); time.Now().UnixMilli() < due && (v["state"] != "scheduled" || v["attempts"] != 0.0) {
		t.Errorf("before: %v", v)
	}
	a := rec.await(t, 1)[0]
	if a.topic != "orders" || a.timer != "a" || a.attempt != 1 || a.fence == 0 || a.body != `{"n":  1}` || strings.Contains(a.id, ".") || a.id == "" {
		t.Errorf("callback: %+v", a)
	}
	late = a.at.Sub(time.UnixMilli(a.dueMs))
	if late < 0 {
		t.Errorf("%s early", -late)
	}
	r.eventually("orders", "a", "done")
	return late
}

// eventually waits for a state: the outcome of a call is committed a moment after its answer.
func (r *running) eventually(topic, id, state string) map[string]any {
	r.t.Helper()
	var v map[string]any
	defer func() {
		if r.t.Failed() {
			r.t.Logf("timer %s: %v", id, v)
		}
	}()
	until(r.t, fmt.Sprintf("timer %s of %s is %s", id, topic, state), func() bool {
		v = r.timer(topic, id)
		return v["state"] == state
	})
	return v
}

func TestRestartKeepsTimers(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"far","delay":"8760h","payload":1}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"soon","delay":"1s","payload":2}`)
	testkit.Must(t, n.stop())
	n = start(t, dir)
	if v := n.timer("orders", "far"); v["state"] != "scheduled" {
		t.Errorf("far: %v", v)
	}
	if a := rec.await(t, 1)[0]; a.timer != "soon" || a.body != "2" {
		t.Errorf("%+v", a)
	}
	if got := n.must(200, "DELETE", "/v1/topics/orders/timers/far", ""); got != `{"outcome":"prevented"}` {
		t.Error(got)
	}
	n.must(410, "PATCH", "/v1/topics/orders/timers/far", `{"priority":3}`)
}

func TestHerd(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const count = 3500
	n := start(t, t.TempDir())
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/herd", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	due := time.Now().Add(2 * time.Second).UnixMilli()
	for from := 0; from < count; from += 500 {
		var b bytes.Buffer
		b.WriteString(`{"ops":[`)
		for i := range 500 {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"op":"add","id":"h%d","at_ms":%d,"payload":%d}`, from+i, due, from+i)
		}
		b.WriteString("]}")
		if got := n.must(200, "POST", "/v1/topics/herd/batch?brief=true", b.String()); strings.Contains(got, "error") {
			t.Fatal(got)
		}
	}
	seen := map[string]int{}
	var latest time.Duration
	for _, a := range rec.await(t, count) {
		seen[a.timer]++
		late := a.at.Sub(time.UnixMilli(a.dueMs))
		if late < 0 {
			t.Fatalf("%s was %s early", a.timer, -late)
		}
		latest = max(latest, late)
	}
	if len(seen) != count || len(rec.await(t, count)) != count {
		t.Errorf("%d different timers in %d calls, expected %d", len(seen), len(rec.all), count)
	}
	t.Logf("the last of %d was %s late", count, latest)
}

// A node that waits for the others of its cluster says so to each request.
func TestRequestsToANodeInNoCluster(t *testing.T) {
	t.Parallel()
	r := startUnready(t, t.TempDir(), func(c *Config) {
		c.Peer, c.Gossip, c.BootstrapExpect, c.Join = "127.0.0.1:0", "127.0.0.1:0", 3, []string{"127.0.0.1:1"}
	})
	const reason = "founding: 1 of 3 founders are here"
	r.awaitBody(503, "/readyz", reason)
	for _, path := range []string{"/v1/topics/t/timers", "/metrics"} {
		if code, body := r.call("GET", path, ""); code != 503 || !strings.Contains(body, reason) || strings.Contains(body, "reading its log") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
