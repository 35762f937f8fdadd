package callback

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestClosedAsTheCallLeaves: a receiver ends an idle connection after the call has looked at it,
// and before the call is written. Where it has seen nothing of the call, this goes out on a new
// connection, as the same attempt. Where it may have, it does not.
func TestClosedAsTheCallLeaves(t *testing.T) {
	// end is the receiver's, once it has answered a first call; it says when it has ended.
	type end func(c net.Conn, in *bufio.Reader, ended func())
	closes := func(c net.Conn, _ *bufio.Reader, ended func()) {
		_ = c.Close()
		ended()
	}
	for _, test := range []struct {
		name   string
		secure bool
		end    end
		seen   int32 // calls, in whole
		err    string
	}{
		{"closed before it", false, closes, 2, ""},
		{"closed before it, TLS", true, closes, 2, ""},
		{"read, and closed", false, func(_ net.Conn, in *bufio.Reader, ended func()) {
			ended()
			_, _, _ = readRequest(in)
		}, 1, "connection closed"},
		{"read in part, and reset", false, func(c net.Conn, in *bufio.Reader, ended func()) {
			ended()
			_, _ = in.ReadByte()
			_ = c.(*net.TCPConn).SetLinger(0)
		}, 1, "connection reset"},
		{"half closed before it, and read", false, func(c net.Conn, in *bufio.Reader, ended func()) {
			_ = c.(*net.TCPConn).CloseWrite()
			ended()
			_, _, _ = readRequest(in)
		}, 1, "connection closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var seen, dialled atomic.Int32
			now, ended := make(chan struct{}), make(chan struct{})
			cert, roots := certificate(t)
			r := receive(t, func(c net.Conn, in *bufio.Reader) {
				if test.secure {
					secured := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
					c, in = secured, bufio.NewReader(secured)
				}
				first := dialled.Add(1) == 1
				if _, _, err := readRequest(in); err != nil {
					return
				}
				seen.Add(1)
				_, _ = io.WriteString(c, answer200)
				if first {
					<-now
					test.end(c, in, func() { close(ended) })
				}
			})
			var leaves atomic.Bool
			begun := time.Now()
			p := startPool(t, Config{Policy: local, RootCAs: roots, Lease: func() time.Duration {
				if leaves.CompareAndSwap(true, false) { // asked right before the write
					close(now)
					<-ended
				}
				return time.Since(begun)
			}})
			req := post(r.url)
			if test.secure {
				req.URL = strings.Replace(req.URL, "http", "https", 1)
			}
			if out := callOnce(t, p, req); out.Err != "" {
				t.Fatal(out.Err)
			}
			leaves.Store(true)
			out := callOnce(t, p, req)
			if (out.Err == "") != (test.err == "") || !strings.Contains(out.Err, test.err) || !out.Sent {
				t.Errorf("outcome %+v, want error %q", out, test.err)
			}
			if seen.Load() != test.seen || dialled.Load() != test.seen {
				t.Errorf("%d calls on %d connections, want %d", seen.Load(), dialled.Load(), test.seen)
			}
		})
	}
}
