package callback

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback/address"
)

// TestConnAges: an idle connection is used for 4 s, any for 5 min, by the clock.
func TestConnAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{serve: always(answer200)}
		p := startPool(t, Config{Dial: m.dial})
		f := func(later time.Duration, connections int32) {
			t.Helper()
			<-time.After(later)
			if out := callOnce(t, p, post("http://shop.example/")); out.Err != "" {
				t.Fatalf("%+v", out)
			}
			if n := m.dials.Load(); n != connections {
				t.Errorf("%d connections, want %d", n, connections)
			}
		}
		// No call begins at the instant of a sweep, which takes idle connections out of the pool and puts
		// them back.
		f(500*time.Millisecond, 1)
		f(2*time.Second, 1)
		f(5*time.Second, 2)
		for range 97 { // 291 s, never idle for long
			f(3*time.Second, 2)
		}
		f(3*time.Second, 2)
		f(3*time.Second, 2)
		f(3*time.Second+1, 3) // it is more than 300 s old
		<-time.After(5 * time.Second)
		p.sweep()
		d := p.all()[0]
		if open := d.client.ConnsCount(); open != 0 || p.idleConns.Load() != 0 {
			t.Errorf("%d open, %d idle after the sweep", open, p.idleConns.Load())
		}
	})
}

// TestUnsentRequestGoesOutWhole: an idle connection breaks before any of a request was sent on it,
// and the request goes out on a new one as it is.
func TestUnsentRequestGoesOutWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := make(chan string, 2)
		var broken atomic.Bool
		m := &memory{serve: func(c net.Conn, in *bufio.Reader) {
			for {
				_, body, err := readRequest(in)
				if err != nil {
					return
				}
				bodies <- string(body)
				_, _ = io.WriteString(c, answer200)
			}
		}}
		p := startPool(t, Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := m.dial(ctx, network, address)
			return &breaking{c, &broken}, err
		}})
		for range 2 {
			if out := callOnce(t, p, post("http://shop.example/")); out.Err != "" {
				t.Fatalf("%+v", out)
			}
			if got := <-bodies; got != string(post("").Body) {
				t.Errorf("body %q", got)
			}
			broken.Store(true)
		}
		if n := m.dials.Load(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

// breaking fails the next write that it is told to fail.
type breaking struct {
	net.Conn
	next *atomic.Bool
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.next.CompareAndSwap(true, false) {
		return 0, syscall.EPIPE
	}
	return b.Conn.Write(p)
}

func TestIdleConnsAreBounded(t *testing.T) {
	p := startPool(t, Config{Policy: local, MaxIdleConns: 2})
	for range 5 {
		r := receive(t, always(answer200))
		if out := callOnce(t, p, post(r.url)); out.Err != "" {
			t.Fatalf("%+v", out)
		}
	}
	open := 0
	for _, d := range p.all() {
		open += d.client.ConnsCount()
	}
	if open != 2 || p.idleConns.Load() != 2 {
		t.Errorf("%d open, %d idle, want 2", open, p.idleConns.Load())
	}
}

// TestLongBody against receivers that do not read it.
func TestLongBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		defer close(blocked)
		m := &memory{serve: func(net.Conn, *bufio.Reader) { <-blocked }}
		p := startPool(t, Config{Dial: m.dial})
		req := post("http://shop.example/")
		req.Body, req.Timeout = make([]byte, 32<<20), 200*time.Millisecond
		if out := callOnce(t, p, req); out.Err != "timeout" || !out.failed() || out.Took != req.Timeout {
			t.Errorf("%+v, want a time-out", out)
		}
	})
	f := func(script func(net.Conn, *bufio.Reader), want ...string) {
		t.Helper()
		r := receive(t, script)
		p := startPool(t, Config{Policy: local})
		req := post(r.url)
		req.Body, req.Timeout = make([]byte, 32<<20), 10*patience // a second of work under the race detector
		out := callOnce(t, p, req)
		ok := false
		for _, prefix := range want {
			ok = ok || strings.HasPrefix(out.Err, prefix)
		}
		if !ok || !out.failed() {
			t.Errorf("%+v, want one of %q", out, want)
		}
	}
	// The answer may be lost with the reset that follows.
	f(func(c net.Conn, in *bufio.Reader) {
		_, _ = in.ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 413 X\r\nConnection: close\r\n\r\n")
	}, "status 413", "connection ")
	f(func(c net.Conn, in *bufio.Reader) {
		_, _, _ = readRequest(in)
		_, _ = io.WriteString(c, answerOf(413))
	}, "status 413")
}

