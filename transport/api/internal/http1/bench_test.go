package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/valyala/fasthttp"
)

// add is an add's head as a common client sends it, and a body of 245 bytes.
var add = []byte("POST /v1/topics/orders/timers HTTP/1.1\r\nHost: 127.0.0.1:7700\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 245\r\n" +
	"Authorization: Bearer 6c1f0d1c2e5d4f0a8b7a\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n" + string(bytes.Repeat([]byte("x"), 245)))

// The cost that the Framer adds to a request.
func BenchmarkFramer(b *testing.B) {
	limits := Limits{Head: 16 << 10, Target: 8 << 10, Body: func([]byte) uint64 { return 256 << 10 }}
	f := NewFramer(&limits)
	b.SetBytes(int64(len(add)))
	b.ReportAllocs()
	for b.Loop() {
		if n, fault := f.Feed(add); n != len(add) || fault != nil {
			b.Fatal(n, fault)
		}
	}
}

// The cost of the library that reads the same bytes next.
func BenchmarkFasthttp(b *testing.B) {
	var req fasthttp.Request
	source := bytes.NewReader(add)
	br := bufio.NewReaderSize(source, 17<<10)
	b.SetBytes(int64(len(add)))
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(add)
		br.Reset(source)
		if err := req.ReadLimitBody(br, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

// The cost of net/http in place of both: it refuses by itself most of the requests that the Framer
// refuses.
func BenchmarkNetHTTP(b *testing.B) {
	source := bytes.NewReader(add)
	br := bufio.NewReaderSize(source, 17<<10)
	b.SetBytes(int64(len(add)))
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(add)
		br.Reset(source)
		req, err := http.ReadRequest(br)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSplitPath(b *testing.B) {
	path := []byte("/v1/topics/orders/timers/order-7700123")
	into := make([][]byte, 0, 7)
	b.ReportAllocs()
	for b.Loop() {
		if segments, _, fault := SplitPath(path, nil, into, 7); len(segments) != 5 || fault != nil {
			b.Fatal(fault)
		}
	}
}
