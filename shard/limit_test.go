package shard

import (
	"fmt"
	"testing"
	"time"

	"carillon/shard/scheduler"
	"carillon/timer"
)

// limitHarness has four shards on two workers. change sets the policy of topic 1.
func limitHarness(t *testing.T, change func(*timer.Topic)) *hostHarness {
	r := newHostHarness(t, func(c *Config) { c.Shards, c.Workers = 4, 2 })
	r.topic(1, change)
	r.topicsChanged()
	return r
}

// addTo4 adds n timers with the given delay, spread over all four shards.
func (h *hostHarness) addTo4(n int, delay time.Duration) {
	h.t.Helper()
	for i := range n {
		p, err := h.submit(timer.ShardID(1+i%4), timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("t", i), Spec: &timer.Spec{DueMs: h.clock.wallMs + delay.Milliseconds()}})
		if err != nil {
			h.t.Fatal(err)
		}
		h.runIdle()
		if !p.answered() || p.op.err != nil {
			h.t.Fatal(p.op.err)
		}
	}
}

// wantFree checks that no leases are counted any more (I15).
func (h *hostHarness) wantFree() {
	h.t.Helper()
	h.pass(30 * time.Second)
	for id, b := range h.host.limits.Inspect() {
		h.t.Errorf("topic %d still counts: %+v", id, b)
	}
}

func TestConcurrency(t *testing.T) {
	r := limitHarness(t, func(p *timer.Topic) { p.Policy.Concurrency = 3 })
	r.topic(2, nil)
	r.addTo4(20, 50*time.Millisecond)
	r.pass(100 * time.Millisecond)
	perShard := map[timer.ShardID]int{}
	for done := 0; done < 20; {
		running := r.calls.running
		if want := min(3, 20-done); len(running) != want {
			t.Fatalf("%d calls run after %d, want %d", len(running), done, want)
		}
		perShard[running[0].Shard]++
		status := 200
		if done == 5 {
			status = 410 // the outcome does not matter
		}
		running[0].answer(status)
		r.runIdle()
		done++
	}
	for id, n := range perShard {
		if n != 5 {
			t.Errorf("shard %d: %d", id, n)
		}
	}
	r.audit()
	r.wantFree()
}

// TestConcurrencyIsFair: shards take turns.
func TestConcurrencyIsFair(t *testing.T) {
	r := limitHarness(t, func(p *timer.Topic) { p.Policy.Concurrency = 1 })
	r.addTo4(16, 0)
	var order []timer.ShardID
	for len(r.calls.running) > 0 {
		order = append(order, r.calls.running[0].Shard)
		r.calls.running[0].answer(200)
		r.runIdle()
	}
	last := map[timer.ShardID]int{}
	for i, id := range order {
		if before, ok := last[id]; ok && i-before > 4 {
			t.Fatalf("shard %d waited %d turns: %v", id, i-before, order)
		}
		last[id] = i
	}
	if len(order) != 16 {
		t.Errorf("%d calls", len(order))
	}
}

// TestConcurrencyGivesBack: an unusable slot goes to another timer if a receiver is down, a topic
// is paused or a timer is gone.
func TestConcurrencyGivesBack(t *testing.T) {
	r := limitHarness(t, func(p *timer.Topic) { p.Policy.Concurrency = 1 })
	r.calls.dest("http://down/").retryIn = time.Hour
	r.add("down", 0, url("http://down/"))
	r.add("up", 0)
	r.add("next", 0)
	first := r.one()
	if first.Job.ID != "up" {
		t.Fatal(first.Job.ID)
	}
	r.do(timer.Command{Kind: timer.Cancel, ID: "next"})
	first.answer(200)
	r.runIdle()
	r.wantCalls("")
	r.add("last", 0)
	last := r.one()
	r.topic(1, func(p *timer.Topic) { p.Policy.Concurrency, p.Paused = 1, true })
	r.topicsChanged()
	r.add("paused", 0)
	last.answer(200)
	r.runIdle()
	r.wantCalls("")
	r.topic(1, nil) // no limit any more
	r.topicsChanged()
	r.wantCalls("paused")
	r.audit()
}

// TestConcurrencyCountsFormerLeases: leases acquired before the limit was set, or by an earlier
// process, count until they end.
func TestConcurrencyCountsFormerLeases(t *testing.T) {
	r := limitHarness(t, nil)
	r.addTo4(6, 0)
	calls := r.calls.take()
	r.topic(1, func(p *timer.Topic) { p.Policy.Concurrency = 2 })
	r.topicsChanged()
	r.add("late", 0)
	for i, c := range calls {
		r.wantCalls("")
		c.answer(200)
		r.runIdle()
		if i == 4 {
			break
		}
	}
	r.wantCalls("late")
	r.restart()
	r.pass(time.Second)
	if n := len(r.calls.running); n != 2 {
		t.Errorf("%d calls run after the restart", n)
	}
	r.calls.auto = 200
	for len(r.calls.running) > 0 {
		r.calls.running[0].answer(200)
		r.runIdle()
	}
	r.audit()
	r.wantFree()
}

func TestRate(t *testing.T) {
	r := limitHarness(t, func(p *timer.Topic) { p.Policy.Rate = timer.Rate{PerSecond: 10, Burst: 2} })
	r.calls.auto = 200
	var at []time.Duration
	r.calls.onStart = func(c *fakeCall) { at = append(at, c.mono) }
	begin := r.clock.mono
	r.addTo4(40, 300*time.Millisecond)
	r.pass(5 * time.Second)
	if len(at) != 40 {
		t.Fatalf("%d of 40 calls were made", len(at))
	}
	for i := range at {
		for j := i; j < len(at); j++ {
			if n, most := j-i+1, 2+10*(at[j]-at[i]).Seconds(); float64(n) > most+1e-6 {
				t.Fatalf("%d calls within %v", n, at[j]-at[i])
			}
		}
	}
	if took := at[39] - begin; took > 300*time.Millisecond+3900*time.Millisecond {
		t.Errorf("took %v: less than the rate", took)
	}
	r.audit()
	r.wantFree()
}

