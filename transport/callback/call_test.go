package callback

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
)

func TestCallOnTheWire(t *testing.T) {
	got := make(chan string, 1)
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		var raw bytes.Buffer
		_, _, err := readRequest(bufio.NewReader(io.TeeReader(in, &raw)))
		if err != nil {
			return
		}
		got <- raw.String()
		_, _ = io.WriteString(c, answer200)
	})
	p := startPool(t, Config{Policy: local, UserAgent: "Carillon/1.2"})
	req := post(r.url + "/a/../b//c%2f?q=%7e&x")
	req.Headers = []Header{{"x-tenant", "7"}, {"Cookie", "a=b;c=d"}}
	req.Receipt, req.AskedMs = "rcp", 1699999990000
	out := callOnce(t, p, req)
	if out.Err != "" || out.Status != 200 || out.NotSent || !out.Sent || out.Took <= 0 || out.StartedMs == 0 {
		t.Errorf("outcome %+v", out)
	}
	host := strings.TrimPrefix(r.url, "http://")
	want := "POST /a/../b//c%2f?q=%7e&x HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: Carillon/1.2\r\n" +
		"Content-Type: application/json\r\nContent-Length: 12\r\nx-tenant: 7\r\nCookie: a=b;c=d\r\nwebhook-id: msg_1\r\n" +
		"Carillon-Topic: orders\r\nCarillon-Timer: {order-77}close\r\nCarillon-Due: 1700000000000\r\nCarillon-Asked: 1699999990000\r\n" +
		"Carillon-Attempt: 1\r\nCarillon-Fence: 7\r\nCarillon-Receipt: rcp\r\n\r\n" + `{"order":77}`
	if g := <-got; g != want {
		t.Errorf("on the wire:\n%s\nwant:\n%s", g, want)
	}
}

// TestEndIsRoundedUp: a wait of a millisecond from the end of a call on is no shorter than that.
func TestEndIsRoundedUp(t *testing.T) {
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		if _, _, err := readRequest(in); err == nil {
			_, _ = io.WriteString(c, answer200)
		}
	})
	for _, fraction := range []time.Duration{0, time.Microsecond, 999_900 * time.Nanosecond} {
		wall := time.UnixMilli(1_700_000_000_000).Add(fraction)
		p := startPool(t, Config{Policy: local, Wall: func() time.Time { return wall }})
		out := callOnce(t, p, post(r.url))
		end := wall.Add(out.Took)
		if out.StartedMs != 1_700_000_000_000 || time.UnixMilli(out.EndedMs).Before(end) || time.UnixMilli(out.EndedMs-1).After(end) {
			t.Errorf("from %v for %v, and it ended at %d", wall, out.Took, out.EndedMs)
		}
	}
}

