package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

// nasties are malformed requests. Each may be answered with 4xx, 501 or 505, or by closing the
// connection.
var nasties = []string{
	"",
	"\r\n\r\n\r\n",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\xaa", 200), // TLS
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
	"GET\r\n\r\n",
	"GET /v1/topics\r\n",
	"G\x00T /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("b", 100_000) + "\r\n\r\n",
	"GET /v1/topics HTTP/1.1\r\n" + strings.Repeat("X-A: b\r\n", 20_000) + "\r\n",
	"GET /v1/../v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/topics/%2e%2e%2f%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/topics/%252e HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/topics?limit=99999999999999999999 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"GET /v1/topics?cursor=////&cursor=x HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}{}{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Length : 2\r\n\r\n{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\n{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x10\r\n\r\n{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000000000\r\n\r\n{",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
	"POST /v1/topics/t/timers HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nFolded: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
	"POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
	jsonPost("/v1/topics/t/timers", strings.Repeat("[", 100_000)),
	jsonPost("/v1/topics/t/timers", `{"delay":"1h","payload":`+strings.Repeat("[", 65)+strings.Repeat("]", 65)+`}`),
	jsonPost("/v1/topics/t/timers", `{"delay":"1h","payload":"\ud800"}`+"\x00"),
	jsonPost("/v1/topics/t/timers", "{\"delay\":\"1h\",\"id\":\"\xff\xfe\"}"),
	jsonPost("/v1/topics/t/timers", `{"delay":"999999999999h"}`),
	jsonPost("/v1/topics/t/timers", `{"delay_ms":9223372036854775808}`),
	jsonPost("/v1/topics/t/timers", `{"at_ms":-1}`),
	jsonPost("/v1/topics/t/timers", `{"at":"9999-12-31T23:59:60Z"}`),
	jsonPost("/v1/topics/t/timers", `{"delay_ms":1e3}`),
	jsonPost("/v1/topics/t/timers", `{"delay":"1s","delay":"2s"}`),
	jsonPost("/v1/topics/t/timers", `{"delay":"1s","callback":{"url":"http://0x7f.1/"}}`),
	jsonPost("/v1/topics/t/timers", `{"delay":"1s","callback":{"url":"http://169.254.169.254/latest"}}`),
	jsonPost("/v1/topics/t/timers", `{"delay":"1s","callback":{"url":"http://u:p@127.0.0.1/"}}`),
	jsonPost("/v1/topics/t/timers", `{"delay":"1s","callback":{"url":"http://127.0.0.1/","headers":{"X\r\nY":"z"}}}`),
	jsonPost("/v1/topics/t/timers", `{"delay":"1s","callback":{"url":"http://127.0.0.1/","headers":{"Content-Length":"0"}}}`),
	jsonPost("/v1/topics/t/batch", `{"ops":[`+strings.Repeat(`{"op":"cancel","id":"x"},`, 1001)+`{"op":"cancel","id":"x"}]}`),
	jsonPost("/v1/topics/t/batch", `{"ops":[{"op":"explode"}]`),
	jsonPost("/v1/topics/../timers", `{"delay":"1h"}`),
	jsonPost("/v1/topics/{/timers", `{"delay":"1h"}`),
}

func jsonPost(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// mutate changes, removes or inserts up to eight bytes of a request.
func mutate(random *rand.Rand, s string) string {
	b := []byte(s)
	for range 1 + random.IntN(8) {
		if len(b) == 0 {
			return string(b)
		}
		at := random.IntN(min(len(b), 400))
		switch random.IntN(3) {
		case 0:
			b[at] = byte(random.IntN(256))
		case 1:
			b = append(b[:at], b[at+1:]...)
		case 2:
			b = append(b[:at], append([]byte{byte(random.IntN(256))}, b[at:]...)...)
		}
	}
	return string(b)
}

// TestNastiesOnRawSockets sends malformed requests beside a healthy flow. The process survives, no
// listed request succeeds, no answer is a 500, and the flow is on time.
func TestNastiesOnRawSockets(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	node := serve(t, t.TempDir())
	c := newClient(node)
	address := strings.TrimPrefix(node.url, "http://")
	healthy := beginHealthy(t, c)
	for range 100 { // silent, or half sent, until the test ends
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if random.IntN(2) == 0 {
			_, _ = io.WriteString(conn, "POST /v1/topics/t/timers HTTP/1.1\r\nHost: localhost\r\nContent-Le")
		}
	}
	statuses := map[string]int{}
	for i := range setting(t, "CARILLON_E2E_NASTY", 300) {
		request, mutated := nasties[i%len(nasties)], i >= len(nasties)
		if mutated {
			request = mutate(random, request)
		}
		status := exchangeRaw(t, address, request)
		statuses[status]++
		// A mutated request may be valid; a listed one must not be accepted.
		if bad := !mutated && status != "" && status[0] != '4' && status != "505" && status != "501"; bad || status != "" && status[0] == '5' && status < "501" {
			t.Errorf("status %s for %.200q", status, request)
		}
		if !node.alive() {
			t.Fatalf("the node died (code %d) of %.300q", node.code, request)
		}
	}
	t.Logf("answers: %v (\"\": closed)", statuses)
	c.must(t, 200, "GET", "/readyz", "")
	late := healthy.end(t)
	t.Logf("healthy flow meanwhile: %d timers, lateness %v", len(late), spreadOf(late))
}

// exchangeRaw sends the bytes, closes its side and returns the status of the first answer, "" if
// the node closes without one.
func exchangeRaw(t testing.TB, address, request string) (status string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("the node takes no connection: %v", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(conn, request) // the node may close in the middle
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Errorf("neither answered nor closed within 20 s: %.200q", request)
	}
	parts := strings.Fields(line)
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}
