package http1

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/valyala/fasthttp"
)

var fuzzLimits = Limits{Head: 16 << 10, Target: 8 << 10, Body: func([]byte) uint64 { return 1 << 20 }}

// The framer accepts only streams that fasthttp splits in the same way, however the bytes are
// spread over reads.
func FuzzFramer(f *testing.F) {
	for _, s := range []string{
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;e\r\n{}\r\n0\r\nT: v\r\n\r\n", "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\nHost: localhost\n\n", "\r\n\r\nGET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
	} {
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		whole := NewFramer(&fuzzLimits)
		passed, fault := whole.Feed(bytes.Clone(stream))
		parts := NewFramer(&fuzzLimits)
		var partFault *Fault
		for from := 0; from < len(stream) && partFault == nil; from += int(step) + 1 {
			_, partFault = parts.Feed(bytes.Clone(stream[from:min(len(stream), from+int(step)+1)]))
		}
		if (fault == nil) != (partFault == nil) || fault != nil && fault.Status != partFault.Status {
			t.Fatalf("in one piece %v, in steps of %d %v", fault, step+1, partFault)
		}
		if fault != nil {
			return
		}
		if passed != len(stream) || whole.state != parts.state || whole.left != parts.left {
			t.Fatalf("passed %d of %d; state %d %d", passed, len(stream), whole.state, parts.state)
		}
		if whole.state != inRequestLine || len(whole.part) > 0 {
			return
		}
		// Whole requests only: fasthttp, which reads them next, must find each end at the same
		// place.
		ends := requestEnds(stream)
		source := bytes.NewReader(stream)
		br := bufio.NewReaderSize(source, 17<<10)
		var req fasthttp.Request
		for _, end := range ends {
			if err := req.ReadLimitBody(br, 1<<20); err != nil {
				return // it is stricter in places: a Host is missing, a trailer is not allowed
			}
			if at := len(stream) - source.Len() - br.Buffered(); at != end {
				t.Fatalf("fasthttp is at %d after a request that ends at %d", at, end)
			}
		}
		if err := req.ReadLimitBody(br, 1<<20); err == nil {
			t.Fatalf("fasthttp finds a request behind the last")
		}
	})
}

// requestEnds is where the framer sees requests end.
func requestEnds(stream []byte) (ends []int) {
	f := NewFramer(&fuzzLimits)
	for i, c := range stream {
		was := f.state
		_, _ = f.Feed([]byte{c})
		if was != inRequestLine && f.state == inRequestLine {
			ends = append(ends, i+1)
		}
	}
	return ends
}

// Of any target, nothing gets through that is not plain, and no more of it than was asked for.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/", "/v1/topics/orders/timers/a", "/v1/topics/%6frders", "/v1/topics/a%2Fb", "/v1/../x", "/v1/%2e%2e/x", "/a%00", "/a%255c", `/a\b`, "/a?b#c", "http://h/v1", "http://h", "//h/x", "*", "/v1/topics/{k}x", "/%", "/%4"} {
		f.Add([]byte(s))
	}
	const most = 7
	f.Fuzz(func(t *testing.T, target []byte) {
		path, _, ok := SplitTarget(target)
		if !ok {
			return
		}
		segments, _, fault := SplitPath(path, nil, nil, most)
		if fault != nil {
			if fault.Status != 400 {
				t.Fatal(fault)
			}
			return
		}
		if len(segments) > most {
			t.Fatalf("%q: %d segments", target, len(segments))
		}
		for _, s := range segments {
			if string(s) == "." || string(s) == ".." || bytes.ContainsAny(s, "/\\%\x00") || bytes.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Fatalf("%q: segment %q", target, s)
			}
		}
	})
}
