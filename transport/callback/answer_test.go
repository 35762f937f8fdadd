package callback

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// TestStatusThatIsNone: a status line is a version and a status of three digits from 100 on.
// Anything else is no answer, even if a parser takes it for one.
func TestStatusThatIsNone(t *testing.T) {
	for _, line := range []string{
		"HTTP/1.1 000 OK", "HTTP/1.1 000", "HTTP/1.1  200 OK", "HTTP/1.1 0200 OK", "HTTP/1.1 2000", "HTTP/2.0 200 OK", "\r\nHTTP/1.1 200 OK", "http/1.1 200 OK",
	} {
		r := receive(t, always(line+"\r\nContent-Length: 0\r\n\r\n"))
		p := startPool(t, Config{Policy: local})
		if out := callOnce(t, p, post(r.url)); !out.failed() || out.Status != 0 || out.Err != "bad response" || out.Took > patience/2 {
			t.Errorf("%q: %+v, want a bad response at once", line, out)
		}
	}
}

// TestLinesThatEndInLFAlone: small devices and scripts answer so. The answer counts at once, and
// its connection is closed.
func TestLinesThatEndInLFAlone(t *testing.T) {
	f := func(answer string, success bool, status int, retryAfter time.Duration) {
		t.Helper()
		r := receive(t, always(answer))
		p := startPool(t, Config{Policy: local})
		for range 2 {
			out := callOnce(t, p, post(r.url))
			if (out.Err == "") != success || out.NotSent || out.Status != status || out.RetryAfterMs != retryAfter.Milliseconds() || out.Took > patience/2 {
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
	for _, head := range []string{"Content-Length: 60000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nea60\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\nX: "} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{serve: func(c net.Conn, in *bufio.Reader) {
				_, _, _ = readRequest(in)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"x")
				_, _ = in.Peek(1) // until the other side has gone
			}}
			p := startPool(t, Config{Dial: m.dial})
			req := post("http://shop.example/")
			req.Timeout = 15 * time.Minute
			if out := callOnce(t, p, req); out.Err != "" || out.Took != drainTime {
				t.Errorf("%q: %+v, want success after %v", head, out, drainTime)
			}
		})
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

// TestAnswersOfFailedCalls: the outcome of a call that failed has the beginning of the body, its
// type, and where a redirect points. Connections are used again as without.
func TestAnswersOfFailedCalls(t *testing.T) {
	long, accents := strings.Repeat("x", 3000), strings.Repeat("é", 1000)
	f := func(connections int, answer string, want *timer.Answer) {
		t.Helper()
		for _, keep := range []bool{true, false} {
			r := receive(t, always(answer))
			p := startPool(t, Config{Policy: local})
			for range 2 {
				req := post(r.url)
				req.KeepAnswer = keep
				out := callOnce(t, p, req)
				if keep && !reflect.DeepEqual(out.Answer, want) || !keep && out.Answer != nil || out.Status == 0 || strings.Contains(out.Err, "x") {
					t.Errorf("%.80q, kept %v: %+v, answer %+v, want %+v", answer, keep, out, out.Answer, want)
				}
			}
			if n := r.connections(); n != connections {
				t.Errorf("%.80q, kept %v: %d connections, want %d", answer, keep, n, connections)
			}
		}
	}
	body := func(head, text string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", head, len(text), text)
	}
	chunked := func(chunks ...string) string {
		b := "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n"
		for _, c := range append(chunks, "") {
			b += fmt.Sprintf("%x\r\n%s\r\n", len(c), c)
		}
		return b
	}
	f(1, body("500 X\r\nContent-Type: text/plain", "card declined"), &timer.Answer{Body: "card declined", Type: "text/plain"})
	f(1, body("400 X", ""), nil)
	f(1, body("410 X", "\xff\x00"), &timer.Answer{Body: "\xff\x00"})
	f(1, body("302 X\r\nLocation: https://there/", "moved"), &timer.Answer{Body: "moved", Location: "https://there/"})
	f(1, body("500 X\r\nLocation: https://there/", ""), nil)
	f(1, body("200 X\r\nContent-Type: text/plain", "ok"), nil)
	f(1, body("500 X", long), &timer.Answer{Body: long[:1024]})
	f(1, body("500 X", long[:1024]), &timer.Answer{Body: long[:1024]})
	f(1, body("500 X", "x"+accents), &timer.Answer{Body: "x" + accents[:1022]})              // cut back to a whole character
	f(1, body("500 X", "\xff"+accents), &timer.Answer{Body: "\xff" + accents[:1023]})        // not UTF-8 anyway
	f(1, body("500 X", ("x" + accents)[:1024]), &timer.Answer{Body: ("x" + accents)[:1024]}) // that is its end
	f(2, body("500 X", strings.Repeat(long, 30)), &timer.Answer{Body: long[:1024]})
	f(2, "HTTP/1.1 500 X\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", &timer.Answer{Body: "no"})
	f(2, "HTTP/1.1 500 X\nContent-Length: 2\n\nno", &timer.Answer{Body: "no"})
	f(1, chunked("card", " declined"), &timer.Answer{Body: "card declined"})
	f(1, chunked(long, long), &timer.Answer{Body: long[:1024]})
	f(2, chunked(strings.Repeat(long, 30)), &timer.Answer{Body: long[:1024]})
	f(2, chunked("a", strings.Repeat(long, 30)), &timer.Answer{Body: "a" + long[:1023]})
	f(1, body("500 X\r\nContent-Type: a\xff"+long[:300], ""), &timer.Answer{Type: "a?" + long[:254]})
}

// TestAnswerThatEndsWithItsConnection is kept, though it has no length.
func TestAnswerThatEndsWithItsConnection(t *testing.T) {
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		_, _, _ = readRequest(in)
		_, _ = io.WriteString(c, "HTTP/1.0 500 X\r\n\r\ncard declined")
	})
	p := startPool(t, Config{Policy: local})
	req := post(r.url)
	req.KeepAnswer = true
	if out := callOnce(t, p, req); out.Status != 500 || out.Answer == nil || out.Answer.Body != "card declined" {
		t.Errorf("%+v, answer %+v", out, out.Answer)
	}
}

