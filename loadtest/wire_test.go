package loadtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// oneAnswer is a connection from which an answer can be read.
type oneAnswer struct {
	net.Conn
	io.Reader
}

func (a oneAnswer) Read(b []byte) (int, error)  { return a.Reader.Read(b) }
func (a oneAnswer) Write(b []byte) (int, error) { return len(b), nil }

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name, text string
		status     int
		body       string
		close      bool
		fails      bool
	}{
		{"plain", "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", 201, "{}", false, false},
		{"lower case, close", "HTTP/1.1 503 x\r\ncontent-length:3\r\nconnection: Close\r\n\r\nabc", 503, "abc", true, false},
		{"empty", "HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", 204, "", false, false},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\nB\r\npedia in ch\r\n0\r\n\r\n", 200, "Wikipedia in ch", false, false},
		{"odd chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 0, "", false, true},
		{"no length", "HTTP/1.1 200 OK\r\n\r\nabc", 200, "abc", true, false},
		{"not HTTP", "SSH-2.0-OpenSSH_9.2p1\r\n\r\n", 0, "", false, true},
		{"cut", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 0, "", false, true},
		{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, "", false, true},
		{"nothing", "", 0, "", false, true},
	} {
		for _, slow := range []bool{false, true} {
			var from io.Reader = strings.NewReader(c.text)
			if slow {
				from = iotest.OneByteReader(from)
			}
			got, err := newAnswers(oneAnswer{Reader: from}).ask(nil)
			if (err != nil) != c.fails {
				t.Errorf("%s: error = %v", c.name, err)
			}
			if err == nil && (got.status != c.status || string(got.body) != c.body || got.close != c.close) {
				t.Errorf("%s: %d %q close %v", c.name, got.status, got.body, got.close)
			}
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := newAnswers(oneAnswer{Reader: bytes.NewReader(text)}).ask(nil); err == nil && len(got.body) > len(text) {
			t.Errorf("body of %d bytes out of %d", len(got.body), len(text))
		}
		scanResults(text, func(int, result) {})
	})
}

func TestScanResults(t *testing.T) {
	const body = `{ "results" : [
		{"status":201,"id":"a\"},{","timer":{"status":5,"state":"x","labels":["status"]}},
		{"outcome":"prevented", "status": 200},
		{"status":409,"error":{"status":500,"title":"\"status\":200","code":"exists"}},
		{"error":{"outcome":"already_fired","status":7},"status":410},
		{"status":202,"outcome":"in_flight"}
	] }`
	want := []string{"201 ", "200 prevented", "409 ", "410 already_fired", "202 in_flight"}
	var got []string
	n := scanResults([]byte(body), func(index int, r result) {
		if index != len(got) {
			t.Errorf("index %d after %d results", index, len(got))
		}
		got = append(got, http.StatusText(r.status)+" "+r.outcome)
	})
	if n != len(want) {
		t.Fatalf("%d results, want %d", n, len(want))
	}
	for i, text := range want {
		code, outcome, _ := strings.Cut(text, " ")
		status := map[string]int{"201": 201, "200": 200, "409": 409, "410": 410, "202": 202}[code]
		if got[i] != http.StatusText(status)+" "+outcome {
			t.Errorf("result %d = %q, want %q", i, got[i], text)
		}
	}
	if n := scanResults([]byte(`{"results":[{"status":201},{"status":20`), func(int, result) {}); n != 0 {
		t.Errorf("a cut answer has %d results, want none", n)
	}
}

// Every request must be one that net/http and encoding/json understand.
func TestRequestsAreWellFormed(t *testing.T) {
	l := newLedger(1_700_000_000_000)
	l.issue(10, 10)
	for number := range int64(10) {
		l.setDue(number, 1_700_000_000_000+number)
	}
	n := newNames(Config{Topic: "jobs", Topics: 2, Batch: 2, Keys: 3, Payload: 120}, "0a1b2c3d")
	r, fixed := newRequests(n, l, "http://127.0.0.1:1/", nil), fixedHeaders("server:7700", "crl_x")
	for op := range operation(len(operationNames)) {
		for _, numbers := range [][]int64{{4}, {4, 5}} {
			if op == opGet && len(numbers) > 1 {
				continue
			}
			text := r.write(&call{op: op, numbers: numbers}, fixed)
			request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
			if err != nil {
				t.Fatalf("%v: %v\n%s", op, err, text)
			}
			body, err := io.ReadAll(request.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(string(text), string(body)) || (len(body) > 0 && !json.Valid(body)) {
				t.Errorf("%v: body %s", op, body)
			}
			want := "/v1/topics/jobs-0/timers/{k1}lt-0a1b2c3d-4"
			if op == opAdd {
				want = "/v1/topics/jobs-0/timers"
			}
			if len(numbers) > 1 {
				want = "/v1/topics/jobs-0/batch"
			}
			if request.URL.Path != want || request.Host != "server:7700" || request.Header.Get("Authorization") != "Bearer crl_x" {
				t.Errorf("%v: %s %s, want %s", op, request.Method, request.URL.Path, want)
			}
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	l := newLedger(0)
	l.issue(1, 1)
	n := newNames(Config{Topic: "loadtest", Topics: 1, Batch: 1, Payload: 200}, "0a1b2c3d")
	r, fixed := newRequests(n, l, "http://127.0.0.1:7780/", nil), fixedHeaders("127.0.0.1:7700", "")
	c := &call{op: opAdd, numbers: []int64{0}}
	b.ReportAllocs()
	for b.Loop() {
		r.write(c, fixed)
	}
}
