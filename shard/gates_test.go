package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/shard/scheduler"
	"carillon/timer"
)

// url gives a timer its own callback URL.
func url(u string) func(*timer.Spec) {
	return func(s *timer.Spec) { s.Callback.URL = u }
}

func TestI17OpenBreakerBurnsNoAttempt(t *testing.T) {
	r := newHostHarness(t, nil)
	to := r.calls.dest("http://receiver-1/")
	to.retryIn = 3 * time.Second
	r.add("a", 0)
	r.pass(2999 * time.Millisecond)
	r.wantCalls("")
	r.wantState("a", "scheduled 0")
	if r.calls.asked != 1 {
		t.Errorf("asked %d times while the breaker was open, want once", r.calls.asked)
	}
	to.retryIn = 0
	r.pass(time.Millisecond)
	if c := r.one(); c.Job.Attempts != 1 {
		t.Errorf("attempt %d", c.Job.Attempts)
	}
	r.audit()
}

// TestOpenBreakerOnMonotonicClock: the wall clock does not affect how long a breaker is open.
func TestOpenBreakerOnMonotonicClock(t *testing.T) {
	r := newHostHarness(t, nil)
	to := r.calls.dest("http://receiver-1/")
	to.retryIn = 3 * time.Second
	r.add("a", 0)
	r.add("b", -2*time.Hour)
	to.retryIn = 0
	r.clock.wallMs -= time.Hour.Milliseconds()
	r.pass(3 * time.Second)
	r.wantCalls("b")
}

func TestFullDestinationQueues(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.dest("http://receiver-1/").slots = 1
	r.add("a", 0)
	r.add("b", 0)
	r.add("c", 0)
	first := r.one()
	if first.Job.ID != "a" {
		t.Error(first.Job.ID)
	}
	r.pass(time.Minute)
	r.wantCalls("")
	first.answer(200)
	r.runIdle()
	second := r.one()
	if second.Job.ID != "b" {
		t.Error(second.Job.ID)
	}
	second.answer(200)
	r.runIdle()
	r.wantCalls("c")
	r.audit()
}

// TestGrantedForNobody: a slot that is granted after its timer is gone must not stay with the
// destination queue.
func TestGrantedForNobody(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.Shards = 2 })
	to := r.calls.dest("http://receiver-1/")
	to.slots = 1
	r.add("a", 0)
	first := r.one()
	r.add("b", 0) // queued
	p, err := r.submit(2, timer.Command{Kind: timer.Add, Topic: 1, ID: "other", Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	if err != nil {
		t.Fatal(err)
	}
	r.runIdle()
	if !p.answered() || len(to.queue) != 2 {
		t.Fatalf("%d lanes wait, want 2", len(to.queue))
	}
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "b"}); got.Code != timer.Prevented {
		t.Fatal(got.Code)
	}
	first.answer(200)
	r.runIdle()
	r.wantCalls("other")
	r.audit()
}

func TestPausedTopic(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(990 * time.Millisecond)
	if r.scheduler().View.Inspect().Held != 1 {
		t.Fatal("no lease is held")
	}
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	r.add("b", 0)
	r.pass(5 * time.Minute)
	r.wantCalls("")
	r.wantState("a", "scheduled 0")
	list := make([]timer.Counts, 1)
	r.scheduler().View.Count([]timer.TopicID{1}, list)
	if c := list[0]; c.Ready != 2 || c.OldestOverdueMs < 299_000 {
		t.Errorf("counts %+v", c)
	}
	r.topic(1, nil)
	r.topicsChanged()
	r.wantCalls("b a")
	r.audit()
}

func TestUnknownTopicWaits(t *testing.T) {
	r := newHostHarness(t, nil)
	delete(r.topics, 1)
	r.add("a", 0)
	r.pass(time.Minute)
	r.wantCalls("")
	r.topic(1, nil)
	r.topicsChanged()
	r.wantCalls("a")
}

func TestNoURLWaitsForTopic(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Policy.Callback.URL = "" })
	r.add("a", 0)
	r.add("own", 0, url("http://own/"))
	r.wantCalls("own")
	r.topic(1, nil)
	r.topicsChanged()
	r.wantCalls("a")
}

