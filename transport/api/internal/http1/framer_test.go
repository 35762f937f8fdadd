package http1

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

var testLimits = Limits{Head: 1 << 10, Target: 512, Body: func(target []byte) uint64 {
	if string(target) == "/large" {
		return 100
	}
	return 10
}}

// The requests that a Framer refuses, and how much of each it lets through: never the end of the
// line at fault.
func TestFramerRefuses(t *testing.T) {
	const host = "Host: a\r\n"
	for stream, status := range map[string]int{
		"GET / HTTP/1.1\n" + host + "\r\n":                                                       400,
		"GET / HTTP/1.1\r\n\r\n":                                                                 400,
		"GET / HTTP/1.1\r\n" + host + host + "\r\n":                                              400,
		"GET  / HTTP/1.1\r\n" + host + "\r\n":                                                    400,
		"GET / HTTP/2.0\r\n" + host + "\r\n":                                                     400,
		"GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n":                                          400,
		"GET / HTTP/1.1\r\n" + host + "A : b\r\n\r\n":                                            400,
		"GET / HTTP/1.1\r\n" + host + "A: \x00\r\n\r\n":                                          400,
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n":          400,
		"POST / HTTP/1.1\r\n" + host + "Content-Length: +2\r\n\r\n":                              400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n":                400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n+2\r\n":                400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1_0\r\n":               400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n;x\r\n":                400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n" + zeros(16) + "\r\n": 400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n":          400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n":     400,
		"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n5\r\n":  413,
		"POST / HTTP/1.1\r\n" + host + "Content-Length: 11\r\n\r\n":                              413,
		"POST /large HTTP/1.1\r\n" + host + "Content-Length: 101\r\n\r\n":                        413,
		"GET /" + zeros(512) + " HTTP/1.1\r\n" + host + "\r\n":                                   414,
		"GET /" + zeros(600): 414,
		"GET / HTTP/1.1\r\n" + host + "A: " + zeros(1<<10):                                           431,
		"GET / HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", 200):                                431,
		"POST /large HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}GET / HTTP/1.1\n":            400,
		"GET / HTTP/1.1\r\n" + host + "\r\nPOST / HTTP/1.1\r\n" + host + "Content-Length: x\r\n\r\n": 400,
	} {
		for _, step := range []int{1, 7, len(stream)} {
			f := NewFramer(&testLimits)
			var fault *Fault
			var passed []byte
			for at := 0; at < len(stream) && fault == nil; at += step {
				p := []byte(stream[at:min(at+step, len(stream))])
				var n int
				n, fault = f.Feed(p)
				passed = append(passed, p[:n]...)
			}
			if fault == nil || fault.Status != status {
				t.Errorf("%q in steps of %d: %v, want %d", stream, step, fault, status)
			} else if string(passed) == stream {
				t.Errorf("%q in steps of %d: all of it passed", stream, step)
			}
		}
	}
}

// Why there is a Framer: the library that reads requests next takes these. When this fails, ADR 33
// is due again.
func TestLibrariesTakeWhatFramerRefuses(t *testing.T) {
	for stream, takenBy := range map[string]string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "fasthttp, net/http",
		"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                      "fasthttp, net/http",
		"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n Content-Length: 5\r\n\r\n":                                "fasthttp, net/http",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n":                              "fasthttp",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}":                 "net/http",
		"GET / HTTP/1.1\nHost: a\n\n": "net/http",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n": "net/http",
	} {
		f := NewFramer(&testLimits)
		if _, fault := f.Feed([]byte(stream)); fault == nil {
			t.Errorf("%q is taken", stream)
		}
		var taken []string
		var req fasthttp.Request
		if req.ReadLimitBody(bufio.NewReader(strings.NewReader(stream)), 1<<10) == nil {
			taken = append(taken, "fasthttp")
		}
		if req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(stream))); err == nil {
			if _, err := io.Copy(io.Discard, req.Body); err == nil {
				taken = append(taken, "net/http")
			}
		}
		if got := strings.Join(taken, ", "); got != takenBy {
			t.Errorf("%q is taken by %q, not by %q", stream, got, takenBy)
		}
	}
}

func TestFramerTakes(t *testing.T) {
	for _, stream := range []string{
		"GET / HTTP/1.0\r\n\r\n",
		"\r\n\r\nGET http://a/x HTTP/1.1\r\nhost:a\r\n\r\n",
		"POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + zeros(100) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\nA;x=\"y\"\r\n0123456789\r\n000\r\n\r\n",
	} {
		f := NewFramer(&testLimits)
		if n, fault := f.Feed([]byte(stream)); n != len(stream) || fault != nil || !f.BetweenRequests() {
			t.Errorf("%q: %d of %d, %v", stream, n, len(stream), fault)
		}
	}
}

// A page's request is told from others by headers that only browsers send; it stays so for the
// connection.
func TestFramerSeesBrowsers(t *testing.T) {
	f := NewFramer(&testLimits)
	for _, c := range []struct {
		header  string
		browser bool
	}{{"X-Origin: a", false}, {"Sec-Fetch-Mode: cors", false}, {"oRIGIN: null", true}, {"X: y", true}} {
		if _, fault := f.Feed([]byte("GET / HTTP/1.1\r\nHost: a\r\n" + c.header + "\r\n\r\n")); fault != nil || f.Browser() != c.browser {
			t.Errorf("%s: %v, %v", c.header, f.Browser(), fault)
		}
	}
	f = NewFramer(&testLimits)
	if _, fault := f.Feed([]byte("GET / HTTP/1.1\r\nHost: a\r\nSec-Fetch-Site: none\r\n\r\n")); fault != nil || !f.Browser() {
		t.Error("Sec-Fetch-Site")
	}
}

func zeros(n int) string { return strings.Repeat("0", n) }

// TestFramerSeesExtraHeaders: those that nearly every client sends are none, in any case of
// letters.
func TestFramerSeesExtraHeaders(t *testing.T) {
	f := NewFramer(&testLimits)
	const usual = "POST / HTTP/1.1\r\nHost: a\r\nuser-agent: b\r\nACCEPT: */*\r\nAccept-Encoding: gzip\r\nConnection: close\r\n" +
		"Content-Type: application/json\r\nauthorization: Bearer c\r\nContent-Length: 2\r\n\r\n{}" +
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	if _, fault := f.Feed([]byte(usual)); fault != nil || f.Extra() {
		t.Fatal(fault, f.Extra())
	}
	for _, name := range []string{"If-Match", "Traceparent", "traceparent", "Idempotency-Key", "Prefer", "Origin", "Content-Encoding", "Sec-Fetch-Site", "Hose", "X"} {
		f := NewFramer(&testLimits)
		if _, fault := f.Feed([]byte("GET / HTTP/1.1\r\nHost: a\r\n" + name + ": x\r\n\r\n" + usual)); fault != nil || !f.Extra() {
			t.Errorf("%s: %v, %v", name, fault, f.Extra())
		}
	}
}