// TestLate: the guard right before the write.
func TestLate(t *testing.T) {
	s := span{started: noon, timeout: 10 * time.Second, end: noon.Add(10 * time.Second), lease: 14 * time.Second}
	f := func(after time.Duration, dialled bool, want error) {
		t.Helper()
		if got := s.late(noon.Add(after), after, dialled); got != want {
			t.Errorf("after %v, dialled %v: %v, want %v", after, dialled, got, want)
		}
	}
	f(0, false, nil)
	f(4*time.Second, false, nil)
	f(4*time.Second+1, false, errHeldBack)
	f(time.Minute, false, errHeldBack)
	f(9*time.Second, true, nil)
	f(10*time.Second, true, errTimeout)
	for slept, want := range map[time.Duration]error{3 * time.Second: nil, 5 * time.Second: errHeldBack} {
		// The machine slept, and the runtime's clock did not notice.
		for _, dialled := range []bool{false, true} {
			if got := s.late(noon.Add(time.Second), time.Second+slept, dialled); got != want {
				t.Errorf("after a sleep of %v, dialled %v: %v, want %v", slept, dialled, got, want)
			}
		}
	}
	s.lease = 0
	f(9*time.Second, false, nil)
	f(10*time.Second, false, errTimeout)
}

// scripted is a connection that answers with fixed bytes.
type scripted struct {
	net.Conn
	answer *bytes.Reader
}

func (s *scripted) Read(b []byte) (int, error)  { return s.answer.Read(b) }
func (s *scripted) Write(b []byte) (int, error) { return len(b), nil }

func (s *scripted) SetReadDeadline(time.Time) error { return nil }

// FuzzAnswer: the reading of any answer ends and keeps within its bounds, and a connection is kept
// only when nothing is left over on it.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		answer200, answerOf(500), "HTTP/1.1 100 C\r\n\r\n" + answer200, "HTTP/1.1 204 X\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nbody",
		"HTTP/1.1 429 X\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n", "HTTP/1.1 200\r\n\r\n", "HTTP/1.1 200 OK\r\n a\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 101 S\r\n\r\n", "HTTP/2 200\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	var x roundTripper
	f.Fuzz(func(t *testing.T, answer []byte) {
		in := &scripted{answer: bytes.NewReader(answer)}
		c := &countingConn{Conn: in, inCall: true}
		x.url, x.target = "http://h/", address.URL{Scheme: "http", Host: "h", Port: 80, Authority: "h", Target: "/"}
		x.prepare(post("http://h/"), "Carillon", noon)
		x.span, x.result = span{end: time.Now().Add(time.Minute)}, result{}
		keep, err := x.exchange(c, c)
		r := x.result
		out := Outcome{}
		out.judge(r, err, noon)
		switch {
		case !r.sent:
			t.Fatal("the request was written and is said not to be sent")
		case (err == nil) != (r.status >= 100 && r.status <= 999):
			t.Fatalf("status %d with error %v", r.status, err)
		case err == nil && keep && in.answer.Len() > 0 && len(answer) <= readBufferBytes:
			t.Fatalf("%d bytes left on a connection that is kept", in.answer.Len())
		case len(out.Err) > maxErrBytes || hasControl(out.Err) || (out.Err == "") != (err == nil && r.status >= 200 && r.status < 300):
			t.Fatalf("%+v", out)
		}
	})
}

// TestExtraAnswer: a connection with more on it than one answer is not used again.
func TestExtraAnswer(t *testing.T) {
	r := receive(t, always(answer200+answerOf(204)))
	p := startPool(t, Config{Policy: local})
	for i := range 3 {
		if out := callOnce(t, p, post(r.url)); out.Status != 200 {
			t.Errorf("%+v", out)
		}
		if n := r.connections(); n != i+1 {
			t.Errorf("%d connections after %d calls", n, i+1)
		}
	}
}

// TestDroppedDestinationKeepsNoConnection: destinations are dropped while the sweep holds their
// idle connections, and every connection is closed or at a destination that the pool knows.
func TestDroppedDestinationKeepsNoConnection(t *testing.T) {
	m := &memory{serve: always(answer200)}
	p := startPool(t, Config{Dial: m.dial, MaxDestinations: 2})
	var calls sync.WaitGroup
	swept, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swept)
		for {
			select {
			case <-ended:
				return
			default:
				p.sweep()
			}
		}
	}()
	for lane := range 4 {
		calls.Go(func() {
			for i := range 300 {
				url := fmt.Sprintf("http://shop%d.example/", (lane+i)%5)
				permit, v := acquire(p, Call{Key: keyOf(t, url)}, newWaiter())
				if v.Kind != delivery.Granted {
					continue // Both destinations are in use.
				}
				out := make(chan Outcome, 1)
				permit.Start(post(url), func(o Outcome) { out <- o })
				<-out
			}
		})
	}
	calls.Wait()
	close(ended)
	<-swept
	known := 0
	for _, d := range p.all() {
		known += d.client.IdleConnsCount()
	}
	if idle := p.idleConns.Load(); int(idle) != known {
		t.Errorf("%d idle connections, %d of them at destinations that are known", idle, known)
	}
}
