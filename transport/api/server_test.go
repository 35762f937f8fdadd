package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

func TestHealthReadyMetrics(t *testing.T) {
	var recovering error
	h := newHarness(t, func(c *Config) {
		c.Metrics = func(ctx *fasthttp.RequestCtx, _ bool) error {
			ctx.SetContentType("text/plain; version=0.0.4")
			ctx.SetBodyString("carillon_add_total 1\n")
			return recovering
		}
	})
	h.do("GET", "/healthz", "").want(200).has("status", `"ok"`, "version", `"test"`)
	h.do("GET", "/readyz", "").want(200).has("status", `"ready"`)
	if r := h.do("GET", "/metrics", "").want(200); r.body != "carillon_add_total 1\n" || !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
		t.Fatal(r)
	}
	recovering = timer.ErrRecovering
	h.do("GET", "/metrics", "").problem(503, web.Unavailable)
	h.engine.notReady = errors.New("replaying the log")
	if r := h.do("GET", "/readyz", "").problem(503, web.Unavailable); !strings.Contains(r.body, "replaying the log") {
		t.Fatal(r.body)
	}
	h.do("GET", "/healthz", "").want(200)
	newHarness(t).do("GET", "/metrics", "").problem(404, web.NotFound)
}

func TestMethods(t *testing.T) {
	h := newHarness(t)
	for target, allow := range map[string]string{
		"/healthz": "GET, HEAD", orders: "GET, HEAD, PUT, PATCH, DELETE", timersPath: "POST, GET, HEAD", timersPath + "/a": "GET, HEAD, PUT, PATCH, DELETE",
		timersPath + "/a/fire": "POST", batches: "POST", orders + "/dead": "GET, HEAD", "/v1/topics": "GET, HEAD",
	} {
		for _, method := range []string{"OPTIONS", "TRACE", "CONNECT", "get", "FOO", "DELETE", "PUT", "POST", "GET", "PATCH"} {
			if strings.Contains(allow, method) {
				continue
			}
			if r := h.do(method, target, "").problem(405, "method_not_allowed"); r.header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow %q, want %q", method, target, r.header.Get("Allow"), allow)
			}
		}
	}
	if r := h.do("OPTIONS", "*", ""); r.status != 405 || r.header.Get("Allow") == "" {
		t.Fatal(r)
	}
	checkRefused(t, h, []refused{
		{method: "GET", target: orders, body: `{}`, status: 400, code: web.BadRequest}, {method: "DELETE", target: timersPath + "/a", body: `{}`, status: 400, code: web.BadRequest},
		{method: "POST", target: timersPath, body: `{"delay":"1h"}`, status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: text/plain"}},
		{method: "POST", target: timersPath, body: `{"delay":"1h"}`, status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: application/x-www-form-urlencoded"}},
		{method: "POST", target: timersPath, body: `{"delay":"1h"}`, status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: multipart/form-data; boundary=x"}},
		{method: "POST", target: timersPath, body: `{"delay":"1h"}`, status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: "}},
		{method: "PATCH", target: timersPath + "/a", body: `{"delay":"1h"}`, status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: application/merge-patch+json"}},
	})
	h.do("HEAD", "/nothing", "").want(404)
}

// syncBuffer is a log that a test can read while the server writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestTrailingSlash: a path with a slash too many is refused with a text that names it.
func TestTrailingSlash(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{{"GET", "/v1/topics/", 400}, {"POST", "/v1/topics/t/timers/", 404}, {"GET", "/v1/cluster/", 404}, {"PUT", "/v1/topics/t/timers/", 400}} {
		if detail := h.do(c.method, c.path, "").want(c.status).json()["detail"].(string); !strings.HasSuffix(detail, "ends with a slash, which must go") {
			t.Errorf("%s %s: %s", c.method, c.path, detail)
		}
	}
}

// TestBadURLIsNamedOnce: the code, the title and the field name the fault; the reason follows.
func TestBadURLIsNamedOnce(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/t", `{"callback":{"url":"ftp://x/"}}`).want(400).has("detail", `"callback.url: must start with http:// or https://"`)
}

func TestPanicIsA500(t *testing.T) {
	var log syncBuffer
	h := newHarness(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	h.engine.beforeDo = func() { panic("secret detail") }
	r := h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).problem(500, web.InternalError)
	if strings.Contains(r.body, "secret detail") || !strings.Contains(log.String(), "secret detail") || !strings.Contains(log.String(), "stack=") {
		t.Fatal(r.body, log.String())
	}
	h.engine.beforeDo = nil
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
}

// A panic on a goroutine that a request has started costs that request, too.
func TestPanicInAFanOutIsA500(t *testing.T) {
	var log syncBuffer
	h := newHarness(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Engine = panickyEngine{c.Engine.(*fakeEngine)}
	})
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
	h.do("GET", timersPath, "").problem(500, web.InternalError)
	h.do("GET", orders+"/dead", "").problem(500, web.InternalError)
	h.do("POST", orders+"/cancel", `{"all":true}`).problem(500, web.InternalError)
	h.do("POST", orders+"/dead/purge", `{"all":true}`).problem(500, web.InternalError)
	if n := strings.Count(log.String(), "secret detail"); n != 4 {
		t.Errorf("the log has it %d times", n)
	}
	h.do("GET", timersPath+"/a", "").want(200)
}

// panickyEngine panics in requests to many shards.
type panickyEngine struct{ *fakeEngine }

func (e panickyEngine) Core() (*backend.Core, error) { return e.with(e, topicsOf(e.fakeEngine)) }

func (panickyEngine) List(context.Context, *timer.Query) (timer.Page, error) {
	panic("secret detail")
}

func (panickyEngine) Bulk(context.Context, *bulk.Update) error {
	panic("secret detail")
}

// An engine's error that the contract does not know is logged and not shown.
func TestUnknownFaultIsLogged(t *testing.T) {
	var log syncBuffer
	h := newHarness(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	h.engine.err = errors.New("inner detail")
	r := h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).problem(503, web.Unavailable)
	if strings.Contains(r.body, "inner detail") || !strings.Contains(log.String(), "inner detail") {
		t.Fatal(r.body, log.String())
	}
}

// A request in flight when the server is told to stop is answered; idle and silent connections are
// closed at once.
func TestStopFinishesWhatIsInFlight(t *testing.T) {
	h := newHarness(t)
	idle := newConn(t, h.addr)
	if _, err := io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	silent := newConn(t, h.addr)
	started, finish := make(chan struct{}), make(chan struct{})
	h.engine.beforeDo = func() { close(started); <-finish }
	answered := make(chan *reply)
	go func() { answered <- h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`) }()
	<-started
	h.stop()
	for _, c := range []net.Conn{silent, idle} {
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := net.Dial("tcp", h.addr); err == nil {
		t.Error("still takes connections")
	}
	close(finish)
	if r := <-answered; r.status != 201 {
		t.Fatal(r)
	}
	if err := <-h.done; err != nil {
		t.Fatal(err)
	}
	h.done <- nil
}

// A client that stops in the middle of its request does not hold the server: it is told so, soon.
func TestStopDoesNotWaitForHalfARequest(t *testing.T) {
	const grace = time.Minute
	h := newHarness(t, func(c *Config) { c.Limits.Grace, c.Limits.Unfinished = grace, 50*time.Millisecond })
	body := `{"id":"whole","delay":"1h",` + cb + `}`
	half := newConn(t, h.addr)
	// The answer to Expect says that the server has the header and waits for the body.
	if _, err := io.WriteString(half, goodHead+"Expect: 100-continue\r\nContent-Length: "+decLen(body)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(half)
	if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
		t.Fatal(line, err)
	}
	if _, err := br.ReadString('\n'); err != nil { // the empty line
		t.Fatal(err)
	}
	if _, err := io.WriteString(half, body[:len(body)/2]); err != nil {
		t.Fatal(err)
	}
	// One that is whole and being answered is left alone, however long that takes.
	started, finish := make(chan struct{}), make(chan struct{})
	h.engine.beforeDo = func() { close(started); <-finish }
	answered := make(chan *reply)
	go func() { answered <- h.do("POST", timersPath, body) }()
	<-started
	begun := time.Now()
	h.stop()
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != 408 || !res.Close {
		t.Errorf("half a request was answered %d, close %v", res.StatusCode, res.Close)
	}
	half.Close()
	close(finish)
	if r := <-answered; r.status != 201 {
		t.Error(r)
	}
	if err := <-h.done; err != nil {
		t.Error(err)
	}
	h.done <- nil
	if took := time.Since(begun); took > grace/2 {
		t.Errorf("stopping took %s", took)
	}
}

func newConn(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// waitingEngine answers nothing until its caller gives up.
type waitingEngine struct {
	*fakeEngine
	started chan struct{}
}

func (e *waitingEngine) Core() (*backend.Core, error) { return e.with(e, fakeTopics{e.fakeEngine}) }

func (e *waitingEngine) Do(ctx context.Context, _ timer.ShardID, _ *timer.Command, _ bool) (timer.Result, error) {
	close(e.started)
	<-ctx.Done()
	return timer.Result{}, timer.ErrStopped
}

func TestStopGivesUpAfterTheGrace(t *testing.T) {
	e := &waitingEngine{newFakeEngine(time.Now), make(chan struct{})}
	limits := web.DefaultLimits()
	limits.Grace = 50 * time.Millisecond
	s, err := New(Config{Settings: web.Settings{Engine: e, Limits: limits}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	c := newConn(t, ln.Addr().String())
	body := `{"delay":"1h",` + cb + `}`
	if _, err := io.WriteString(c, goodHead+"Content-Length: "+decLen(body)+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	<-e.started
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "grace") {
		t.Fatal(err)
	}
}

func TestConfigFaults(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("took no engine")
	}
}

// Two servers in one process share nothing.
func TestTwoServers(t *testing.T) {
	a, b := newHarness(t), newHarness(t)
	a.do("POST", timersPath, `{"id":"x","delay":"1h",`+cb+`}`).want(201)
	b.do("GET", timersPath+"/x", "").problem(404, web.UnknownTopic)
}
