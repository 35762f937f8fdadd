package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// large adds so many timers of so many bytes.
func (h *harness) large(n, size int, headers ...string) {
	h.t.Helper()
	for i := range n {
		h.do("POST", timersPath, bodyOf(fmt.Sprintf("t%03d", i), size), headers...).want(201)
	}
}

// A batch that changes many large timers with a few bytes is answered with as many of them as the
// bound allows; of the others it is said that they were left out, and each operation was done.
func TestBatchAnswerIsBounded(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.BatchAnswer = 500 << 10 })
	h.large(20, 100<<10)
	var ops []string
	for i := range 20 {
		ops = append(ops, fmt.Sprintf(`{"op":"patch","id":"t%03d","priority":7}`, i))
	}
	for _, ndjson := range []bool{false, true} {
		r := h.do("POST", "/v1/topics/orders/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
		if ndjson {
			r = h.do("POST", "/v1/topics/orders/batch", strings.Join(ops, "\n"), "Content-Type: application/x-ndjson")
		}
		r.want(200)
		if len(r.body) > 600<<10 || len(r.body) < 200<<10 {
			t.Errorf("an answer of %d bytes", len(r.body))
		}
		whole, truncated, done := strings.Count(r.body, `"timer":`), strings.Count(r.body, `"truncated":true`), strings.Count(r.body, `"status":200`)
		if whole == 0 || whole+truncated != 20 || done != 20 {
			t.Errorf("%d whole, %d truncated, %d done", whole, truncated, done)
		}
	}
	r := h.do("POST", "/v1/topics/orders/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`).want(200)
	if strings.Contains(r.body, "truncated") || strings.Contains(r.body, `"timer"`) {
		t.Error("brief is brief")
	}
	h.do("GET", timersPath+"/t019", "").want(200).has("priority", "7", "version", "5")
	h.answersTake(0)
}

// Timers that are made are answered from the request, and end with the bound as well.
func TestBatchAnswerOfAddsIsBounded(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.BatchAnswer = 500 << 10 })
	var ops []string
	for i := range 20 {
		ops = append(ops, `{"op":"add",`+bodyOf(fmt.Sprintf("t%03d", i), 100<<10)[1:])
	}
	r := h.do("POST", "/v1/topics/orders/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`).want(200)
	if len(r.body) > 650<<10 || strings.Count(r.body, `"status":201`) != 20 || !strings.Contains(r.body, `"truncated":true`) {
		t.Errorf("%d bytes, %d made", len(r.body), strings.Count(r.body, `"status":201`))
	}
	if first, last := strings.Index(r.body, `"truncated"`), strings.LastIndex(r.body, `"timer":`); first < last {
		t.Error("the first are left out")
	}
}

// answersTake waits until the answers that have not been written take so much.
func (h *harness) answersTake(want int64) {
	h.t.Helper()
	if h.conn != nil {
		h.conn.Close()
		h.conn = nil
	}
	h.await(fmt.Sprintf("answers take %d bytes", want), func() bool { return h.server.answers.used.Load() == want })
}

// A listing of large timers has all of them, page by page, each page within its bound, and holds
// little more than it answers.
func TestListOfLargeTimersIsWhole(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.ResponseBytes = 300 << 10 })
	h.large(40, 100<<10)
	for _, query := range []string{"?limit=1000", "?limit=7", "?limit=3&payload=false"} {
		var ids []string
		pages := 0
		for cursor := ""; ; pages++ {
			target := timersPath + query
			if cursor != "" {
				target += "&cursor=" + cursor
			}
			r := h.do("GET", target, "").want(200)
			if len(r.body) > 500<<10 {
				t.Fatalf("%s: a page of %d bytes", query, len(r.body))
			}
			var page struct {
				Timers []struct {
					ID      string
					Payload string
					Version int
				}
				Next string `json:"next_cursor"`
			}
			if err := json.Unmarshal([]byte(r.body), &page); err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Timers {
				if ids = append(ids, m.ID); m.Version != 1 || strings.Contains(query, "payload=false") != (m.Payload == "") {
					t.Fatalf("%s: %s has %d bytes, version %d", query, m.ID, len(m.Payload), m.Version)
				}
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if len(ids) != 40 || ids[0] != "t000" || ids[39] != "t039" {
			t.Errorf("%s: %d timers in %d pages", query, len(ids), pages)
		}
	}
	h.answersTake(0)
}

// unread has a request answered again and again and reads nothing, until the answers are more than
// sockets hold: those that are refused take little room there.
func (p *probe) unread(request string) {
	go func() {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(p.conn, request)
		}
	}()
}

