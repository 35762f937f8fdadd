package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/timer"
)

func (h *hostHarness) waitsFor(id string) timer.Wait {
	return h.scheduler().View.Standing(h.table().Find(1, []byte(id))).Wait
}

// TestWaitsForLeader: while its leader may start nothing, a due timer waits for it.
func TestWaitsForLeader(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	r.clock.trust = clocks.Held
	r.add("a", 0)
	r.pass(time.Second)
	if got := r.waitsFor("a"); got.For != timer.WaitLeader {
		t.Errorf("it waits for %q", got.For)
	}
	r.clock.trust = clocks.Sure
	r.pass(time.Second)
	r.wantState("a", "done 1")
}

// TestWaitsAreCounted: what a timer waits for is counted once, at each moment of its way, and by the
// next leader as by the one before.
func TestWaitsAreCounted(t *testing.T) {
	r := newHostHarness(t, nil)
	want := func(want string) {
		t.Helper()
		r.audit()
		sums := make([]timer.Counts, 1)
		r.scheduler().View.Count([]timer.TopicID{1}, sums)
		got := ""
		for _, cause := range timer.WaitCauses() {
			if n := sums[0].Waiting[cause]; n != 0 {
				got += fmt.Sprintf("%s %d ", cause, n)
			}
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("counted %q, want %q", got, want)
		}
	}
	to := r.calls.dest("http://receiver-1/")
	r.topic(1, func(p *timer.Topic) { p.Policy.SpreadMs = time.Hour.Milliseconds() })
	r.topicsChanged()
	r.add("spread", 0)
	want("spread 1")
	r.do(timer.Command{Kind: timer.Cancel, ID: "spread"})
	want("")
	r.topic(1, nil)
	r.topicsChanged()
	for _, id := range []string{"a", "b"} {
		r.add(id, 0)
		r.one().answer(500)
		r.runIdle()
	}
	want("backoff 2")
	r.restart()
	want("backoff 2")
	r.do(timer.Command{Kind: timer.Cancel, ID: "b"})
	want("backoff 1")
	to.retryIn = 5 * time.Minute
	r.pass(time.Minute) // the backoff is over, and the breaker is open
	want("breaker 1")
	to.retryIn = 0
	r.pass(5 * time.Minute)
	r.one().answer(200)
	r.runIdle()
	want("")
}

// TestWaitsOfAHerdAreCounted: of the timers of one instant, all but those that are about to start
// have a reason, from the first moment on, in the counts of their topic and of the node. Those that
// are still in the wheel are counted for the node alone.
func TestWaitsOfAHerdAreCounted(t *testing.T) {
	const herd, starting = 20_000, 192
	r := newHostHarness(t, func(c *Config) { c.MaxQueued = 1 << 20 })
	for i := range herd {
		if _, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: r.clock.wallMs + 60_000}}); err != nil {
			t.Fatal(err)
		}
	}
	r.pass(time.Minute - 25*time.Millisecond) // in the wheel's last millisecond slots
	r.step(25 * time.Millisecond)
	r.freeze = true
	sum := func(w *timer.Waiting) (n int64) {
		for _, cause := range timer.WaitCauses() {
			n += w[cause]
		}
		return n
	}
	for turn := range 60 {
		r.turn()
		sums, all := make([]timer.Counts, 1), timer.Waiting{}
		r.scheduler().View.Count([]timer.TopicID{1}, sums)
		for at := 0; !r.scheduler().View.Waiting(&at, &all); {
		}
		if w := sums[0].Waiting; w[timer.WaitLeader]+all[timer.WaitLeader] > 0 {
			t.Fatalf("turn %d: %d wait for a leader that works, %d of all", turn, w[timer.WaitLeader], all[timer.WaitLeader])
		}
		if n, ready := sum(&sums[0].Waiting), sums[0].Ready; n > ready || n < ready-starting {
			t.Fatalf("turn %d: %d of %d have a reason", turn, n, ready)
		}
		if n := sum(&all); n > herd || n < herd-2*starting {
			t.Fatalf("turn %d: %d of all have a reason", turn, n)
		}
	}
	last := fmt.Sprint(herd - 1)
	if w := r.waitsFor(last); w.For != timer.WaitTurn {
		t.Errorf("the last waits for %q", w.For)
	}
	r.pass(2 * time.Second) // the log stands
	if w := r.waitsFor(last); w.For != timer.WaitLeader {
		t.Errorf("the last waits for %q while nothing starts", w.For)
	}
	r.freeze = false
	r.calls.auto = 200
	for _, c := range r.calls.take() {
		c.answer(200)
	}
	r.runIdle()
	if left := r.table().Counts(1).Scheduled; left > 0 {
		t.Errorf("%d are left", left)
	}
}

// TestPendingWithoutURL: the count of pending timers without a URL of their own follows adds, merges,
// changes, ends and redrives, and a restart.
func TestPendingWithoutURL(t *testing.T) {
	r := newHostHarness(t, nil)
	want := func(n int64) {
		t.Helper()
		r.audit()
		if got := r.table().Counts(1).NoURL; got != n {
			t.Errorf("%d pending timers have no URL, want %d", got, n)
		}
	}
	r.add("a", time.Minute)
	r.add("own", time.Minute, url("http://own/"))
	r.add("headers", time.Minute, func(s *timer.Spec) {
		s.Callback.HasHeaders, s.Callback.Headers = true, []timer.Header{{Name: "X", Value: "1"}}
	})
	want(2)
	r.do(timer.Command{Kind: timer.Modify, ID: "own", Patch: &timer.Patch{URL: true}})
	want(3)
	r.do(timer.Command{Kind: timer.Modify, ID: "a", Patch: &timer.Patch{URL: true, Spec: timer.Spec{Callback: timer.Callback{URL: "http://own/"}}}})
	want(2)
	r.restart()
	want(2)
	r.do(timer.Command{Kind: timer.Cancel, ID: "headers"})
	want(1)
	r.do(timer.Command{Kind: timer.Fire, ID: "own"})
	r.runIdle()
	want(1) // it is being called
	r.one().answer(200)
	r.runIdle()
	want(0)
}