// turns is the Shares of a node that has the whole rate in one second of three.
type turns struct {
	scheduler.Unlimited
	clock *fakeClock
}

func (ts *turns) Rate(t *timer.Topic) (float64, int) {
	if ts.clock.mono/time.Second%3 != 0 {
		return 0, 0
	}
	return t.Policy.Rate.PerSecond, 1
}

// TestRateInTurns: a node uses all of the rate that its turns bring, also where one turn brings
// less than one delivery.
func TestRateInTurns(t *testing.T) {
	for _, perSecond := range []float64{0.5, 2, 8} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			shares := &turns{}
			r := newHostHarness(t, func(c *Config) { c.Shares = shares })
			shares.clock = r.clock
			r.topic(1, func(p *timer.Topic) { p.Policy.Rate = timer.Rate{PerSecond: perSecond, Burst: 1} })
			r.topicsChanged()
			r.calls.auto = 200
			calls := 0
			r.calls.onStart = func(*fakeCall) { calls++ }
			for i := range 200 {
				r.add(fmt.Sprint(i), 0)
			}
			const rounds = 20
			r.pass(rounds * 3 * time.Second)
			if want := perSecond * rounds; float64(calls) < 0.7*want || float64(calls) > 1.1*want+2 {
				t.Errorf("%d calls in %d turns, want %.0f", calls, rounds, want)
			}
		})
	}
}

// TestRateGivesBack: a lease uses none of the rate if its call never started.
func TestRateGivesBack(t *testing.T) {
	r := limitHarness(t, func(p *timer.Topic) { p.Policy.Rate = timer.Rate{PerSecond: 0.01, Burst: 1} })
	r.add("a", 0)
	r.one().answer(200)
	r.runIdle()
	r.add("b", 0)
	r.pass(99 * time.Second)
	r.wantCalls("")
	r.pass(2 * time.Second)
	r.wantCalls("b")
}

// TestShares: a node stays within its share, and adapts when the share changes.
func TestShares(t *testing.T) {
	part := &partial{atOnce: 0, burst: 0, share: 0.5}
	r := newHostHarness(t, func(c *Config) { c.Shares = part })
	r.topic(1, func(p *timer.Topic) { p.Policy.Concurrency, p.Policy.Rate = 8, timer.Rate{PerSecond: 20, Burst: 4} })
	r.topicsChanged()
	for i := range 6 {
		r.add(fmt.Sprint(i), 0)
	}
	r.pass(time.Second)
	r.wantCalls("")
	part.atOnce, part.burst = 4, 1
	r.pass(time.Second)
	if n := len(r.calls.take()); n != 4 {
		t.Errorf("%d calls", n)
	}
	part.atOnce = 5
	r.pass(time.Second)
	r.wantCalls("4")
	part.atOnce = 1
	r.calls.running[0].answer(200)
	r.pass(time.Second)
	r.wantCalls("")
	if got := r.host.Held(1); got != 4 {
		t.Errorf("holds %d", got)
	}
}

type partial struct {
	atOnce, burst int
	share         float64
	passed        int
}

func (p *partial) Rate(t *timer.Topic) (float64, int) {
	return t.Policy.Rate.PerSecond * p.share, min(t.Policy.Rate.Burst, p.burst)
}
func (p *partial) Concurrency(_ *timer.Topic, n int, _ time.Duration) int { return min(n, p.atOnce) }
func (p *partial) Abandoned(timer.TopicID)                                { p.passed++ }

func TestSpread(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Policy.SpreadMs = 1000 })
	r.topicsChanged()
	r.calls.auto = 200
	starts := map[string]int64{}
	r.calls.onStart = func(c *fakeCall) { starts[c.Job.ID] = c.wallMs - c.Job.DueMs }
	for i := range 200 {
		r.add(fmt.Sprint(i), time.Second)
	}
	r.add("expires", time.Second, func(s *timer.Spec) { s.HasExpiry = true })
	r.pass(3 * time.Second)
	if len(starts) < 200 {
		t.Fatalf("%d calls", len(starts))
	}
	slots := [10]int{}
	for id, after := range starts {
		if after < 0 || after >= 1000 {
			t.Fatalf("%s starts %d ms after its due time", id, after)
		}
		slots[after/100]++
	}
	for i, n := range slots {
		if n < 5 || n > 50 {
			t.Errorf("%d of 200 start in tenth %d", n, i)
		}
	}
	r.wantState("expires", "dead expired 0")
	before := starts["7"]
	r.add("7", time.Second) // the same ID, the same slot
	r.pass(3 * time.Second)
	if starts["7"] != before {
		t.Errorf("the id starts %d ms after its due time, then %d", before, starts["7"])
	}
	r.topic(1, func(p *timer.Topic) { p.Policy.SpreadMs, p.Policy.Serial = 1000, true })
	r.topicsChanged()
	r.calls.take()
	for i := range 20 {
		r.add(fmt.Sprintf("{k}%d", i), time.Second)
	}
	r.pass(3 * time.Second)
	for i, c := range r.calls.take() {
		if c.Job.ID != fmt.Sprintf("{k}%d", i) {
			t.Fatalf("call %d is of %s", i, c.Job.ID)
		}
	}
}
