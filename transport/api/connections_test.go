package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carillon/transport/api/web"
)

// from dials the server from one address of loopback.
func (h *harness) from(address string) *probe {
	h.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := d.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &probe{conn, bufio.NewReader(conn)}
}

type probe struct {
	conn net.Conn
	br   *bufio.Reader
}

// get returns the status of an answer; 0 when the server has closed the connection.
func (p *probe) get(target string) int {
	_, _ = io.WriteString(p.conn, "GET "+target+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	res, err := http.ReadResponse(p.br, nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// ended reports that the server has closed the connection, as it must soon.
func (p *probe) ended() bool {
	_, err := p.br.ReadByte()
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// busy is a connection in the middle of a request.
func (h *harness) busy(address string) *probe {
	p := h.from(address)
	if p.get("/healthz") != 200 {
		h.t.Fatal("no answer")
	}
	if _, err := io.WriteString(p.conn, "GET /healthz HTTP/1.1\r\nHost: "); err != nil {
		h.t.Fatal(err)
	}
	h.await("a connection is busy", func() bool {
		idle := h.server.listening.Load().connections.where(func(c *framedConn) bool {
			return c.RemoteAddr().String() == p.conn.LocalAddr().String() && c.idleSince.Load() == 0
		})
		return len(idle) == 1
	})
	return p
}

// idle asks something and waits until the server waits for more.
func (h *harness) idle(p *probe) {
	h.t.Helper()
	if got := p.get("/healthz"); got != 200 {
		h.t.Fatal(got)
	}
	h.await("a connection is idle", func() bool {
		return len(h.server.listening.Load().connections.where(func(c *framedConn) bool {
			return c.RemoteAddr().String() == p.conn.LocalAddr().String() && c.idleSince.Load() > 0
		})) == 1
	})
}

func (h *harness) await(what string, holds func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// One address that keeps connections open without asking anything takes no more than its share of
// them, and takes it from nobody: the connection that has waited longest goes.
func TestLongestIdleConnectionOfAnAddressGoesFirst(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.Connections = 8 })
	other := h.from("127.0.0.9")
	h.idle(other)
	var crowd []*probe
	for i := range 4 {
		crowd = append(crowd, h.from("127.0.0.2"))
		h.idle(crowd[i])
	}
	h.idle(crowd[0]) // so crowd[1] has waited longest
	for i := range 4 {
		h.idle(h.from("127.0.0.2"))
		if first := crowd[(i+1)%4]; !first.ended() {
			t.Fatalf("connection %d that waited longest is still open", i)
		}
	}
	if got := other.get("/healthz"); got != 200 {
		t.Errorf("another address's connection was closed: %d", got)
	}
}

// Silent connections of many addresses that fill all places make way for a client with a request.
func TestIdleConnectionsMakeWay(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.Connections = 8 })
	for i := range 40 {
		h.from(fmt.Sprintf("127.0.1.%d", i+1))
	}
	for i := range 8 {
		if got := h.from("127.0.0.3").get("/v1/topics"); got != 200 {
			t.Fatal(i, got)
		}
	}
}

// Where every place is taken by a request under way, health can still be asked for, and nothing
// else; no request is cut off for it.
func TestHealthIsAnsweredBeyondTheConnectionLimit(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.Connections = 4 })
	var held []*probe
	for i := range 4 {
		held = append(held, h.busy(fmt.Sprintf("127.0.0.%d", 2+i%2)))
	}
	for range 3 {
		p := h.from("127.0.0.7")
		if got := p.get("/healthz"); got != 200 {
			t.Fatal(got)
		}
		if !p.ended() {
			t.Error("a connection beyond the limit is kept")
		}
	}
	if got := h.from("127.0.0.2").get("/readyz"); got != 200 {
		t.Error("of an address that has its share:", got)
	}
	if got := h.from("127.0.0.7").get("/v1/topics"); got != 503 {
		t.Error(got)
	}
	for i, p := range held {
		if _, err := io.WriteString(p.conn, "127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(p.br, nil); err != nil || res.StatusCode != 200 {
			t.Errorf("request %d was cut off: %v", i, err)
		}
	}
}

