package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestPausedTimers: timers that were paused are not called when they are due, nor after kill -9,
// until they are resumed. Others are. A series follows its catch-up rule.
func TestPausedTimers(t *testing.T) {
	t.Parallel()
	rcv := newReceiver(t, nil)
	dir := t.TempDir()
	p := serve(t, dir)
	c := newClient(p)
	c.topic(t, "held", rcv.url(), "")
	c.must(t, 200, "POST", "/v1/topics/held/pause", "") // nothing is called before all have been paused
	add := func(id, rest string) {
		t.Helper()
		c.must(t, 201, "POST", "/v1/topics/held/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d,"labels":["l"]%s}`, id, time.Now().Add(300*time.Millisecond).UnixMilli(), rest))
	}
	for _, rule := range []string{"skip", "one", "all"} {
		add(rule, `,"repeat":{"every":"1s","count":3600,"catch_up":"`+rule+`"}`)
	}
	add("a", "")
	add("b", "")
	add("expires", `,"expires_after":"5s"`)
	c.must(t, 200, "POST", "/v1/topics/held/timers/a/pause", "")
	var n struct{ Matched, Changed, Skipped int }
	if c.must(t, 200, "POST", "/v1/topics/held/pause-timers", `{"filter":{"label":"l"}}`).decode(t, &n); n.Matched != 6 || n.Changed != 5 || n.Skipped != 0 {
		t.Errorf("%+v", n)
	}
	c.must(t, 200, "POST", "/v1/topics/held/resume", "")
	c.must(t, 200, "POST", "/v1/topics/held/timers/b/resume", "")
	poll(t, patience, "the one that was resumed is done", func() bool { return c.read(t, "held", "b").State == "done" })
	c.must(t, 200, "POST", "/v1/topics/held/timers/a/fire", "")
	p.kill()
	p = serve(t, dir)
	c.use(p)
	poll(t, patience, "it expires", func() bool { return c.read(t, "held", "expires").Reason == "expired" })
	// A timer that is due later and called proves that those due before would have been, too.
	add("later", "")
	poll(t, patience, "a later one is done", func() bool { return c.read(t, "held", "later").State == "done" })
	var topic struct {
		Counts struct{ Waiting map[string]int }
	}
	c.must(t, 200, "GET", "/v1/topics/held", "").decode(t, &topic)
	if got := topic.Counts.Waiting; len(got) != 1 || got["paused"] != 4 {
		t.Errorf("waiting: %v", got)
	}
	for _, id := range []string{"skip", "one", "all", "a"} {
		var x struct {
			Paused   bool
			WaitsFor string `json:"waits_for"`
		}
		if c.must(t, 200, "GET", "/v1/topics/held/timers/"+id, "").decode(t, &x); !x.Paused || x.WaitsFor != "paused" || len(rcv.of("held", id)) != 0 {
			t.Errorf("%s: %+v, %d calls", id, x, len(rcv.of("held", id)))
		}
	}
	due := map[string]int64{"skip": c.read(t, "held", "skip").DueMs, "one": c.read(t, "held", "one").DueMs, "all": c.read(t, "held", "all").DueMs}
	resumed := time.Now().UnixMilli()
	c.must(t, 200, "POST", "/v1/topics/held/resume-timers", `{"all":true}`)
	poll(t, patience, "it is done", func() bool { return c.read(t, "held", "a").State == "done" })
	c.must(t, 410, "POST", "/v1/topics/held/timers/a/pause", "")
	for rule, first := range due {
		poll(t, patience, rule+" is called", func() bool { return len(rcv.of("held", rule)) > 2 })
		log := rcv.of("held", rule)
		switch rule {
		case "skip":
			if log[0].dueMs <= resumed-100 || (log[0].dueMs-first)%1000 != 0 {
				t.Errorf("skip: the first call is for %d ms after it was resumed", log[0].dueMs-resumed)
			}
		case "one":
			if log[0].dueMs != first || log[1].dueMs <= resumed-1000 {
				t.Errorf("one: calls for %d and %d ms after the first", log[0].dueMs-first, log[1].dueMs-first)
			}
		default:
			if log[0].dueMs != first || log[1].dueMs != first+1000 || log[2].dueMs != first+2000 {
				t.Errorf("all: calls for %d, %d and %d ms after the first", log[0].dueMs-first, log[1].dueMs-first, log[2].dueMs-first)
			}
		}
	}
}