// TestAnswerThatDrips: what has come within the time for a body is kept, and the call does not
// outlast its time-out.
func TestAnswerThatDrips(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{serve: func(c net.Conn, in *bufio.Reader) {
				_, _, _ = readRequest(in)
				_, _ = io.WriteString(c, "HTTP/1.1 500 X\r\nContent-Length: 60000\r\n\r\nno")
				_, _ = in.Peek(1) // until the other side has gone
			}}
			p := startPool(t, Config{Dial: m.dial})
			req := post("http://shop.example/")
			req.KeepAnswer, req.Timeout = true, timeout
			out := callOnce(t, p, req)
			if out.Status != 500 || out.Answer == nil || out.Answer.Body != "no" || out.Took != min(timeout, drainTime) {
				t.Errorf("%v: %+v, answer %+v", timeout, out, out.Answer)
			}
		})
	}
}

// TestAnswerIsReadWhole: the body of a success is handed over, and its connection used again. One
// that does not come whole fails the call, because what it had to say is not known.
func TestAnswerIsReadWhole(t *testing.T) {
	long := strings.Repeat("x", MaxReadBody)
	f := func(connections int, answer, body, fault string) {
		t.Helper()
		r := receive(t, func(c net.Conn, in *bufio.Reader) {
			for {
				if _, _, err := readRequest(in); err != nil {
					return
				}
				if _, err := io.WriteString(c, answer); err != nil || strings.Contains(answer, "close") {
					return
				}
			}
		})
		p := startPool(t, Config{Policy: local})
		for range 2 {
			req := post(r.url)
			req.ReadBody = true
			if out := callOnce(t, p, req); string(out.Body) != body || out.Err != fault {
				t.Errorf("%.80q: %q of %d bytes, want %q and %d bytes", answer, out.Err, len(out.Body), fault, len(body))
			}
		}
		if n := r.connections(); n != connections {
			t.Errorf("%.80q: %d connections, want %d", answer, n, connections)
		}
	}
	const head = "HTTP/1.1 200 X\r\n"
	f(1, head+"Content-Length: 3\r\n\r\nabc", "abc", "")
	f(1, head+"Content-Length: 0\r\n\r\n", "", "")
	f(1, "HTTP/1.1 204 X\r\n\r\n", "", "")
	f(1, head+"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", "abcd", "")
	f(1, head+"Content-Length: 1048576\r\n\r\n"+long, long, "")
	f(2, head+"Content-Length: 1048577\r\n\r\n"+long+"x", "", "bad response")
	f(2, head+"Connection: close\r\n\r\nabc", "abc", "")
	f(2, head+"Connection: close\r\nContent-Length: 4\r\n\r\nabc", "", "connection closed")
	f(2, head+"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "", "connection closed")
	f(2, head+strings.Repeat("X-A: "+long[:4096]+"\r\n", 5)+"Content-Length: 3\r\n\r\nabc", "", "bad response")
	f(2, head+"garbage\r\nContent-Length: 3\r\n\r\nabc", "", "bad response")
	f(1, "HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\nabc", "", "status 500")
}