func TestNewURLReroutes(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.dest("http://receiver-1/").retryIn = time.Hour
	r.add("a", 0)
	r.add("b", 0)
	r.wantCalls("")
	r.topic(1, func(p *timer.Topic) { p.Policy.Callback.URL = "http://new/" })
	r.topicsChanged()
	for _, c := range r.calls.take() {
		if c.url != "http://new/" {
			t.Errorf("%s went to %s", c.Job.ID, c.url)
		}
		c.answer(200)
	}
	r.runIdle()
	r.wantState("a", "done 1")
	r.wantState("b", "done 1")
	r.audit()
}

// expires makes a timer expire the given time after its due time.
func expires(after time.Duration) func(*timer.Spec) {
	return func(s *timer.Spec) { s.HasExpiry, s.ExpiresAfterMs = true, after.Milliseconds() }
}

func TestExpiryBehindShutGates(t *testing.T) {
	for name, shut := range map[string]func(r *hostHarness){
		"breaker": func(r *hostHarness) { r.calls.dest("http://receiver-1/").retryIn = time.Hour },
		"slots":   func(r *hostHarness) { r.calls.dest("http://receiver-1/").slots = 1; r.add("x", 0) },
		"paused":  func(r *hostHarness) { r.topic(1, func(p *timer.Topic) { p.Paused = true }); r.topicsChanged() },
		"unknown": func(r *hostHarness) { delete(r.topics, 1); r.topicsChanged() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newHostHarness(t, nil)
			shut(r)
			r.add("a", time.Second, expires(5*time.Second))
			r.add("b", time.Second, expires(time.Hour))
			r.calls.take()
			r.pass(6 * time.Second)
			r.wantState("a", "scheduled 0")
			r.pass(time.Second)
			r.wantState("a", "dead expired 0")
			r.wantState("b", "scheduled 0")
			r.wantCalls("")
			r.audit()
		})
	}
}

func TestExpiryOfRetry(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0, expires(1500*time.Millisecond))
	r.one().answer(500)
	r.pass(time.Second)
	r.one().answer(500) // the next attempt would be at 3 s
	r.pass(600 * time.Millisecond)
	r.wantState("a", "dead expired 2")
}

func TestDeadLetterRetention(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Policy.DeadRetentionMs = 60_000 })
	r.add("a", 0)
	r.one().answer(410)
	r.pass(59 * time.Second)
	r.wantState("a", "dead stopped 1")
	r.pass(2 * time.Second)
	r.wantState("a", "none")
	r.audit()
}

func TestOrderAmongReady(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	priority := func(n uint8) func(*timer.Spec) { return func(s *timer.Spec) { s.Priority = n } }
	r.add("late", 20*time.Millisecond, priority(5))
	r.add("soon", 10*time.Millisecond, priority(5))
	r.add("then", 10*time.Millisecond, priority(5))
	r.add("low", 0, priority(1))
	r.add("high", 30*time.Millisecond, priority(9))
	r.pass(100 * time.Millisecond)
	r.calls.dest("http://receiver-1/").slots = 1
	r.calls.auto = 200
	r.topic(1, nil)
	r.topicsChanged()
	r.wantCalls("high soon then late low")
}

// TestI16FairBetweenTopics: a topic with thousands of due timers alternates with one that has a
// few.
func TestI16FairBetweenTopics(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(2, nil)
	r.freeze = true // all of them fall due in one turn
	const flood = 2000
	var last *pending
	for i := range flood {
		last = r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("flood", i), Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	}
	for i := range 5 {
		last = r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 2, ID: fmt.Sprint("few", i), Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	}
	r.freeze = false
	r.runIdle()
	if !last.answered() {
		t.Fatal("not added")
	}
	at := -1
	list := r.calls.take()
	for i, c := range list {
		if strings.HasPrefix(c.Job.ID, "few") {
			at = i
		}
	}
	if len(list) != flood+5 || at > scheduler.LeaseBudget {
		t.Errorf("%d calls; the last of the few was number %d", len(list), at)
	}
}