func TestCallSignsAndMethods(t *testing.T) {
	type seen struct {
		r    *http.Request
		body []byte
	}
	got := make(chan seen, 1)
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		for {
			req, body, err := readRequest(in)
			if err != nil {
				return
			}
			got <- seen{req, body}
			_, _ = io.WriteString(c, answer200)
		}
	})
	p := startPool(t, Config{Policy: local})
	secrets := [][]byte{bytes.Repeat([]byte{1}, 24), bytes.Repeat([]byte{2}, 64)}
	for _, method := range []string{"", "POST", "PUT", "PATCH", "GET", "DELETE"} {
		req := post(r.url + "?only=query")
		req.Method, req.Secrets = method, secrets
		if method == "PUT" {
			req.Timer = "" // its body names several
		}
		if out := callOnce(t, p, req); out.Err != "" {
			t.Fatalf("%s: %+v", method, out)
		}
		s := <-got
		h := s.r.Header
		seconds, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
		if err != nil || time.Since(time.Unix(seconds, 0)) > time.Minute {
			t.Errorf("%s: timestamp %q", method, h.Get("webhook-timestamp"))
		}
		values := "carillon-v1"
		for _, name := range []string{"webhook-id", "webhook-timestamp", "Carillon-Topic", "Carillon-Timer", "Carillon-Due", "Carillon-Attempt", "Carillon-Fence", "Carillon-Receipt"} {
			values += "\n" + h.Get(name)
		}
		message := h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "." + string(s.body)
		for i, secret := range secrets {
			ofMessage, ofValues := strings.Split(h.Get("webhook-signature"), " "), strings.Split(h.Get("Carillon-Signature"), " ")
			if len(ofMessage) != len(secrets) || len(ofValues) != len(secrets) || ofMessage[i] != signature(secret, message) || ofValues[i] != signature(secret, values) {
				t.Errorf("%s: not signed by secret %d: %v", method, i, h)
			}
		}
		if req.Timer == "" && h.Get("Carillon-Timer")+h.Get("Carillon-Due")+h.Get("Carillon-Attempt")+h.Get("Carillon-Fence") != "" {
			t.Errorf("a call of several timers has headers of one: %v", h)
		}
		noBody := method == "GET" || method == "DELETE"
		if noBody != (len(s.body) == 0) || noBody != (h.Get("Content-Type") == "") || s.r.RequestURI != "/?only=query" {
			t.Errorf("%s: body %q, headers %v, target %s", method, s.body, h, s.r.RequestURI)
		}
		if method != "" && s.r.Method != method {
			t.Errorf("method %s arrived as %s", method, s.r.Method)
		}
	}
	if n := r.connections(); n != 1 {
		t.Errorf("%d connections for calls one after the other, want 1", n)
	}
}

