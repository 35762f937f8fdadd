package shard

import (
	"strings"
	"testing"
	"time"

	"carillon/test/memfs"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// addSeries adds a repeating timer.
func (h *hostHarness) addSeries(id string, p *timer.Repeat) {
	h.t.Helper()
	if got := h.do(timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: h.clock.wallMs + 100, Repeat: p}}); got.Code != timer.Created {
		h.t.Fatalf("the add of %s answers %d", id, got.Code)
	}
}

// TestUnknownZone: series in a zone that this node lacks are due and wait, with a reason, counted
// and logged once, at the cost of a turn every few seconds. Others are called. Those that a client
// changes or cancels wait no longer, and a node that knows the zone calls the rest.
func TestUnknownZone(t *testing.T) {
	r := makeHarness(t, memfs.New(), func(c *Config) { c.Zones = recurrence.Without("Asia/Kathmandu") })
	r.mustOpen()
	defer func() { r.abort() }()
	for _, id := range []string{"a", "b", "c"} {
		r.addSeries(id, &timer.Repeat{Cron: "*/5 * * * *", Zone: "Asia/Kathmandu"})
	}
	r.addSeries("tokyo", &timer.Repeat{Cron: "*/5 * * * *", Zone: "Asia/Tokyo"})
	r.pass(time.Second)
	r.wantCalls("tokyo")
	g := r.host.group(1)
	h, _ := shardOf(g).table.Lookup(1, "a")
	if got := shardOf(g).scheduler.View.Standing(h).Wait; got != (timer.Wait{For: timer.WaitZone, On: "Asia/Kathmandu"}) {
		t.Errorf("it waits for %+v", got)
	}
	turns := 0
	for end := r.clock.mono + time.Minute; r.clock.mono < end; turns++ {
		r.runIdle()
		step := time.Minute
		for _, w := range r.host.workers {
			step = min(step, w.untilWake())
		}
		r.step(max(step, time.Millisecond))
	}
	if turns > 4000 { // the worker ticks every 50 ms, and the canary has its own
		t.Errorf("%d turns in a minute: it asks again and again", turns)
	}
	want := func(n int64) {
		t.Helper()
		var s Stats
		g.stats(&s)
		shardOf(g).scheduler.View.Overdue(new(int), func(_ timer.TopicID, timers, _ int64) { s.Overdue += timers })
		counts := []timer.Counts{{}}
		shardOf(g).scheduler.View.Count([]timer.TopicID{1}, counts)
		if s.UnknownZone != n || s.Overdue != n || counts[0].Ready != n || n > 0 && counts[0].OldestOverdueMs < 60_000 {
			t.Errorf("%d in unknown zones, %d overdue, %+v; want %d", s.UnknownZone, s.Overdue, counts[0], n)
		}
	}
	want(3)
	if n := strings.Count(r.log.String(), "does not know a time zone"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	r.do(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "b"})
	patch := &timer.Patch{Repeat: true, Spec: timer.Spec{Repeat: &timer.Repeat{Cron: "*/5 * * * *", Zone: "Asia/Tokyo"}}}
	if got := r.do(timer.Command{Kind: timer.Modify, Topic: 1, ID: "c", Patch: patch}); got.Code != timer.OK {
		t.Fatalf("the patch answers %d", got.Code)
	}
	r.pass(2 * 5 * time.Second)
	r.wantCalls("c")
	r.wantState("a", "scheduled 0")
	want(1)

	shardOf(g).scheduler.End() // another node leads for a moment
	shardOf(g).scheduler.Begin()
	r.pass(time.Second)
	want(1)

	r.change = nil // a release that knows it
	r.restart()
	r.pass(30 * time.Second)
	if got := r.calls.ids(); !strings.Contains(got, "a") {
		t.Errorf("calls started: %q, and not a", got)
	}
}