// The room for health has a bound of its own; a connection beyond it is told so at once.
func TestConnectionsBeyondEveryBoundAreRefused(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.Connections = 2 })
	h.busy("127.0.0.2")
	h.busy("127.0.0.3")
	for range probeShare {
		h.from("127.0.0.4")
	}
	h.await("the room of this address is full", func() bool {
		return len(h.server.listening.Load().connections.where((*framedConn).probing)) == probeShare
	})
	p := h.from("127.0.0.4")
	res, err := http.ReadResponse(p.br, nil)
	if err != nil || res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Fatal(res, err)
	}
	if got := h.from("127.0.0.5").get("/healthz"); got != 200 {
		t.Error("another address:", got)
	}
}

// The counts by address go with their connections.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.Connections = 4 })
	for i := range 30 {
		p := h.from(fmt.Sprintf("127.0.0.%d", 2+i%3))
		if got := p.get("/healthz"); got != 200 {
			t.Fatal(got)
		}
		if i%2 == 0 {
			p.conn.Close()
		}
	}
	h.await("all are forgotten", func() bool {
		h.server.listening.Load().closeWhere(func(*framedConn) bool { return true })
		cs := h.server.listening.Load().connections
		cs.mu.Lock()
		defer cs.mu.Unlock()
		return len(cs.open) == 0 && len(cs.addresses) == 0 && cs.places == 0 && cs.probes == 0
	})
}

// failingListener fails to accept as often as a test tells it to.
type failingListener struct {
	net.Listener
	mu       sync.Mutex
	failures []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	if len(l.failures) > 0 {
		err := l.failures[0]
		l.failures = l.failures[1:]
		l.mu.Unlock()
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
	}
	l.mu.Unlock()
	return l.Listener.Accept()
}

// An accept that fails, for want of files or because the connection is gone, does not end the
// server.
func TestFailedAcceptDoesNotEndTheServer(t *testing.T) {
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			failing := &failingListener{Listener: ln, failures: []error{errno, errno, errno}}
			var log syncBuffer
			s, err := New(Config{Settings: web.Settings{Engine: newFakeEngine(time.Now), Logger: slog.New(slog.NewTextHandler(&log, nil))}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Serve(ctx, failing) }()
			h := &harness{t: t, addr: ln.Addr().String(), server: s}
			for got := 0; got != 200; { // one that came while there were no files is told 503
				if got = h.from("127.0.0.1").get("/healthz"); got != 200 && got != 503 {
					t.Fatalf("after %v: %d", errno, got)
				}
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "could not be accepted"); n != 1 {
				t.Errorf("the log says it %d times", n)
			}
		})
	}
}

// lastFile fails as a process does that has no file left, until its server gives the spare one up,
// and again when that is taken back.
type lastFile struct {
	net.Listener
	server *Server
	free   chan struct{} // closed: there are files again
}

func (l *lastFile) Accept() (net.Conn, error) {
	select {
	case <-l.free:
	default:
		if l.server.listening.Load().spare != nil {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		}
	}
	return l.Listener.Accept()
}

// A server that has no file left, and no idle connection to close, still answers new clients with a
// refusal, and goes on when there are files.
func TestOutOfFilesTellsThoseWhoCome(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Settings: web.Settings{Engine: newFakeEngine(time.Now)}})
	if err != nil {
		t.Fatal(err)
	}
	last := &lastFile{ln, s, make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, last) }()
	h := &harness{t: t, addr: ln.Addr().String(), server: s}
	p := h.from("127.0.0.1")
	res, err := http.ReadResponse(p.br, nil)
	if err != nil || res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Error(res, err)
	}
	close(last.free)
	for got := 0; got != 200; { // one refusal more, if the server has just given its spare file up
		if got = h.from("127.0.0.1").get("/healthz"); got != 200 && got != 503 {
			t.Fatalf("with files again: %d", got)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