// TestHostileReceivers: each case is one receiver and the end that its call must have.
func TestHostileReceivers(t *testing.T) {
	chunk := strings.Repeat("x", 4096)
	flood := func(head, piece string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, in *bufio.Reader) {
			_, _, _ = readRequest(in)
			_, err := io.WriteString(c, head)
			for err == nil {
				_, err = io.WriteString(c, piece)
			}
		}
	}
	// drip sends one byte, then waits for the end: the slowest possible dripping.
	drip := func(answer string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, in *bufio.Reader) {
			_, _, _ = readRequest(in)
			_, _ = io.WriteString(c, answer)
			hang(c, in)
		}
	}
	for _, test := range []struct {
		name   string
		script func(net.Conn, *bufio.Reader)
		status int
		err    string // a prefix
		hangs  bool
	}{
		{"hang", hang, 0, "timeout", true},
		{"accept and close", func(net.Conn, *bufio.Reader) {}, 0, "connection ", false},
		{"read and close", func(_ net.Conn, in *bufio.Reader) { _, _, _ = readRequest(in) }, 0, "connection closed", false},
		{"reset", reset, 0, "connection reset", false},
		{"garbage", always("\x00\x01\x02 what\r\n\r\n"), 0, "bad response", false},
		{"not a status", always("HTTP/1.1 abc OK\r\n\r\n"), 0, "bad response", false},
		{"status too low", always("HTTP/1.1 099 OK\r\n\r\n"), 0, "bad response", false},
		{"http 2 preface", always("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, "bad response", false},
		{"half a header", func(c net.Conn, in *bufio.Reader) {
			_, _, _ = readRequest(in)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX:")
		}, 0, "connection closed", false},
		{"dripping header", drip("HTTP/1.1 200 OK\r\nX: "), 0, "timeout", true},
		{"dripping body", drip("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx"), 200, "", true},
		{"dripping chunks", drip("HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"), 500, "status 500", true},
		{"endless header", flood("HTTP/1.1 200 OK\r\n", "X-A: "+chunk+"\r\n"), 200, "", false},
		{"endless header of a failure", flood("HTTP/1.1 410 X\r\n", "X-A: "+chunk+"\r\n"), 410, "status 410", false},
		{"endless header of an interim answer", flood("HTTP/1.1 103 X\r\n", "X-A: "+chunk+"\r\n"), 0, "bad response", false},
		{"endless first line", flood("HTTP/1.1 200 ", chunk), 200, "", false},
		{"endless body", flood("HTTP/1.1 200 OK\r\n\r\n", chunk), 200, "", false},
		{"endless chunks", flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1000\r\n"+chunk+"\r\n"), 200, "", false},
		{"huge length", flood("HTTP/1.1 404 X\r\nContent-Length: 9999999999\r\n\r\n", chunk), 404, "status 404", false},
		{"huge chunk", flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n", chunk), 200, "", false},
		{"bad chunk", always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 200, "", false},
		{"100 first", always("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + answer200), 200, "", false},
		{"100 only", drip("HTTP/1.1 100 Continue\r\n\r\n"), 0, "timeout", true},
		{"100 for ever", flood("", "HTTP/1.1 100 Continue\r\n\r\n"), 0, "bad response", false},
		{"switching", always("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), 101, "status 101", false},
		{"redirect", always("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"), 302, "redirect 302", false},
		{"http 1.0", func(c net.Conn, in *bufio.Reader) {
			_, _, _ = readRequest(in)
			_, _ = io.WriteString(c, "HTTP/1.0 204 X\r\n\r\n")
		}, 204, "", false},
		{"no content", always("HTTP/1.1 204 No Content\r\n\r\n"), 204, "", false},
		{"accepted", always(answerOf(202)), 202, "", false},
		{"gone", always(answerOf(410)), 410, "status 410", false},
		{"early answer", func(c net.Conn, in *bufio.Reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 413 X\r\nConnection: close\r\n\r\n")
			hang(c, in)
		}, 413, "status 413", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := func(t *testing.T, config Config, req *Request) {
				out := callOnce(t, startPool(t, config), req)
				if out.NotSent || out.Status != test.status || !strings.HasPrefix(out.Err, test.err) || (test.err == "") != (out.Err == "") {
					t.Errorf("outcome %+v, want %d %q", out, test.status, test.err)
				}
				if test.hangs && out.Took != req.Timeout || !test.hangs && out.Took > patience/2 {
					t.Errorf("took %v with a time-out of %v", out.Took, req.Timeout)
				}
			}
			if !test.hangs {
				f(t, Config{Policy: local}, post(receive(t, test.script).url))
				return
			}
			synctest.Test(t, func(t *testing.T) {
				req := post("http://shop.example/")
				req.Timeout = 100 * time.Millisecond
				f(t, Config{Dial: (&memory{serve: test.script}).dial}, req)
			})
		})
	}
}

func reset(c net.Conn, in *bufio.Reader) {
	_, _, _ = readRequest(in)
	_ = c.(*net.TCPConn).SetLinger(0)
}

func TestConnectionRefused(t *testing.T) {
	p := startPool(t, Config{Policy: local})
	out := callOnce(t, p, post("http://127.0.0.1:1/")) // where nothing listens
	if !out.failed() || out.Err != "connection refused" || out.Sent || out.Refused {
		t.Errorf("outcome %+v", out)
	}
}

func TestRetryAfterOfAnswer(t *testing.T) {
	f := func(status int, want time.Duration) {
		t.Helper()
		r := receive(t, always(fmt.Sprintf("HTTP/1.1 %d X\r\nretry-after: 30\r\nContent-Length: 0\r\n\r\n", status)))
		p := startPool(t, Config{Policy: local})
		if out := callOnce(t, p, post(r.url)); out.RetryAfterMs != want.Milliseconds() || out.Status != status {
			t.Errorf("%d: %+v, want %v", status, out, want)
		}
	}
	f(429, 30*time.Second)
	f(503, 30*time.Second)
	f(500, 0)
	f(302, 0)
}

// TestNothingIsSentTwice: a PUT against a receiver that closes without an answer is
// seen once, on a fresh connection and on a reused one.
func TestNothingIsSentTwice(t *testing.T) {
	var requests atomic.Int32
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		for {
			req, _, err := readRequest(in)
			if err != nil {
				return
			}
			requests.Add(1)
			if req.URL.Path != "/ok" {
				return
			}
			_, _ = io.WriteString(c, answer200)
		}
	})
	p := startPool(t, Config{Policy: local})
	for _, path := range []string{"/close", "/ok", "/close"} {
		req := post(r.url + path)
		req.Method = "PUT"
		out := callOnce(t, p, req)
		if ok := path == "/ok"; ok != (out.Err == "") || !out.Sent {
			t.Errorf("%s: %+v", path, out)
		}
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("the receiver saw %d requests, want 3", n)
	}
	if n := r.connections(); n != 2 {
		t.Errorf("%d connections, want 2: the second PUT to /close reuses the one of /ok", n)
	}
}

// TestStaleConnection: an idle connection that the receiver has closed, or on which it has left an
// answer that nobody asked for, is found before the request goes out.
func TestStaleConnection(t *testing.T) {
	for name, spoil := range map[string]func(net.Conn){
		"closed":   func(c net.Conn) { c.Close() },
		"unasked":  func(c net.Conn) { _, _ = io.WriteString(c, answerOf(200)) },
		"shutdown": func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			first := make(chan net.Conn, 1)
			var calls atomic.Int32
			r := receive(t, func(c net.Conn, in *bufio.Reader) {
				for {
					if _, _, err := readRequest(in); err != nil {
						return
					}
					if calls.Add(1) == 1 {
						_, _ = io.WriteString(c, answer200)
						first <- c
						continue
					}
					_, _ = io.WriteString(c, answerOf(418))
				}
			})
			p := startPool(t, Config{Policy: local})
			if out := callOnce(t, p, post(r.url)); out.Err != "" {
				t.Fatalf("%+v", out)
			}
			spoil(<-first)
			waitStale(t, p)
			if out := callOnce(t, p, post(r.url)); out.Status != 418 {
				t.Errorf("second call: %+v, want the answer 418 over a new connection", out)
			}
			if n := r.connections(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
		})
	}
}

// waitStale blocks until the network has brought the news to the only idle connection.
func waitStale(t *testing.T, p *Pool) {
	t.Helper()
	for _, d := range p.all() {
		pooled, err := d.client.AcquireConn(idleOnly, noCleaner)
		if err != nil {
			t.Fatal(err)
		}
		c := countingConnOf(pooled.Conn())
		_ = c.SetReadDeadline(time.Now().Add(patience))
		err = c.stale.raw.Read(func(fd uintptr) bool {
			var one [1]byte
			_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return err != syscall.EAGAIN
		})
		d.client.ReleaseConn(pooled)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDispatchGuard(t *testing.T) {
	r := receive(t, always(answer200))
	p := startPool(t, Config{Policy: local})
	req := post(r.url)
	req.Timeout = 5 * time.Second
	req.Deadline = p.config.Lease() + 4*time.Second
	if out := callOnce(t, p, req); !out.NotSent || out.Sent || out.Started.IsZero() || out.Err == "" {
		t.Errorf("outcome %+v, want not sent", out)
	}
	if n := r.connections(); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
	req.Deadline = p.config.Lease() + time.Minute
	if out := callOnce(t, p, req); out.Err != "" {
		t.Errorf("outcome %+v", out)
	}
}

// TestStandstillBeforeTheWrite: the process stands still after a call has begun, and the rest of
// the lease is no longer enough for a whole call. An idle connection would take the request at
// once; nothing of it is sent.
func TestStandstillBeforeTheWrite(t *testing.T) {
	r := receive(t, always(answer200))
	var standstill, begun atomic.Int64
	p := startPool(t, Config{
		Policy: local,
		Now:    func() time.Time { return time.Now().Add(time.Duration(begun.Load())) },
		Wall: func() time.Time { // read once in a call, at its begin
			begun.Store(standstill.Load())
			return time.Now()
		},
	})
	req := post(r.url)
	req.Timeout = 5 * time.Second
	if out := callOnce(t, p, req); out.Err != "" {
		t.Fatalf("outcome %+v", out)
	}
	standstill.Store(int64(2 * time.Second))
	req.Deadline = p.config.Lease() + 6*time.Second
	if out := callOnce(t, p, req); !out.NotSent || out.Sent || out.Err == "" {
		t.Errorf("outcome %+v, want not sent", out)
	}
	standstill.Store(0)
	if out := callOnce(t, p, req); out.Err != "" {
		t.Errorf("outcome %+v", out)
	}
	if n := r.connections(); n != 1 {
		t.Errorf("%d connections, want one: no call has used it up", n)
	}
}

// TestGuardAfterSlowDial: time that the dial used up is not given to the exchange.
func TestGuardAfterSlowDial(t *testing.T) {
	r := receive(t, always(answer200))
	p := startPool(t, Config{Policy: local, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		<-ctx.Done() // as long as the call may take
		return new(net.Dialer).DialContext(context.Background(), network, address)
	}})
	req := post(r.url)
	req.Timeout = 50 * time.Millisecond
	if out := callOnce(t, p, req); !out.failed() || out.Err != "timeout" || out.Sent {
		t.Errorf("outcome %+v, want a time-out with nothing sent", out)
	}
}

func TestUnfitRequests(t *testing.T) {
	r := receive(t, always(answer200))
	p := startPool(t, Config{Policy: local})
	for name, spoil := range map[string]func(*Request){
		"method":            func(q *Request) { q.Method = "BREW / HTTP/1.1\r\n" },
		"header value":      func(q *Request) { q.Headers = []Header{{"X", "a\r\nHost: b"}} },
		"header name":       func(q *Request) { q.Headers = []Header{{"X: y\r\nZ", "a"}} },
		"content type":      func(q *Request) { q.ContentType = "a\nb" },
		"topic":             func(q *Request) { q.Topic = "a\r\n\r\n" },
		"other destination": func(q *Request) { q.URL = "http://127.0.0.1:1/" },
		"url":               func(q *Request) { q.URL = "http://u@127.0.0.1/" },
	} {
		req := post(r.url)
		permit, _ := acquire(p, Call{Key: keyOf(t, r.url), Breaker: Breaker{Failures: 1}}, newWaiter())
		spoil(req)
		outs := make(chan Outcome, 1)
		permit.Start(req, func(o Outcome) { outs <- o })
		if out := <-outs; !out.failed() || !strings.HasPrefix(out.Err, "bad request: ") || out.Sent {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if n := r.connections(); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
}

// TestHangingReceiverHurtsOnlyItself: with every slot of one destination taken by
// calls that hang, another destination's calls all end before the first of those.
func TestHangingReceiverHurtsOnlyItself(t *testing.T) {
	const slow, quick = "http://slow.example/", "http://quick.example/"
	synctest.Test(t, func(t *testing.T) {
		hanging, answering := &memory{serve: hang}, &memory{serve: always(answer200)}
		p := startPool(t, Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasPrefix(address, "slow.") {
				return hanging.dial(ctx, network, address)
			}
			return answering.dial(ctx, network, address)
		}})
		var slowEnded atomic.Int32
		slowDone := make(chan Outcome, 64)
		for range 64 {
			permit, verdict := acquire(p, Call{Key: keyOf(t, slow), Limit: 64, Breaker: Breaker{Failures: 1000}}, newWaiter())
			if verdict.Kind != delivery.Granted {
				t.Fatalf("%+v", verdict)
			}
			req := post(slow)
			req.Timeout = 2 * time.Second
			permit.Start(req, func(o Outcome) { slowEnded.Add(1); slowDone <- o })
		}
		full := newWaiter()
		if _, verdict := acquire(p, Call{Key: keyOf(t, slow), Limit: 64, Breaker: Breaker{Failures: 1000}}, full); verdict.Kind != delivery.ReceiverFull {
			t.Fatalf("%+v, want queued", verdict)
		}
		for range 200 {
			if out := callOnce(t, p, post(quick)); out.Err != "" {
				t.Fatalf("%+v", out)
			}
		}
		if n := slowEnded.Load(); n != 0 {
			t.Errorf("200 quick calls ended after %d slow ones", n)
		}
		for range 64 {
			if out := <-slowDone; out.Err != "timeout" || out.Took != 2*time.Second {
				t.Errorf("%+v", out)
			}
		}
		(<-full.granted).Cancel()
	})
}