// Answers that nobody reads take no more than their budget, and half of it where they are one
// address's; small ones go on, and so do cancels. An answer that is read, or cut off, gives its
// part back.
func TestUnreadAnswersShareABudget(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.AnswersBytes = 1 << 20 })
	h.large(4, 200<<10)
	const request = "GET " + timersPath + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	unread := []*probe{h.from("127.0.0.2"), h.from("127.0.0.2"), h.from("127.0.0.2")}
	for _, p := range unread {
		p.unread(request)
	}
	h.await("those of that address are refused", func() bool {
		for range 10 {
			if h.from("127.0.0.2").get(timersPath) != 503 {
				return false
			}
		}
		return true
	})
	if used := h.server.answers.used.Load(); used > 512<<10 {
		t.Errorf("%d bytes of one address wait", used)
	}
	if got := h.from("127.0.0.4").get(timersPath); got != 200 {
		t.Errorf("another address: %d", got)
	}
	if got := h.from("127.0.0.2").get("/healthz"); got != 200 {
		t.Errorf("a small answer: %d", got)
	}
	for _, p := range unread {
		p.conn.Close()
	}
	h.await("all is given back", func() bool { return h.server.answers.used.Load() == 0 })
	p := h.from("127.0.0.3")
	if _, err := io.WriteString(p.conn, strings.Repeat(request, 50)); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		res, err := http.ReadResponse(p.br, nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
	}
	h.await("what is read is given back", func() bool { return h.server.answers.used.Load() == 0 })
}

// The unread answers of one token get half of the budget, from whatever addresses it asks. Another
// token gets the rest, also from the same address: many clients may be behind one.
func TestUnreadAnswersOfOneToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `many add,read,topics "*"`, `other read "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth, c.Limits.AnswersBytes = auth, 1<<20 })
	asks := func(token string) string {
		return "GET " + timersPath + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n\r\n"
	}
	answered := func(token, from string) int {
		p := h.from(from)
		if _, err := io.WriteString(p.conn, asks(token)); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(p.br, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	h.large(4, 200<<10, "Authorization: Bearer many")
	unread := []*probe{h.from("127.0.0.2"), h.from("127.0.0.3"), h.from("127.0.0.4"), h.from("127.0.0.5")}
	for _, p := range unread {
		p.unread(asks("many"))
	}
	h.await("the token is refused from everywhere", func() bool {
		for range 10 {
			if answered("many", "127.0.0.2") != 503 || answered("many", "127.0.0.6") != 503 {
				return false
			}
		}
		return true
	})
	if used := h.server.answers.used.Load(); used > 512<<10 {
		t.Errorf("%d bytes of one token wait", used)
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.6"} {
		if got := answered("other", from); got != 200 {
			t.Errorf("another token, from %s: %d", from, got)
		}
		// A client has read its answer before the server counts that.
		h.await("what is read is given back", func() bool { return h.server.answers.used.Load() <= 512<<10 })
	}
	for _, p := range unread {
		p.conn.Close()
	}
	h.await("all is given back", func() bool { return h.server.answers.used.Load() == 0 })
}

// TestAnswerOfAConnectionThatWasCutOff: an operator's change of the certificates cuts a connection
// off while its answer is made. The answer's room is given back, though nobody will read it.
func TestAnswerOfAConnectionThatWasCutOff(t *testing.T) {
	h := newHarness(t)
	h.do("GET", "/healthz", "").want(200) // so that it is open
	for _, c := range h.server.listening.Load().connections.where(func(*framedConn) bool { return true }) {
		c.abort()
		a := &heldAnswer{bytes: 1 << 20}
		h.server.answers.must(a.owner, a.bytes)
		c.hold(a)
	}
	h.answersTake(0)
}