func (h *hostHarness) mustSubmit(cmd timer.Command) *pending {
	h.t.Helper()
	p, err := h.submit(1, cmd)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func TestDrain(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("held", time.Second)
	r.add("runs", 0)
	c := r.one()
	r.pass(990 * time.Millisecond)
	r.host.draining.Store(true)
	flights := func() (n int) {
		r.host.workers[0].box.post(&call{fn: func(w *worker) { n = r.scheduler().Leases.Drain() }, wait: fakeWaiter()})
		r.runIdle()
		return n
	}
	if n := flights(); n != 2 {
		t.Errorf("%d flights, want 2", n)
	}
	if n := flights(); n != 1 {
		t.Errorf("%d flights, want 1: the lease was given back", n)
	}
	r.add("new", 0)
	r.pass(time.Minute)
	r.wantCalls("")
	r.wantState("held", "scheduled 0")
	c.answer(200)
	r.runIdle()
	if n := flights(); n != 0 {
		t.Errorf("%d flights, want none", n)
	}
	r.audit()
	r.restart()
	r.wantCalls("new held")
}

// TestLateAnswers: while the disk hangs, every waiter is answered within its limit, also for a
// change of a timer while its lease is being logged.
func TestLateAnswers(t *testing.T) {
	r := mixedHarness(t) // with a second frame behind the one that hangs
	r.add("a", time.Second)
	r.pass(970 * time.Millisecond)
	r.freeze = true
	r.pass(10 * time.Millisecond)
	behindLease := r.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a"})
	r.pass(5 * time.Millisecond)
	h, _ := r.table().Lookup(1, "a")
	if f := r.scheduler().View.Inspect().Leases[h]; !f.Pending || f.Waiting != 1 {
		t.Fatalf("flight %+v", f)
	}
	written := r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: "b", Spec: &timer.Spec{DueMs: 1 << 41}})
	r.pass(5 * time.Millisecond)
	waits := r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: "c", Spec: &timer.Spec{DueMs: 1 << 41}})
	r.pass(1400 * time.Millisecond)
	if waits.answered() || behindLease.answered() || written.answered() {
		t.Error("answered too soon")
	}
	r.pass(200 * time.Millisecond)
	if !waits.answered() || !errors.Is(waits.op.err, timer.ErrOverloaded) {
		t.Errorf("what waits: %v", waits.op.err)
	}
	if !behindLease.answered() || !errors.Is(behindLease.op.err, timer.ErrOverloaded) {
		t.Errorf("what waits behind a lease: %v", behindLease.op.err)
	}
	if written.answered() {
		t.Error("what is proposed has its answer")
	}
	r.pass(commitGrace)
	if !written.answered() || !errors.Is(written.op.err, timer.ErrUnknown) {
		t.Errorf("what is proposed: %v", written.op.err)
	}
	if n := r.host.workers[0].queued.Load(); n != 0 {
		t.Errorf("%d operations are counted as waiting", n)
	}
	r.freeze = false
	r.pass(time.Second)
	r.wantState("b", "scheduled 0") // its outcome was unknown: it did take effect
	r.wantState("c", "none")
	r.one().answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
	r.audit()
}

// TestCanaryHoldsNobodyUp: a canary command that heads the queue while the disk hangs must not
// delay the 503 of the commands behind it.
func TestCanaryHoldsNobodyUp(t *testing.T) {
	r := newHostHarness(t, nil)
	r.pass(canaryEvery - 100*time.Millisecond)
	r.freeze = true
	r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: "x", Spec: &timer.Spec{DueMs: 1 << 41}})
	r.turn()
	r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: "y", Spec: &timer.Spec{DueMs: 1 << 41}})
	r.turn()
	r.pass(200 * time.Millisecond) // the canary waits
	p := r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: "z", Spec: &timer.Spec{DueMs: 1 << 41}})
	r.pass(1600 * time.Millisecond)
	if !p.answered() || !errors.Is(p.op.err, timer.ErrOverloaded) {
		t.Error("no answer within 1.6 s")
	}
}

func TestOverload(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.MaxQueued = 10 })
	r.freeze = true
	var list []*pending
	for i := range 10 {
		list = append(list, r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: 1 << 41}}))
	}
	if _, err := r.submit(1, timer.Command{Kind: timer.Cancel, Topic: 1, ID: "0"}); !errors.Is(err, timer.ErrOverloaded) {
		t.Errorf("the eleventh: %v", err)
	}
	r.freeze = false
	r.runIdle()
	for i, p := range list {
		if !p.answered() || p.op.result.Code != timer.Created {
			t.Errorf("%d: %+v", i, p.op)
		}
	}
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "0"}); got.Code != timer.Prevented {
		t.Error(got.Code)
	}
}
