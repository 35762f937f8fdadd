package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// expectant sends a header and waits until the server has taken it and asks for the body.
func (h *harness) expectant(head string) (net.Conn, *bufio.Reader) {
	h.t.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, head+"Expect: 100-continue\r\n\r\n"); err != nil {
		h.t.Fatal(err)
	}
	br := bufio.NewReader(c)
	for _, want := range []string{" 100 ", "\r\n"} {
		if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, want) {
			h.t.Fatal(line, err)
		}
	}
	return c, br
}

// bodyOf is an add of so many bytes.
func bodyOf(id string, size int) string {
	text := `{"id":"` + id + `","delay":"1h",` + cb + `,"payload":"`
	return text + strings.Repeat("x", size-len(text)-2) + `"}`
}

func lengthLine(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }

const batchHead = "POST /v1/topics/orders/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

// bufferOf300K is the buffer of a body of which 300 KiB have arrived: it doubles as it fills.
const bufferOf300K = 512 << 10

// taken waits until the bodies that have arrived in part take so many bytes. A connection gives
// back its part when it has ended, a moment after its client saw the end.
func (h *harness) taken(bytes int64) {
	h.t.Helper()
	h.await(fmt.Sprintf("bodies take %d bytes", bytes), func() bool {
		return h.server.bodyBudget.used.Load() == bytes
	})
}

// A body that is announced and does not come takes nothing from others, however large and however
// many.
func TestAnnouncedBodiesTakeNothing(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.BodiesBytes = 1 << 20 })
	for range 64 {
		c, _ := h.expectant(batchHead + lengthLine(300<<10))
		if _, err := io.WriteString(c, "{"); err != nil {
			t.Fatal(err)
		}
	}
	h.do("POST", "/v1/topics/orders/batch", `{"ops":[{"op":"cancel","id":"none"}]}`+strings.Repeat(" ", 400<<10)).want(200)
}

// All bodies that arrive share one budget, by the bytes that have arrived; half of it is the most
// that one address gets. A request that has been answered, refused or cut off gives its part back.
func TestBodiesShareABudget(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.BodiesBytes = 1 << 20 })
	part := func(from string, bytes int) *probe {
		p := h.from(from)
		if _, err := io.WriteString(p.conn, batchHead+lengthLine(900<<10)+"\r\n"+strings.Repeat(" ", bytes)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	refused := func(p *probe) {
		t.Helper()
		res, err := http.ReadResponse(p.br, nil)
		if err != nil || res.StatusCode != 503 || !res.Close || res.Header.Get("Retry-After") == "" {
			t.Fatalf("%+v %v, want 503 and the end", res, err)
		}
	}
	first := part("127.0.0.2", 300<<10)
	h.taken(bufferOf300K)
	refused(part("127.0.0.2", 300<<10)) // the share of one address
	second := part("127.0.0.3", 300<<10)
	h.taken(2 * bufferOf300K)
	refused(part("127.0.0.4", 300<<10)) // all together
	h.do("POST", timersPath, bodyOf("small", 16<<10)).want(201)
	first.conn.Close()
	h.taken(bufferOf300K)
	third := part("127.0.0.4", 300<<10)
	h.taken(2 * bufferOf300K)
	for _, p := range []*probe{second, third} {
		if _, err := io.WriteString(p.conn, `{"ops":[]}`+strings.Repeat(" ", 600<<10-10)); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(p.br, nil); err != nil || res.StatusCode != 200 && res.StatusCode != 503 {
			t.Fatal(res, err)
		}
	}
	h.taken(0)
	chunkedBody := bodyOf("chunked", 150<<10)
	for name, request := range map[string]string{
		"chunked":         goodHead + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(chunkedBody), chunkedBody),
		"broken JSON":     goodHead + lengthLine(50<<10) + "\r\n" + strings.Repeat("x", 50<<10),
		"two in one":      goodHead + lengthLine(90<<10) + "\r\n" + bodyOf("one", 90<<10) + goodHead + lengthLine(90<<10) + "\r\n" + bodyOf("two", 90<<10),
		"where none goes": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + lengthLine(50<<10) + "\r\n" + strings.Repeat(" ", 50<<10),
	} {
		n := 1
		if name == "two in one" {
			n = 2
		}
		want := map[string]string{"chunked": "[201]", "two in one": "[201 201]"}[name]
		if want == "" {
			want = "[400]"
		}
		if got := h.raw(n, request); fmt.Sprint(got.statuses) != want {
			t.Errorf("%s: %v %.200q", name, got.statuses, got.bodies)
		}
		h.taken(0)
	}
}

