package api

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rawAnswer is an answer as it came back on a connection.
type rawAnswer struct {
	statuses []int
	bodies   []string
	closed   bool // the server closed; no reset
}

// raw writes the parts on a connection of its own, each in one write, and reads n answers (all
// until the close when n < 0).
func (h *harness) raw(n int, parts ...string) rawAnswer {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	for _, p := range parts {
		if _, err := io.WriteString(conn, p); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			h.t.Fatal(err)
		}
	}
	var out rawAnswer
	br := bufio.NewReader(conn)
	for n < 0 || len(out.statuses) < n {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			out.closed = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
			break
		}
		checkSniffing(h.t, res)
		body, _ := io.ReadAll(res.Body)
		out.statuses, out.bodies = append(out.statuses, res.StatusCode), append(out.bodies, string(body))
	}
	return out
}

const goodHead = "POST /v1/topics/orders/timers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

// Nothing of these may reach the engine, in one piece or byte by byte, first or behind a good
// request; each is answered 400 and the connection closed, so that the bytes after it are never
// taken for a request.
func TestSmugglingRefused(t *testing.T) {
	h := newHarness(t)
	body := `{"id":"smuggled","delay":"1h",` + cb + `}`
	smuggled := "DELETE /v1/topics/orders?force=true HTTP/1.1\r\nHost: localhost\r\n\r\n"
	cases := map[string]string{
		"length and chunked":        goodHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"chunked and length":        goodHead + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled,
		"length twice":              goodHead + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + smuggled,
		"lengths differ":            goodHead + "Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}" + smuggled,
		"length list":               goodHead + "Content-Length: 2, 2\r\n\r\n{}" + smuggled,
		"length plus":               goodHead + "Content-Length: +2\r\n\r\n{}" + smuggled,
		"length minus":              goodHead + "Content-Length: -2\r\n\r\n{}" + smuggled,
		"length hex":                goodHead + "Content-Length: 0x2\r\n\r\n{}" + smuggled,
		"length empty":              goodHead + "Content-Length:\r\n\r\n" + smuggled,
		"length spaced":             goodHead + "Content-Length: 1 1\r\n\r\n{}" + smuggled,
		"length huge":               goodHead + "Content-Length: 99999999999999999999\r\n\r\n{}" + smuggled,
		"length vertical tab":       goodHead + "Content-Length: \v2\r\n\r\n{}" + smuggled,
		"space before colon":        goodHead + "Content-Length : 2\r\n\r\n{}" + smuggled,
		"tab before colon":          goodHead + "Content-Length\t: 2\r\n\r\n{}" + smuggled,
		"te space before colon":     goodHead + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"te twice":                  goodHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"te identity":               goodHead + "Transfer-Encoding: identity\r\n\r\n" + smuggled,
		"te list":                   goodHead + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"te quoted":                 goodHead + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n" + smuggled,
		"te x":                      goodHead + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"te vertical tab":           goodHead + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"te in 1.0":                 "POST /v1/topics/orders/timers HTTP/1.0\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"folded header":             goodHead + "X-A: b\r\n Content-Length: 2\r\n\r\n{}" + smuggled,
		"folded with tab":           goodHead + "X-A: b\r\n\tfolded\r\n\r\n" + smuggled,
		"folded first":              "GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n" + smuggled,
		"bare LF in header":         goodHead + "X-A: b\nContent-Length: 2\r\n\r\n{}" + smuggled,
		"bare LF ends header":       goodHead + "Content-Length: 2\r\n\n{}" + smuggled,
		"bare LF everywhere":        "GET /healthz HTTP/1.1\nHost: localhost\n\n" + smuggled,
		"bare LF in request line":   "GET /healthz HTTP/1.1\nHost: localhost\r\n\r\n" + smuggled,
		"bare LF before":            "\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + smuggled,
		"bare CR in header":         goodHead + "X-A: b\rContent-Length: 2\r\n\r\n{}" + smuggled,
		"CR CR LF":                  goodHead + "X-A: b\r\r\n\r\n" + smuggled,
		"NUL in header":             goodHead + "X-A: \x00\r\n\r\n" + smuggled,
		"NUL in name":               goodHead + "X\x00A: b\r\n\r\n" + smuggled,
		"no colon":                  goodHead + "Nonsense\r\n\r\n" + smuggled,
		"no name":                   goodHead + ": b\r\n\r\n" + smuggled,
		"space in name":             goodHead + "X A: b\r\n\r\n" + smuggled,
		"non-ASCII name":            goodHead + "X\xc3\xa4: b\r\n\r\n" + smuggled,
		"no host":                   "GET /healthz HTTP/1.1\r\n\r\n" + smuggled,
		"host twice":                "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + smuggled,
		"two spaces":                "GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + smuggled,
		"space in target":           "GET /healthz x HTTP/1.1\r\nHost: localhost\r\n\r\n" + smuggled,
		"tab for space":             "GET\t/healthz\tHTTP/1.1\r\nHost: localhost\r\n\r\n" + smuggled,
		"no version":                "GET /healthz\r\nHost: localhost\r\n\r\n" + smuggled,
		"version 2":                 "GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n" + smuggled,
		"version 1.2":               "GET /healthz HTTP/1.2\r\nHost: localhost\r\n\r\n" + smuggled,
		"version lower case":        "GET /healthz http/1.1\r\nHost: localhost\r\n\r\n" + smuggled,
		"control in target":         "GET /heal\x01thz HTTP/1.1\r\nHost: localhost\r\n\r\n" + smuggled,
		"method not a token":        "GE(T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + smuggled,
		"empty lines":               strings.Repeat("\r\n", 9000) + smuggled,
		"tls":                       "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n" + smuggled,
		"preface of 2":              "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + smuggled,
		"chunk size not hex":        goodHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk size signed":         goodHead + "Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk size 0x":             goodHead + "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk size overflow":       goodHead + "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk size empty":          goodHead + "Transfer-Encoding: chunked\r\n\r\n\r\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk size spaced":         goodHead + "Transfer-Encoding: chunked\r\n\r\n2 \r\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk bare LF":             goodHead + "Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk extension bare LF":   goodHead + "Transfer-Encoding: chunked\r\n\r\n2;\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk extension bare CR":   goodHead + "Transfer-Encoding: chunked\r\n\r\n2;a\rb\r\n{}\r\n0\r\n\r\n" + smuggled,
		"chunk too long":            goodHead + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n" + smuggled,
		"chunk ends bare LF":        goodHead + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\n0\r\n\r\n" + smuggled,
		"chunk extension very long": goodHead + "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("x", 300) + "\r\n{}\r\n0\r\n\r\n" + smuggled,
		"trailer bare LF":           goodHead + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n" + smuggled,
		"trailer folded":            goodHead + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n" + smuggled,
	}
	h.do("POST", timersPath, strings.ReplaceAll(body, "smuggled", "good")).want(201)
	for name, request := range cases {
		t.Run(name, func(t *testing.T) {
			before := h.engine.changes()
			byteByByte := strings.Split(request, "")
			for how, a := range map[string]rawAnswer{
				"whole":  h.raw(-1, request),
				"bytes":  h.raw(-1, byteByByte...),
				"behind": h.raw(-1, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"+request),
			} {
				want := []int{400}
				if how == "behind" {
					want = []int{200, 400}
				}
				if len(a.statuses) != len(want) || a.statuses[len(a.statuses)-1] != 400 || !a.closed {
					t.Errorf("%s: answers %v, closed %v; want %v and a close", how, a.statuses, a.closed, want)
				} else if !contains(a.bodies[len(want)-1], `"code":"bad_request"`) {
					t.Errorf("%s: no problem document: %s", how, a.bodies[len(want)-1])
				}
			}
			if h.engine.changes() != before {
				t.Error("something reached the engine")
			}
		})
	}
}

func TestFramingTaken(t *testing.T) {
	h := newHarness(t)
	body := `{"id":"ID","delay":"1h",` + cb + `}`
	withID := func(id string) string { return strings.Replace(body, "ID", id, 1) }
	chunked := goodHead + "Transfer-Encoding: Chunked\r\n\r\n" + "5;ext=\"a b\"\r\n" + withID("c")[:5] + "\r\n" + hexLen(withID("c")[5:]) + "\r\n" + withID("c")[5:] + "\r\n0\r\n\r\n"
	plain := goodHead + "Content-Length:  " + decLen(withID("p")) + " \r\n\r\n" + withID("p")
	health := "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, c := range []struct {
		name  string
		parts []string
		want  []int
	}{
		{"pipelined", []string{health + plain + health + chunked + health}, []int{200, 201, 200, 201, 200}},
		// The same adds again.
		{"byte by byte", strings.Split(chunked+plain+health, ""), []int{200, 200, 200}},
		{"empty lines before", []string{"\r\n\r\n" + health + "\r\n" + health}, []int{200, 200}},
		{"absolute form", []string{"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"}, []int{200}},
		{"http 1.0", []string{"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + health}, []int{200, 200}},
		{"zero length", []string{"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" + health}, []int{200, 200}},
		{"get with a body", []string{"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}" + health}, []int{400, 200}},
		{"upper-case names", []string{strings.Replace(plain, "Content-Length", "CONTENT-LENGTH", 1) + health}, []int{200, 200}},
		{"obs-text value", []string{"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: \xe4\tb\r\n\r\n"}, []int{200}},
	} {
		a := h.raw(len(c.want), c.parts...)
		if len(a.statuses) != len(c.want) {
			t.Fatalf("%s: %v %v", c.name, a.statuses, a.bodies)
		}
		for i := range c.want {
			// A delay is no instant: a repeated add of a timer still pending is the same timer.
			if a.statuses[i] != c.want[i] {
				t.Errorf("%s: %v, want %v: %v", c.name, a.statuses, c.want, a.bodies)
				break
			}
		}
	}
}

func TestExpectContinue(t *testing.T) {
	h := newHarness(t)
	body := `{"delay":"1h",` + cb + `}`
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, goodHead+"Expect: 100-continue\r\nContent-Length: "+decLen(body)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(conn)
	line, err := br.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("%q %v", line, err)
	}
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 201 {
		t.Fatalf("%v %v", res, err)
	}
}

func TestSizesRefused(t *testing.T) {
	h := newHarness(t)
	big := func(n int) string { return `{"delay":"1h","payload":"` + strings.Repeat("x", n) + `"}` }
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"header", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 17<<10) + "\r\n\r\n", 431},
		{"many headers", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-A: bbbbbbbbbb\r\n", 1100) + "\r\n", 431},
		{"target", "GET /v1/topics/" + strings.Repeat("t", 9<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 414},
		{"target without an end", "GET /" + strings.Repeat("t", 20<<10), 414},
		{"body", goodHead + "Content-Length: " + decLen(big(1<<20)) + "\r\n\r\n" + big(1<<20), 413},
		{"body said only", goodHead + "Content-Length: 5000000\r\n\r\n", 413},
		{"chunked body", goodHead + "Transfer-Encoding: chunked\r\n\r\n" + hexLen(big(1<<20)) + "\r\n" + big(1<<20) + "\r\n0\r\n\r\n", 413},
		{"batch body", strings.Replace(goodHead, "/timers", "/batch", 1) + "Content-Length: 9000000\r\n\r\n" + big(8<<20), 413},
	} {
		a := h.raw(-1, c.request)
		if len(a.statuses) != 1 || a.statuses[0] != c.status || !a.closed || !contains(a.bodies[0], `"code":"too_large"`) {
			t.Errorf("%s: %v %v closed %v, want %d", c.name, a.statuses, a.bodies, a.closed, c.status)
		}
	}
	// Just within: 16 KiB of header, all of it used.
	head := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "
	fits := head + strings.Repeat("a", 16<<10-len(head)-4) + "\r\n\r\n"
	if a := h.raw(1, fits); len(a.statuses) != 1 || a.statuses[0] != 200 {
		t.Errorf("a header of 16 KiB: %v %v", a.statuses, a.bodies)
	}
}

