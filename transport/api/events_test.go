package api

import (
	"bufio"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carillon/transport/api/backend"
	"carillon/transport/api/events"
	"carillon/transport/api/web"
)

// eventReader reads a stream of events as a client does.
type eventReader struct {
	t     *testing.T
	body  *bufio.Reader
	close func()
}

func (h *harness) listen(t *testing.T, target, token string) *eventReader {
	t.Helper()
	req, err := http.NewRequest("GET", "http://"+h.addr+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	checkDocumented(t, "GET", target, 200, resp.Header)
	return &eventReader{t, bufio.NewReader(resp.Body), func() { resp.Body.Close() }}
}

// next is the next event or comment, with its lines; "" at the end.
func (r *eventReader) next() string {
	r.t.Helper()
	var all strings.Builder
	for {
		line, err := r.body.ReadString('\n')
		if err != nil {
			return all.String()
		}
		if line == "\n" {
			return all.String()
		}
		all.WriteString(line)
	}
}

func TestEventsAreStreamed(t *testing.T) {
	h := newHarness(t)
	h.server.node.Beat = 5 * time.Millisecond
	h.do("PUT", "/v1/topics/orders", `{}`).want(201)
	l := h.listen(t, "/v1/events?topic=orders&label=eu&label=vip&kind=fired,dead", "")
	if got := l.next(); !strings.HasPrefix(got, "retry: 1000\n: ") {
		t.Errorf("%q", got)
	}
	s := h.engine.stream(0)
	if w := s.watch; w.Topic != "orders" || strings.Join(w.Labels, " ") != "eu vip" || strings.Join(w.Kinds, " ") != "fired dead" || w.Topics != nil {
		t.Errorf("%+v", w)
	}
	if got := l.next(); got != ": still here\n" {
		t.Errorf("%q", got)
	}
	said := func(want string) { // between beats
		t.Helper()
		got := l.next()
		for got == ": still here\n" {
			got = l.next()
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	s.events <- backend.Event{Kind: backend.EventFired, Topic: "orders", ID: "a", AtMs: 1000, Attempt: 2, Result: "retry", Status: 503, Error: "busy\n", LateMs: 7, NextMs: 2000, Labels: []string{"eu", "vip"}, Node: "n1"}
	said("event: fired\n" + `data: {"topic":"orders","id":"a","node":"n1","at":"1970-01-01T00:00:01.000Z","at_ms":1000,"attempt":2,"result":"retry","late_ms":7,"status":503,"error":"busy\n",` +
		`"next_attempt":"1970-01-01T00:00:02.000Z","next_attempt_ms":2000,"labels":["eu","vip"]}` + "\n")
	s.missed <- 12
	said("event: missed\ndata: {\"missed\":12}\n")
	s.events <- backend.Event{Kind: backend.EventDead, Topic: "orders", ID: "a", AtMs: 1000, Reason: "stopped", Status: 410, Node: "n2"}
	said("event: dead\n" + `data: {"topic":"orders","id":"a","node":"n2","at":"1970-01-01T00:00:01.000Z","at_ms":1000,"reason":"stopped","status":410}` + "\n")
	s.events <- backend.Event{Kind: backend.EventBreaker, AtMs: 1000, Destination: "http://a", State: "open", Node: "n2"}
	said("event: breaker\n" + `data: {"destination":"http://a","node":"n2","state":"open","at":"1970-01-01T00:00:01.000Z","at_ms":1000}` + "\n")
	s.events <- backend.Event{Kind: backend.EventShards, AtMs: 1000, State: backend.GrowthBegins, Growth: &backend.Growth{From: 4, To: 8}, Node: "n2"}
	said("event: shards\n" + `data: {"node":"n2","state":"begins","at":"1970-01-01T00:00:01.000Z","at_ms":1000,"from":4,"to":8,"done":0}` + "\n")
	s.events <- backend.Event{Kind: backend.EventShards, AtMs: 1000, State: backend.GrowthDivided, Growth: &backend.Growth{From: 4, To: 8, Done: 2}, Node: "n2"}
	said("event: shards\n" + `data: {"node":"n2","state":"divided","at":"1970-01-01T00:00:01.000Z","at_ms":1000,"from":4,"to":8,"done":2,"shard":6}` + "\n")
	l.close()
	select {
	case <-s.closed:
	case <-time.After(patience):
		t.Error("the stream is open although its client has gone")
	}
	h.await("no stream is counted as open", func() bool { return h.server.streams.count() == 0 })

	l = h.listen(t, "/v1/events", "")
	l.next()
	h.stop()
	said("")
}

func TestEventsAreRefused(t *testing.T) {
	h := newHarness(t)
	h.do("GET", "/v1/events?topic=nothing", "").problem(404, web.UnknownTopic)
	h.do("GET", "/v1/events?topic=a@b", "").problem(400, web.BadName)
	h.do("GET", "/v1/events?kind=fired,exploded", "").problem(400, web.BadRequest)
	h.do("GET", "/v1/events?label=", "").problem(400, web.BadRequest)
	h.do("GET", "/v1/events?from=1", "").problem(400, web.BadRequest)
	h.do("POST", "/v1/events", "").problem(405, "method_not_allowed")
	h.do("HEAD", "/v1/events", "").want(200)
	h.server.streams.taken = events.StreamsAtOnce
	if r := h.do("GET", "/v1/events", "").problem(503, "overloaded"); !strings.Contains(r.body, "64 streams of events") {
		t.Error(r.body)
	}
	h.server.streams.taken = 0
}

// TestEventsOfATokensTopics: a token hears of its topics alone, and no longer than it is one.
func TestEventsOfATokensTopics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	all := []string{`root read,admin "*"`, `shop read "orders.*","pay"`, `adder add "*"`}
	authFile(t, path, all...)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	h.server.node.Beat = 5 * time.Millisecond
	h.do("PUT", "/v1/topics/pay", `{}`, "Authorization: Bearer root").want(201)
	h.do("GET", "/v1/events", "").problem(401, "unauthorized")
	h.do("GET", "/v1/events", "", "Authorization: Bearer adder").problem(403, "forbidden")
	h.do("GET", "/v1/events?topic=other", "", "Authorization: Bearer shop").problem(404, web.UnknownTopic)
	l := h.listen(t, "/v1/events?topic=pay", "shop")
	l.next()
	w := h.engine.stream(0).watch
	if strings.Join(w.Topics, " ") != "orders.* pay" {
		t.Errorf("%+v", w)
	}
	for topic, sees := range map[string]bool{"pay": true, "orders.a": false, "payments": false} {
		if w.SeesTopic(topic) != sees {
			t.Errorf("a stream of topic pay hears of %s: %v", topic, !sees)
		}
	}
	every := backend.Watch{Topics: w.Topics, Labels: []string{"eu"}, Kinds: []string{backend.EventDead}}
	for _, c := range []struct {
		e    backend.Event
		want bool
	}{
		{backend.Event{Kind: backend.EventDead, Topic: "orders.a", Labels: []string{"x", "eu"}}, true},
		{backend.Event{Kind: backend.EventDead, Topic: "orders.a", Labels: []string{"x"}}, false},
		{backend.Event{Kind: backend.EventFired, Topic: "orders.a", Labels: []string{"eu"}}, false},
		{backend.Event{Kind: backend.EventDead, Topic: "other", Labels: []string{"eu"}}, false},
	} {
		if every.Sees(&c.e) != c.want {
			t.Errorf("%+v: %v", c.e, !c.want)
		}
	}
	if got := l.next(); got != ": still here\n" {
		t.Fatalf("%q", got)
	}
	authFile(t, path, all[0], `shop read "orders.*"`)
	if err := auth.Reload(); err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		if l.next() == "" {
			return
		}
	}
	t.Error("the stream goes on although the token reaches other topics now")
}
