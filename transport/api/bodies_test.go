package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
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
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
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

// All bodies in flight share one budget: what is beyond it is refused before it is sent, and what has been answered, refused or cut off
// gives its part back.
func TestBodiesShareABudget(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.BodiesBytes = 200 << 10 })
	body := func(id string, size int) string {
		text := `{"id":"` + id + `","delay":"1h",` + cb + `,"payload":"`
		return text + strings.Repeat("x", size-len(text)-2) + `"}`
	}
	refused := func(head string) {
		t.Helper()
		got := h.raw(-1, head) // no body follows
		if len(got.statuses) != 1 || got.statuses[0] != 503 || !got.closed || !strings.Contains(got.bodies[0], `"code":"overloaded"`) {
			t.Fatalf("%+v, want 503 overloaded and the end", got)
		}
	}
	// What a connection held it gives back when it has ended, a moment after its client saw the end.
	taken := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); h.server.bodies.used.Load() != int64(want); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are taken, want %d", h.server.bodies.used.Load(), want)
			}
		}
	}
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	big := body("big", 150<<10)
	c, br := h.expectant(goodHead + length(len(big)))

	refused(goodHead + length(60<<10) + "\r\n")
	refused(goodHead + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n", 60<<10))
	refused(goodHead + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", 12<<10, strings.Repeat("x", 12<<10)), 5))
	taken(len(big))
	h.do("POST", timers, body("small", 16<<10)).want(201) // small ones go on
	h.do("POST", timers, body("fits", 40<<10)).want(201)
	h.do("POST", timers, body("fits-too", 40<<10)).want(201)

	if _, err := io.WriteString(c, big); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 201 {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	h.do("POST", timers, body("big-again", 150<<10)).want(201) // its connection is still open

	// Two in one write: the second is known of before the first is answered.
	first, second := body("first", 90<<10), body("second", 90<<10)
	got := h.raw(2, goodHead+length(len(first))+"\r\n"+first+goodHead+length(len(second))+"\r\n"+second)
	if fmt.Sprint(got.statuses) != "[201 201]" {
		t.Fatal(got.statuses)
	}
	chunked := body("chunked", 150<<10)
	got = h.raw(1, goodHead+"Transfer-Encoding: chunked\r\n\r\n"+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(chunked), chunked))
	if fmt.Sprint(got.statuses) != "[201]" {
		t.Fatal(got)
	}
	h.raw(-1, goodHead+length(2<<20)+"\r\n")                                                  // 413
	h.do("POST", timers, `{"id":"`+strings.Repeat("x", 50<<10)+`"}`).want(400)                // broken
	h.do("GET", "/healthz", strings.Repeat(" ", 50<<10))                                      // where none belongs
	cut, _ := h.expectant(strings.Replace(goodHead, "timers", "batch", 1) + length(len(big))) // never sent
	taken(len(big))
	_ = cut.Close()
	h.conn.Close()
	h.conn = nil
	taken(0)
}

// What a large request or answer took is not kept for as long as its connection stays open: the budget would not know of it.
func TestLargeBodiesAreNotKept(t *testing.T) {
	h := newHarness(t)
	for i := range 10 {
		h.do("POST", timers, fmt.Sprintf(`{"id":"large-%d","delay":"1h",%s,"payload":"%s"}`, i, cb, strings.Repeat("x", 200<<10))).want(201)
	}
	held := func() int64 {
		runtime.GC()
		runtime.GC() // pools keep what is not used for one more
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
		if got := h.do("GET", timers, "").want(200); len(got.body) < 1<<20 {
			t.Fatalf("a list of %d bytes", len(got.body))
		}
		conn := h.conn
		t.Cleanup(func() { _ = conn.Close() })
	}
	if kept := held() - before; kept > 8<<20 {
		t.Errorf("8 idle connections keep %d bytes", kept)
	}
}
