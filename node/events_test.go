package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/test/testkit"
)

// heard are the events that a client has read so far.
type heard struct {
	t     testing.TB
	lines chan string
	all   []string // "kind id result/reason node"
}

// listen begins to read a node's events, and returns once the stream has begun.
func (r *running) listen(query string) *heard {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", r.base+"/v1/events"+query, nil)
	testkit.Must(r.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		r.t.Fatalf("%v %v", resp, err)
	}
	h := &heard{t: r.t, lines: make(chan string, 10_000)}
	go func() {
		defer resp.Body.Close()
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			h.lines <- s.Text()
		}
		close(h.lines)
	}()
	return h
}

// await reads until an event of each of these beginnings has been heard.
func (h *heard) await(wanted ...string) {
	h.t.Helper()
	missing := func() string {
		for _, w := range wanted {
			found := false
			for _, e := range h.all {
				found = found || strings.HasPrefix(e, w)
			}
			if !found {
				return w
			}
		}
		return ""
	}
	deadline := time.After(patience)
	kind := ""
	for missing() != "" {
		select {
		case line, ok := <-h.lines:
			if !ok {
				h.t.Fatalf("the stream ended before %q; heard %q", missing(), h.all)
			}
			if k, is := strings.CutPrefix(line, "event: "); is {
				kind = k
			}
			if data, is := strings.CutPrefix(line, "data: "); is {
				var e struct{ ID, Result, Reason, Node, State string }
				testkit.Must(h.t, json.Unmarshal([]byte(data), &e))
				h.all = append(h.all, strings.Join(strings.Fields(fmt.Sprint(kind, " ", e.ID, " ", e.Result, e.Reason, " ", e.Node, " ", e.State)), " "))
			}
		case <-deadline:
			h.t.Fatalf("no %q; heard %q", missing(), h.all)
		}
	}
}

// TestLifeOfTimersIsHeard: each step of timers' lives is an event, of the topic and the labels that
// were asked for.
func TestLifeOfTimersIsHeard(t *testing.T) {
	n := start(t, t.TempDir(), func(c *Config) { c.Name = "n1" })
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		switch {
		case a.timer == "refused":
			w.WriteHeader(410)
		case a.timer == "again" && a.attempt == 1:
			w.WriteHeader(500)
		}
	})
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"1ms"}}`, rec.URL))
	n.must(201, "PUT", "/v1/topics/other", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	all, labelled := n.listen("?topic=orders"), n.listen("?label=eu&kind=fired")
	n.must(201, "POST", "/v1/topics/other/timers", `{"id":"elsewhere","delay":"0s"}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"late","delay":"1h"}`)
	n.must(200, "PATCH", "/v1/topics/orders/timers/late", `{"delay":"2h"}`)
	n.must(200, "DELETE", "/v1/topics/orders/timers/late", "")
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"refused","delay":"0s"}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"again","delay":"0s","labels":["eu"]}`)
	all.await("added late n1", "changed late n1", "cancelled late n1", "added refused n1", "fired refused dead n1", "dead refused stopped n1",
		"added again n1", "fired again retry n1", "fired again success n1")
	labelled.await("fired again retry n1", "fired again success n1")
	for _, h := range []*heard{all, labelled} {
		for _, e := range h.all {
			if strings.Contains(e, "elsewhere") || h == labelled && !strings.HasPrefix(e, "fired again") {
				t.Errorf("heard %q", e)
			}
		}
	}
	n.must(200, "POST", "/v1/topics/orders/dead/redrive", `{"all":true,"delay":"1h"}`)
	all.await("changed refused n1")
}

// TestGrowthOfShardsIsHeard: the stream has the growth of the number of shards, from its beginning
// to its end, with each new shard.
func TestGrowthOfShardsIsHeard(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Name = "n1" })
	h := n.listen("?kind=shards")
	n.must(202, "POST", "/v1/cluster/shards", `{"shards":16}`)
	h.await("shards n1 done")
	want := []string{"shards n1 begins"}
	for range 12 {
		want = append(want, "shards n1 divided")
	}
	if want = append(want, "shards n1 done"); !slices.Equal(h.all, want) {
		t.Errorf("heard %q", h.all)
	}
}

// TestEventsOfAllNodesAreHeardAtOne: whichever node leads a timer's shard.
func TestEventsOfAllNodesAreHeardAtOne(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	rec := newReceiver(t, nil)
	nodes[0].must(201, "PUT", "/v1/topics/shared", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	h := nodes[0].listen("?topic=shared")
	// The others are asked from some moment on: timers are added until each has been heard of.
	for k := 0; k < 200; k++ {
		for i := range 24 { // over all shards
			nodes[1].must(201, "POST", "/v1/topics/shared/timers", fmt.Sprintf(`{"id":"t%d-%d","delay":"0s"}`, k, i))
		}
		h.await(fmt.Sprintf("fired t%d-", k))
		nodesHeard := map[string]bool{}
		for _, e := range h.all {
			f := strings.Fields(e)
			nodesHeard[f[len(f)-1]] = true
		}
		if len(nodesHeard) == 3 {
			return
		}
	}
	t.Errorf("not all nodes were heard: %q", h.all)
}

// TestWhatComesDueAndWhatWasDone: the histogram and the last minute's rates count all timers and
// calls.
func TestWhatComesDueAndWhatWasDone(t *testing.T) {
	n := start(t, t.TempDir(), func(c *Config) { c.Name = "n1" })
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(201, "PUT", "/v1/topics/other", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	for i := range 20 { // over all shards
		n.must(201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":"soon-%d","delay":"5m30s"}`, i))
	}
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"later","delay":"2h"}`)
	n.must(201, "POST", "/v1/topics/other/timers", `{"id":"elsewhere","delay":"5m30s"}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"now","delay":"0s"}`)
	n.eventually("orders", "now", "done")
	var due struct {
		Counts                                 []int64
		Overdue, Later, Shards, Shards_counted int64
	}
	read := func(query string) {
		t.Helper()
		testkit.Must(t, json.Unmarshal([]byte(n.must(200, "GET", "/v1/due"+query, "")), &due))
	}
	total := func() (sum int64) {
		for _, c := range due.Counts {
			sum += c
		}
		return sum
	}
	read("?topic=orders")
	if total() != 20 || due.Counts[5] != 20 && due.Counts[4]+due.Counts[5] != 20 || due.Overdue != 0 || due.Later != 1 || due.Shards != 4 || due.Shards_counted != 4 {
		t.Errorf("%+v", due)
	}
	if read(""); total() != 21 || due.Later != 1 {
		t.Errorf("of all topics: %+v", due)
	}
	n.awaitBody(200, "/v1/cluster/stats", `"name":"n1"`)
	n.awaitBody(200, "/v1/cluster/stats", `"added":23,`)
	n.awaitBody(200, "/v1/cluster/stats", `"fired":{"success":1,"retry":0,"dead":0},"lateness_ms":{"count":1,"p50":`)
	n.awaitBody(200, "/v1/cluster/stats", `"scheduled":22,`)
}

// TestBreakersAreHeard: a listener that asks for it hears when a receiver falls ill.
func TestBreakersAreHeard(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Name = "n1" })
	sick := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(500) })
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"10ms","max_backoff":"10ms"}}`, sick.URL))
	h := n.listen("?kind=breaker")
	for i := range 200 {
		n.must(201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":"t-%d","delay":"0s"}`, i))
		select {
		case line := <-h.lines:
			if strings.Contains(line, `"state":"open"`) && strings.Contains(line, sick.URL) {
				return
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Errorf("the breaker was not heard of: %s", n.must(200, "GET", "/v1/destinations", ""))
}