// A client that stops in the middle is told so and cut off, however it spreads its bytes.
func TestSlowClientsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	h := newHarness(t, func(c *Config) {
		c.Limits.HeaderTimeout, c.Limits.BodyTimeout = 150*time.Millisecond, 300*time.Millisecond
	})
	for name, request := range map[string]string{
		"request line": "GET /heal",
		"header":       "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-",
		"body":         goodHead + "Content-Length: 100\r\n\r\n{",
		"chunk":        goodHead + "Transfer-Encoding: chunked\r\n\r\n5\r\n{",
		"second":       "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal",
	} {
		a := h.raw(-1, request)
		if n := len(a.statuses); n == 0 || a.statuses[n-1] != 408 || !a.closed {
			t.Errorf("%s: %v closed %v, want 408 and a close", name, a.statuses, a.closed)
		}
	}
	idle := newHarness(t, func(c *Config) { c.Limits.IdleTimeout = 200 * time.Millisecond })
	var a rawAnswer
	for len(a.statuses) == 0 && !t.Failed() { // a request that comes too late for the limit finds it closed
		if a = idle.raw(-1, askHealth); len(a.statuses) > 1 || !a.closed {
			t.Errorf("idle: %v closed %v, want one answer and a close", a.statuses, a.closed)
		}
	}

	// Bytes that keep coming do not move the deadline.
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\n")
	for err == nil && time.Since(start) < patience {
		<-tick.C
		_, err = io.WriteString(conn, "X: y\r\n")
	}
	if err == nil {
		t.Errorf("slow-loris held a connection for %v", patience)
	}
}
