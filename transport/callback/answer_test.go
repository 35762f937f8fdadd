package callback

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestStatusThatIsNone: a status line is a version and a status of three digits from 100 on.
// Anything else is no answer, even if a parser takes it for one.
func TestStatusThatIsNone(t *testing.T) {
	for _, line := range []string{
		"HTTP/1.1 000 OK", "HTTP/1.1 000", "HTTP/1.1  200 OK", "HTTP/1.1 0200 OK", "HTTP/1.1 2000", "HTTP/2.0 200 OK", "\r\nHTTP/1.1 200 OK", "http/1.1 200 OK",
	} {
		r := receive(t, always(line+"\r\nContent-Length: 0\r\n\r\n"))
		p := startPool(t, Config{Policy: local})
		if out := callOnce(t, p, post(r.url)); !out.failed() || out.Status != 0 || out.Err != "bad response" || out.Took > 4*time.Second {
			t.Errorf("%q: %+v, want a bad response at once", line, out)
		}
	}
}

// TestLinesThatEndInLFAlone: small devices and scripts answer so. The answer counts at once, and its
// connection is closed.
func TestLinesThatEndInLFAlone(t *testing.T) {
	f := func(answer string, success bool, status int, retryAfter time.Duration) {
		t.Helper()
		r := receive(t, always(answer))
		p := startPool(t, Config{Policy: local})
		for range 2 {
			out := callOnce(t, p, post(r.url))
			if (out.Err == "") != success || out.NotSent || out.Status != status || out.RetryAfterMs != retryAfter.Milliseconds() || out.Took > 4*time.Second {
				t.Errorf("%q: %+v, want %v %d %v", answer, out, success, status, retryAfter)
			}
		}
		if n := r.connections(); n != 2 {
			t.Errorf("%q: %d connections, want 2", answer, n)
		}
	}
	f("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", true, 200, 0)
	f("HTTP/1.1 200\n\n", true, 200, 0)
	f("HTTP/1.1 200 OK\r\nContent-Length: 2\n\nok", true, 200, 0)
	f("HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok", true, 200, 0)
	f("HTTP/1.1 200 OK\nContent-Length: 2\n\r\nok", true, 200, 0)
	f("HTTP/1.1 100 Continue\n\nHTTP/1.1 204 X\n\n", true, 204, 0)
	f("HTTP/1.1 429 X\nRetry-After: 7\nContent-Length: 0\n\n", false, 429, 7*time.Second)
	f("HTTP/1.1 200 OK\nno header\n\n", false, 0, 0)
}

// TestBodyThatDripsEndsTheCall: the status is known, so the slot is not held for the rest of the
// time-out.
func TestBodyThatDripsEndsTheCall(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for _, head := range []string{"Content-Length: 60000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nea60\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\nX: "} {
		r := receive(t, func(c net.Conn, in *bufio.Reader) {
			_, _, _ = readRequest(in)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				if _, err := in.Peek(1); err != nil { // until the other side has gone
					return
				}
			}
		})
		p := startPool(t, Config{Policy: local})
		req := post(r.url)
		req.Timeout = 15 * time.Minute
		out := callOnce(t, p, req)
		if out.Err != "" || out.Took < drainTime || out.Took > drainTime+5*time.Second {
			t.Errorf("%q: %+v, want success after about %v", head, out, drainTime)
		}
	}
}

// TestChunkedAnswerIsReadToItsEnd: then its connection is used again, and nothing that trailers say
// counts.
func TestChunkedAnswerIsReadToItsEnd(t *testing.T) {
	f := func(connections int, answer string) {
		t.Helper()
		r := receive(t, always(answer))
		p := startPool(t, Config{Policy: local})
		for range 2 {
			if out := callOnce(t, p, post(r.url)); out.Status != 429 || out.RetryAfterMs != 0 {
				t.Errorf("%q: %+v", answer, out)
			}
		}
		if n := r.connections(); n != connections {
			t.Errorf("%q: %d connections, want %d", answer, n, connections)
		}
	}
	const head = "HTTP/1.1 429 X\r\nTransfer-Encoding: chunked\r\n"
	f(1, head+"\r\n3\r\nabc\r\n0\r\n\r\n")
	f(1, head+"\r\n3;x=y\r\nabc\r\n000A\r\n0123456789\r\n0\r\nRetry-After: 9\r\nConnection: close\r\n\r\n")
	f(1, head+"Trailer: Retry-After\r\n\r\n0\r\nRetry-After: 9\r\n\r\n")
	f(2, head+"\r\n0\r\n"+strings.Repeat("X: y\r\n", 4096)+"\r\n") // more than trailers may be
	f(2, head+"\r\n3\r\nabcd\r\n0\r\n\r\n")
	f(2, head+"\r\n-1\r\n\r\n")
	f(2, head+"\r\n+1\r\na\r\n0\r\n\r\n")
	f(2, head+"\r\n10000000000000003\r\nabc\r\n0\r\n\r\n")
	f(2, head+"\r\n3\nabc\n0\n\n")
	f(2, head+"\r\n8000\r\n"+strings.Repeat("x", 0x8000)+"\r\n8001\r\n"+strings.Repeat("x", 0x8001)+"\r\n0\r\n\r\n")
}

// TestAnswersWithoutABodyThatAnnounceOne: it may follow on the connection, so that is not used
// again.
func TestAnswersWithoutABodyThatAnnounceOne(t *testing.T) {
	f := func(connections int, answer string) {
		t.Helper()
		r := receive(t, always(answer))
		p := startPool(t, Config{Policy: local})
		for range 2 {
			if out := callOnce(t, p, post(r.url)); out.Status != 204 && out.Status != 304 {
				t.Errorf("%q: %+v", answer, out)
			}
		}
		if n := r.connections(); n != connections {
			t.Errorf("%q: %d connections, want %d", answer, n, connections)
		}
	}
	f(1, "HTTP/1.1 204 X\r\n\r\n")
	f(1, "HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n")
	f(2, "HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n")
	f(2, "HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n")
	f(2, "HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n")
	f(2, "HTTP/1.0 204 X\r\nConnection: keep-alive\r\n\r\n")
}
