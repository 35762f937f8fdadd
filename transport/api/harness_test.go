package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/transport/api/web"
)

// harness is a server on loopback over a fake engine, with a clock that stands still unless a test
// moves it.
type harness struct {
	t      testing.TB
	engine *fakeEngine
	server *Server
	addr   string
	stop   context.CancelFunc
	done   chan error

	mu  sync.Mutex
	now time.Time

	conn net.Conn
	br   *bufio.Reader
}

// noon is where the harness's clock starts: 12:00:00.0005, so that rounding shows.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 500_000, time.UTC)

const noonMs = 1780315200001 // rounded up

func newHarness(t testing.TB, edit ...func(*Config)) *harness {
	t.Helper()
	h := &harness{t: t, now: noon, done: make(chan error, 1)}
	h.engine = newFakeEngine(h.clock)
	cfg := Config{Version: "test", Settings: web.Settings{Engine: h.engine, Clock: h.clock, Limits: web.DefaultLimits()}}
	cfg.Limits.HeaderTimeout, cfg.Limits.BodyTimeout, cfg.Limits.WriteTimeout = patience, patience, patience // a busy machine is no slow client
	for _, f := range edit {
		f(&cfg)
	}
	var err error
	if h.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { h.done <- h.server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		if h.conn != nil {
			h.conn.Close()
		}
		cancel()
		if err := <-h.done; err != nil {
			t.Errorf("serve: %v", err)
		}
		h.done <- nil
	})
	return h
}

func (h *harness) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *harness) advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// reply is an answer, its body read.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

// do sends a request and reads the answer. headers are "Name: value"; a body gets Content-Type:
// application/json unless the headers say otherwise.
func (h *harness) do(method, target, body string, headers ...string) *reply {
	h.t.Helper()
	var b strings.Builder
	b.WriteString(method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n")
	typed := false
	for _, line := range headers {
		b.WriteString(line + "\r\n")
		typed = typed || strings.HasPrefix(line, "Content-Type:")
	}
	if body != "" {
		if !typed {
			b.WriteString("Content-Type: application/json\r\n")
		}
		b.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	b.WriteString("\r\n" + body)
	if h.conn == nil {
		h.dial()
	}
	_ = h.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(h.conn, b.String()); err != nil {
		h.t.Fatal(err)
	}
	r := h.read(method)
	checkDocumented(h.t, method, target, r.status, r.header)
	return r
}

// patience is how long a test waits for what must come.
const patience = time.Minute

func (h *harness) dial() {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.conn, h.br = conn, bufio.NewReader(conn)
}

func (h *harness) read(method string) *reply {
	h.t.Helper()
	res, err := http.ReadResponse(h.br, &http.Request{Method: method})
	if err != nil {
		h.t.Fatalf("read answer: %v", err)
	}
	checkSniffing(h.t, res)
	body, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	if res.Close {
		h.conn.Close()
		h.conn = nil
	}
	return &reply{t: h.t, status: res.StatusCode, header: res.Header, body: string(body)}
}

// checkSniffing asks of an answer that no browser may take it for another type. Called for every
// answer of every test.
func checkSniffing(t testing.TB, res *http.Response) {
	t.Helper()
	if res.StatusCode >= 200 && res.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("an answer %d lacks X-Content-Type-Options: nosniff: %v", res.StatusCode, res.Header)
	}
}

// want asks for a status, and gives the reply back.
func (r *reply) want(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

// problem asks for a status and code in a well-formed problem document.
func (r *reply) problem(status int, code string) *reply {
	r.t.Helper()
	r.want(status)
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
		Retryable                 *bool
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		r.t.Fatalf("problem: %v: %s", err, r.body)
	}
	if p.Code != code || p.Status != status || p.Type == "" || p.Title == "" || p.Detail == "" || p.Retryable == nil {
		r.t.Fatalf("want code %s: %s", code, r.body)
	}
	if ct := r.header.Get("Content-Type"); ct != "application/problem+json" {
		r.t.Fatalf("problem has Content-Type %q", ct)
	}
	if (status == 503 || status == 429) != (r.header.Get("Retry-After") != "") {
		r.t.Fatalf("status %d with Retry-After %q", status, r.header.Get("Retry-After"))
	}
	return r
}

// json is the body as a tree.
func (r *reply) json() map[string]any {
	r.t.Helper()
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader([]byte(r.body)))
	if err := d.Decode(&v); err != nil {
		r.t.Fatalf("body: %v: %s", err, r.body)
	}
	return v
}

// has asks for fields: name, wanted JSON text ("" for absent), and so on. A name may be a path with
// dots.
func (r *reply) has(pairs ...string) *reply {
	r.t.Helper()
	hasFields(r.t, r.json(), r.body, pairs...)
	return r
}

func hasFields(t testing.TB, tree any, body string, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		got, want := pick(tree, pairs[i]), pairs[i+1]
		if got != want {
			t.Fatalf("%s = %s, want %s: %s", pairs[i], got, want, body)
		}
	}
}

func pick(v any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch node := v.(type) {
		case map[string]any:
			if v = node[name]; v == nil {
				if _, there := node[name]; !there {
					return ""
				}
			}
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(node) {
				return ""
			}
			v = node[i]
		default:
			return ""
		}
	}
	b, _ := json.Marshal(v)
	return string(b)
}

const cb = `"callback":{"url":"http://127.0.0.1:9/hook"}`