// The bodies of one token get half of the budget, from whatever addresses they come. Another token
// gets the rest, also from the same address: many clients may be behind one.
func TestBodiesOfOneToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `many add,cancel "*"`, `other add,cancel "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth, c.Limits.BodiesBytes = auth, 1<<20 })
	part := func(token, from string) *probe {
		p := h.from(from)
		if _, err := io.WriteString(p.conn, batchHead+"Authorization: Bearer "+token+"\r\n"+lengthLine(900<<10)+"\r\n"+strings.Repeat(" ", 300<<10)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := part("many", "127.0.0.2")
	h.taken(bufferOf300K)
	if res, err := http.ReadResponse(part("many", "127.0.0.3").br, nil); err != nil || res.StatusCode != 503 {
		t.Fatalf("%+v %v, want 503", res, err)
	}
	h.taken(bufferOf300K)
	second := part("other", "127.0.0.2")
	h.taken(2 * bufferOf300K)
	first.conn.Close()
	second.conn.Close()
	h.taken(0)
}

// A client that may not send a body, or sends it to where none belongs, or too much of it, is told
// so before any of it: nothing is read, nothing invited.
func TestBodyIsNotInvitedFromWhoMayNot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	token, line, err := NewToken(TokenRule{Name: "one", Scopes: []string{"add", "read"}, Topics: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(file)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	const typed = "Host: localhost\r\nContent-Type: application/json\r\n"
	bearer := "Authorization: Bearer " + token + "\r\n"
	for _, tt := range []struct {
		head string
		want int
	}{
		{"POST /v1/topics/orders/batch HTTP/1.1\r\n" + typed + lengthLine(8<<20), 401},
		{"POST /nothing HTTP/1.1\r\n" + typed + bearer + lengthLine(900<<10), 404},
		{"POST /v1/topics/others/batch HTTP/1.1\r\n" + typed + bearer + lengthLine(8<<20), 404},
		{"PUT /v1/topics/orders/batch HTTP/1.1\r\n" + typed + bearer + lengthLine(8<<20), 405},
		{"POST /v1/topics/orders/timers?x=1 HTTP/1.1\r\n" + typed + bearer + lengthLine(100<<10), 400},
		{"POST /v1/topics/orders/timers HTTP/1.1\r\n" + typed + bearer + lengthLine(2<<20), 413},
		{"POST /v1/topics/orders/batch HTTP/1.1\r\n" + typed + bearer + lengthLine(8<<20+1), 413},
		{"POST /v1/topics/orders/batch HTTP/1.1\r\n" + typed + bearer + lengthLine(10<<30), 413},
		{"GET /v1/topics/orders HTTP/1.1\r\n" + typed + bearer + lengthLine(100<<10), 400},
		{"POST /v1/topics/orders/timers HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" + bearer + lengthLine(100<<10), 415},
		{"POST /v1/topics/orders/timers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n" + bearer + lengthLine(100<<10), 415},
		{"POST /v1/topics/orders/batch HTTP/1.1\r\n" + typed + bearer + "Content-Encoding: gzip\r\n" + lengthLine(100<<10), 415},
		{"POST /v1/topics/orders/batch HTTP/1.1\r\n" + typed + "Origin: null\r\n" + bearer + lengthLine(100<<10), 403},
		{"POST /v1/topics/orders/batch HTTP/1.1\r\n" + typed + bearer + "Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", 413},
	} {
		for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
			if expect != "" && strings.Contains(tt.head, "chunked") {
				continue // the client does not wait
			}
			end := "\r\n"
			if expect == "" {
				end += "{" // all that comes of it
			}
			if strings.Contains(tt.head, "chunked") {
				end = ""
			}
			got := h.raw(-1, tt.head+expect+end)
			if fmt.Sprint(got.statuses) != fmt.Sprintf("[%d]", tt.want) || !got.closed {
				t.Errorf("%q: %v, closed %v; want %d and the end", tt.head+expect, got.statuses, got.closed, tt.want)
			}
		}
	}
	// The bytes behind such a refusal are never taken for a request.
	smuggled := "DELETE /v1/topics/orders?force=true HTTP/1.1\r\n" + typed + bearer + "\r\n"
	for _, length := range []string{lengthLine(9<<10 + len(smuggled)), "Transfer-Encoding: chunked\r\n"} {
		got := h.raw(-1, "POST /nothing HTTP/1.1\r\n"+typed+bearer+length+"\r\n2400\r\n"+strings.Repeat("x", 9<<10-6)+smuggled)
		if fmt.Sprint(got.statuses) != "[404]" {
			t.Errorf("%q: %v", length, got.statuses)
		}
	}
}

// Fields behind a chunked body would be taken for the request's header by a program that adds them
// to it.
func TestTrailersAreRefused(t *testing.T) {
	h := newHarness(t)
	body := `{"id":"t","delay":"1h",` + cb + `}`
	got := h.raw(-1, goodHead+"Transfer-Encoding: chunked\r\nTrailer: If-Match\r\n\r\n"+fmt.Sprintf("%x\r\n%s\r\n0\r\nIf-Match: \"9\"\r\n\r\n", len(body), body))
	if fmt.Sprint(got.statuses) != "[400]" || !got.closed {
		t.Fatal(got)
	}
}

// The memory of a large request or answer is not kept for as long as its connection stays open: the
// budget would not know of it.
func TestLargeBodiesAreNotKept(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	h := newHarness(t)
	for i := range 10 {
		h.do("POST", timersPath, fmt.Sprintf(`{"id":"large-%d","delay":"1h",%s,"payload":"%s"}`, i, cb, strings.Repeat("x", 200<<10))).want(201)
	}
	held := func() int64 {
		runtime.GC()
		runtime.GC() // pools keep unused buffers for one more
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	batch := `{"ops":[{"op":"cancel","id":"none"}]}` + strings.Repeat(" ", 4<<20)
	h.conn.Close()
	before := held()
	for range 8 {
		h.conn = nil // stays open
		h.do("POST", "/v1/topics/orders/batch", batch).want(200)
		if got := h.do("GET", timersPath, "").want(200); len(got.body) < 1<<20 {
			t.Fatalf("a list of %d bytes", len(got.body))
		}
		conn := h.conn
		t.Cleanup(func() { _ = conn.Close() })
	}
	if kept := held() - before; kept > 8<<20 {
		t.Errorf("8 idle connections keep %d bytes", kept)
	}
}

// A body that ends before its length, because the client has closed its side, is no request: lines
// of a batch that are whole by themselves are not taken for all of it.
func TestBodyThatEndsEarly(t *testing.T) {
	h := newHarness(t)
	const head = "POST /v1/topics/orders/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
	line := `{"op":"add","id":"early","delay":"1h",` + cb + "}\n"
	chunk := func(n int, text string) string { return fmt.Sprintf("%x\r\n%s\r\n", n, text) }
	for _, come := range []int{1 << 10, 12 << 10, 20 << 10, 300 << 10} {
		body := line + strings.Repeat(" ", come-len(line)-1) + "\n"
		for name, request := range map[string]string{
			"length":  head + lengthLine(400<<10) + "\r\n" + body,
			"chunked": head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(len(body), body),
		} {
			c, err := net.Dial("tcp", h.addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 400 {
				t.Errorf("%s: %d bytes: %+v %v, want 400", name, come, res, err)
			}
			_ = c.Close()
			h.taken(0)
		}
	}
	h.do("GET", timersPath+"/early", "").want(404)
}
