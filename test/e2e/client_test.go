package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// client talks to a node. The node's address may change when it is restarted.
type client struct {
	base atomic.Pointer[string]
	http *http.Client
}

func newClient(p *process) *client { return clientAt(p.url, 20*time.Second) }

func clientAt(url string, timeout time.Duration) *client {
	c := &client{http: &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 64, Proxy: nil}}}
	c.base.Store(&url)
	return c
}

func (c *client) use(p *process) { c.base.Store(&p.url) }

// answer is the result of a request. Status 0 means that there was no answer; unsent then tells
// that the request cannot have reached the node, so that it had no effect.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	err      error
	unsent   bool
	repeated bool // an earlier try had no answer, and may arrive at any time
	sent     time.Time
	answered time.Time
}

func (c *client) do(method, path, body string, header ...string) answer {
	req, err := http.NewRequest(method, *c.base.Load()+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err, unsent: true}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	a := answer{sent: time.Now()}
	resp, err := c.http.Do(req)
	if err != nil {
		a.answered, a.err = time.Now(), err
		dial := (*net.OpError)(nil)
		a.unsent = errors.As(err, &dial) && dial.Op == "dial"
		return a
	}
	defer resp.Body.Close()
	a.body, err = io.ReadAll(resp.Body)
	a.answered = time.Now()
	if err != nil {
		a.err = err
		return a
	}
	a.status, a.header = resp.StatusCode, resp.Header
	return a
}

// must is do, and fails the test if the answer has another status.
func (c *client) must(t testing.TB, status int, method, path, body string, header ...string) answer {
	t.Helper()
	a := c.do(method, path, body, header...)
	if a.status != status {
		t.Fatalf("%s %s %s: status %d (%v), want %d: %s", method, path, body, a.status, a.err, status, a.body)
	}
	return a
}

// timer has those fields of a timer that tests read.
type timer struct {
	Topic       string          `json:"topic"`
	ID          string          `json:"id"`
	UID         string          `json:"uid"`
	Version     int             `json:"version"`
	State       string          `json:"state"`
	DueMs       int64           `json:"due_ms"`
	Payload     json.RawMessage `json:"payload"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	LastStatus  int             `json:"last_status"`
	LastError   string          `json:"last_error"`
	NextMs      int64           `json:"next_attempt_ms"`
	CreatedMs   int64           `json:"created_ms"`
	FiredMs     int64           `json:"fired_ms"`
	Reason      string          `json:"reason"`
	LatenessMs  *int64          `json:"lateness_ms"`
}

func (a answer) timer(t testing.TB) timer {
	t.Helper()
	var v timer
	a.decode(t, &v)
	return v
}

func (a answer) decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("status %d, body %q: %v", a.status, a.body, err)
	}
}

// code is the problem code of an error answer, "" if there is none.
func (a answer) code() string {
	var p struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(a.body, &p) // not a problem document: no code
	return p.Code
}

func (a answer) outcome() string {
	var p struct {
		Outcome string `json:"outcome"`
	}
	_ = json.Unmarshal(a.body, &p)
	return p.Outcome
}

func timerPath(topic, id string) string { return "/v1/topics/" + topic + "/timers/" + id }

func (c *client) read(t testing.TB, topic, id string) timer {
	t.Helper()
	return c.must(t, 200, "GET", timerPath(topic, id), "").timer(t)
}

// topic creates a topic with this callback URL. extra is more policy fields as JSON, each with a
// leading comma.
func (c *client) topic(t testing.TB, name, url, extra string) {
	t.Helper()
	c.must(t, 201, "PUT", "/v1/topics/"+name, fmt.Sprintf(`{"callback":{"url":%q}%s}`, url, extra))
}

// all lists the timers of a topic in every state.
func (c *client) all(t testing.TB, topic string) (out []timer) {
	t.Helper()
	c.each(t, topic, func(tm timer) { out = append(out, tm) })
	return out
}

// each calls take for each timer of a topic in every state.
func (c *client) each(t testing.TB, topic string, take func(timer)) {
	t.Helper()
	path := "/v1/topics/" + topic + "/timers?state=scheduled,leased,done,dead,cancelled&limit=1000"
	for cursor := ""; ; {
		var page struct {
			Timers []timer `json:"timers"`
			Next   string  `json:"next_cursor"`
		}
		a := c.do("GET", path+cursor, "")
		// The shard may be without a leader.
		for begin := time.Now(); a.status == 503 && time.Since(begin) < 10*time.Second; {
			wait(200 * time.Millisecond)
			a = c.do("GET", path+cursor, "")
		}
		if a.status != 200 {
			t.Fatalf("GET %s: %d %s %v", path+cursor, a.status, a.body, a.err)
		}
		a.decode(t, &page)
		for _, tm := range page.Timers {
			take(tm)
		}
		if page.Next == "" {
			return
		}
		cursor = "&cursor=" + page.Next
	}
}

// batch sends operations, a thousand at a time, and returns their statuses.
func (c *client) batch(t testing.TB, topic string, ops []string) []int {
	t.Helper()
	var statuses []int
	for part := range slices.Chunk(ops, 1000) {
		got, ok := c.tryBatch(topic, part)
		if !ok {
			t.Fatalf("a batch of %d operations was not answered", len(part))
		}
		statuses = append(statuses, got...)
	}
	return statuses
}

// tryBatch sends up to a thousand operations in one request, without a retry.
func (c *client) tryBatch(topic string, ops []string) (statuses []int, ok bool) {
	a := c.do("POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	var page struct {
		Results []struct {
			Status int `json:"status"`
		} `json:"results"`
	}
	if a.status != 200 || json.Unmarshal(a.body, &page) != nil || len(page.Results) != len(ops) {
		return nil, false
	}
	for _, r := range page.Results {
		statuses = append(statuses, r.Status)
	}
	return statuses, true
}
