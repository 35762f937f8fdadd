package scheduler

import (
	"fmt"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

func limited(n int) func(*timer.Policy) { return func(p *timer.Policy) { p.Concurrency = n } }

func (r *replica) held() int { return r.cfg.Limiters.Held(1) }

func TestConcurrency(t *testing.T) {
	r := newReplica(t)
	r.topic(1, limited(2))
	r.add("a", -3)
	r.add("b", -2)
	c := r.add("c", -1)
	r.turn()
	r.want("ab")
	r.waits(c, timer.WaitConcurrency)
	r.end(delivery.Outcome{Status: 200})
	r.want("bc")
	if r.held() != 2 {
		t.Errorf("%d leases count", r.held())
	}
	r.end(delivery.Outcome{Status: 200})
	r.end(delivery.Outcome{Status: 200})
	if r.held() != 0 {
		t.Errorf("%d leases count", r.held())
	}
}

func TestRate(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Rate = timer.Rate{PerSecond: 10, Burst: 2} })
	for _, id := range []string{"a", "b", "c", "d"} {
		r.add(id, 10)
	}
	r.turn()
	r.want("") // none is leased ahead of its time
	r.pass(10 * time.Millisecond)
	r.want("ab")
	r.pass(90 * time.Millisecond)
	r.want("ab")
	r.pass(20 * time.Millisecond)
	r.want("abc")
	r.pass(100 * time.Millisecond)
	r.want("abcd")
}

// TestRateOfARestingTopic: a topic whose timers are far apart is not forgotten before its bucket is
// full, nor are its timers without a key: else each would find a full one.
func TestRateOfARestingTopic(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"topic":   func(p *timer.Policy) { p.Rate = rate(0.005, 1) },
		"keyless": perKey(timer.PerKey{Rate: rate(0.005, 1)}),
		"key":     perKey(timer.PerKey{Rate: rate(0.005, 1)}),
	} {
		r := newReplica(t)
		r.topic(1, set)
		id := map[bool]string{true: "{k}"}[name == "key"]
		call := func(of string) {
			r.add(id+of, 0)
			r.turn()
			r.want(id + of)
			r.end(delivery.Outcome{Status: 200})
		}
		pass := func(d time.Duration) {
			for ; d > 0; d -= 10 * time.Second {
				r.pass(10 * time.Second)
				r.Sweep()
				r.turn()
			}
		}
		pass(400 * time.Second)
		call("a")
		pass(100 * time.Second)
		r.add(id+"b", 0)
		r.turn()
		if got := r.called(); got != "" {
			t.Errorf("%s: %s is called after half of its time", name, got)
		}
		pass(150 * time.Second)
		r.want(id + "b")
		r.end(delivery.Outcome{Status: 200})
		pass(400 * time.Second)
		if n := len(r.View.Inspect().Topics); n != 0 {
			t.Errorf("%s: %d topics are kept", name, n)
		}
		call("c")
	}
}

// TestTopicBecomesLimited: leases of before count, until the limit is gone.
func TestTopicBecomesLimited(t *testing.T) {
	r := newReplica(t)
	r.add("a", 0)
	r.turn()
	r.topic(1, limited(1))
	r.add("b", 0)
	r.turn()
	r.want("a")
	if r.held() != 1 {
		t.Errorf("%d leases count", r.held())
	}
	r.topic(1, func(*timer.Policy) {})
	r.turn()
	r.want("ab")
	r.end(delivery.Outcome{Status: 200})
	r.end(delivery.Outcome{Status: 200})
	if n := r.held(); n != 0 || len(r.cfg.Limiters.Inspect()) != 0 {
		t.Errorf("%d leases count, limits %v", n, r.cfg.Limiters.Inspect())
	}
}

// TestConsumersTopicBecomesLimited: what consumers have leased before a topic has a limit counts at
// it, until it ends or the limit is gone; so it does again with the next limit.
func TestConsumersTopicBecomesLimited(t *testing.T) {
	r := newReplica(t)
	r.topic(1, pulled)
	a := r.add("a", 0)
	r.turn()
	if got := r.pull(1, 1); len(got) != 1 {
		t.Fatalf("pulled %v", got)
	}
	r.add("b", 0)
	r.add("c", 0)
	r.turn()
	limit := func() {
		r.topic(1, func(p *timer.Policy) { pulled(p); p.Concurrency = 1 })
		r.turn()
	}
	limit()
	if got := r.pull(1, 1); len(got) != 0 || r.held() != 1 {
		t.Errorf("pulled %v, and %d leases count", got, r.held())
	}
	r.topic(1, pulled)
	r.pass(LimitPoll)
	if got := r.pull(1, 1); len(got) != 1 {
		t.Errorf("without a limit: pulled %v", got)
	}
	limit()
	if got := r.pull(1, 1); len(got) != 0 || r.held() != 2 {
		t.Errorf("limited again: pulled %v, and %d leases count", got, r.held())
	}
	d := r.table.Due(a)
	r.apply(func(b *table.Batch) {
		b.Outcome(&table.Outcome{Handle: a, Seq: d.Seq, Fence: d.Fence, Kind: table.Ack})
	})
	r.Keys.Review(a)
	if r.held() != 1 {
		t.Errorf("%d leases count after an ack", r.held())
	}
}

// TestLimitIsLearnedLate: a new leader learns of a topic, or of its limit, after its leadership has
// begun. Leases of former leaders count.
func TestLimitIsLearnedLate(t *testing.T) {
	for name, known := range map[string]bool{"topic": false, "limit": true} {
		r := newReplica(t)
		a := r.add("a", 0)
		d := r.table.Due(a)
		r.takeover(table.NewIncarnation(otherNode, 1))
		r.apply(func(b *table.Batch) { b.Lease(15_000, a, d.Seq, d.Rev) })
		r.takeover(table.NewIncarnation(ownNode, 1))
		r.End()
		if !known {
			delete(r.topics, 1)
		}
		r.Begin()
		r.turn()
		r.topic(1, limited(1))
		r.add("b", 0)
		r.turn()
		if got := r.called(); got != "" || r.held() != 1 {
			t.Errorf("%s: calls of %q run, and %d leases count", name, got, r.held())
		}
	}
}

// TestPermitIsRefused: a lease that the limit granted, but whose receiver is shut, is kept for the
// topic's next timer.
func TestPermitIsRefused(t *testing.T) {
	r := newReplica(t)
	r.topic(1, limited(1))
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Second}
	r.add("a", 0)
	r.turn()
	if r.held() != 0 {
		t.Errorf("%d leases count", r.held())
	}
	delete(r.verdicts, "http://a")
	r.pass(time.Second)
	r.want("a")
	if r.held() != 1 {
		t.Errorf("%d leases count", r.held())
	}
}

// TestLimitOfANewLeader: a new leader counts the leases of former ones before it leases any itself.
func TestLimitOfANewLeader(t *testing.T) {
	r := newReplica(t)
	r.topic(1, limited(1))
	a := r.add("a", 0)
	d := r.table.Due(a)
	r.takeover(table.NewIncarnation(otherNode, 1))
	r.apply(func(b *table.Batch) { b.Lease(15_000, a, d.Seq, d.Rev) })
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.End()
	r.Begin()
	b := r.add("b", 0)
	r.turn()
	if r.want(""); r.held() != 1 {
		t.Errorf("%d leases count", r.held())
	}
	r.waits(b, timer.WaitConcurrency)
	r.ended[table.NewIncarnation(otherNode, 1)] = true
	r.ScanAgain()
	r.turn()
	r.want("a")
	r.end(delivery.Outcome{Status: 200})
	r.want("b")
}

// TestConsumersLeasesCountOn: after a leadership consumers' leases count until they are surely
// over.
func TestConsumersLeasesCountOn(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Concurrency, p.Pull = 1, true })
	h := r.add("a", 0)
	r.turn()
	if got := r.pull(1, 5); len(got) != 1 || r.held() != 1 {
		t.Fatalf("pulled %v, %d count", got, r.held())
	}
	r.End()
	if r.turn(); r.held() != 1 {
		t.Error("the lease counts no more")
	}
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	if r.turn(); r.held() != 1 {
		t.Errorf("%d leases count", r.held())
	}
	r.End()
	r.gone = true
	r.pass(29 * time.Second)
	if r.held() != 1 {
		t.Errorf("%d leases count", r.held())
	}
	r.pass(2 * time.Second)
	if r.held() != 0 {
		t.Errorf("%d leases count after the end", r.held())
	}
	r.state(h, timer.Leased)
}

// TestConsumersLeasesCountOnInANewReplica: a replica that is made again, as after a memory fault,
// has no timers at first. It does not know that a consumer's lease is over.
func TestConsumersLeasesCountOnInANewReplica(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Concurrency, p.Pull = 1, true })
	r.add("a", 0)
	r.turn()
	r.pull(1, 1)
	r.End()
	whole := r.table
	r.table = table.New(1, startMs)
	r.SetTable(r.table)
	r.pass(time.Second)
	if r.held() != 1 {
		t.Errorf("%d leases count while the replica is empty", r.held())
	}
	r.table = whole // it has caught up
	r.SetTable(r.table)
	r.pass(time.Second)
	if r.held() != 1 {
		t.Errorf("%d leases count", r.held())
	}
	r.command(timer.Command{Kind: timer.Cancel, ID: "a"})
	r.apply(func(b *table.Batch) {
		d := r.table.Due(1)
		b.Outcome(&table.Outcome{Handle: 1, Seq: d.Seq, Fence: d.Fence, Kind: table.Ack})
	})
	if r.pass(time.Second); r.held() != 0 {
		t.Errorf("%d leases count after the end", r.held())
	}
}

// TestNextLeaderMayExtend: while this replica has not seen the end of a consumer's lease, it counts
// for LeftGrace longer.
func TestNextLeaderMayExtend(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Concurrency, p.Pull = 1, true })
	r.add("a", 0)
	r.turn()
	r.pull(1, 1)
	r.End()
	r.pass(30*time.Second + LeftGrace - time.Second)
	if r.held() != 1 {
		t.Errorf("%d leases count", r.held())
	}
	r.pass(2 * time.Second)
	if r.held() != 0 {
		t.Errorf("%d leases count after the end", r.held())
	}
}

// TestTokenReturnedLate: a lease stays in the pipeline while its bucket fills up, and is then
// dropped. Its token does not come back on top of a full bucket: no more than the burst goes at
// once, of a key, of the timers without one, and of a topic. A token that has room comes back.
func TestTokenReturnedLate(t *testing.T) {
	for name, test := range map[string]struct {
		id  string
		set func(*timer.Policy)
	}{
		"key":     {"{k}%d", perKey(timer.PerKey{Rate: rate(10, 3)})},
		"keyless": {"%d", perKey(timer.PerKey{Rate: rate(10, 3)})},
		"topic":   {"%d", func(p *timer.Policy) { p.Rate = rate(10, 3) }},
	} {
		for later, want := range map[time.Duration]int{time.Second: 3, 0: 3} {
			r := newReplica(t)
			r.topic(1, test.set)
			r.now.Mono += time.Minute // the buckets are full
			r.add(fmt.Sprintf(test.id, 0), 0)
			r.Run()
			var b table.Batch
			b.Reset(r.now.WallMs, 1, 1)
			r.items = nil
			r.Lease(&b)
			dropped := r.items
			if len(dropped) != 1 {
				t.Fatalf("%s: %d leases are proposed", name, len(dropped))
			}
			r.now.Mono += later
			for i := range 5 {
				r.add(fmt.Sprintf(test.id, i+1), 0)
			}
			r.turn()
			dropped[0](nil, false)
			r.turn()
			if n := len(r.calls); n != want {
				t.Errorf("%s, dropped after %s: %d start at once, want %d", name, later, n, want)
			}
		}
	}
}

// TestConsumersAreToldOfPlaces: where a limit lets fewer timers of a pulled topic go than are ready,
// so many are announced, and so many are candidates. Else all consumers that wait are woken for one
// place.
func TestConsumersAreToldOfPlaces(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"concurrency": limited(3),
		"rate":        func(p *timer.Policy) { p.Rate = rate(0.01, 3) },
	} {
		r := newReplica(t)
		r.topic(1, func(p *timer.Policy) { pulled(p); set(p) })
		for i := range 10 {
			r.add(fmt.Sprint(i), 0)
		}
		r.turn()
		for _, want := range []int{2, 1} {
			r.pull(1, 1)
			r.Tick()
			if n := len(TopCandidates([]*Scheduler{r.Scheduler}, 1, 10)); n != want || r.ready[1] != want {
				t.Errorf("%s: %d are announced, and %d candidates, want %d", name, r.ready[1], n, want)
			}
		}
	}
}

// TestPlaceOfATopicThatComesToBePulled: a shard that waits for its topic's rate, as the topic comes
// to be pulled, must not be granted a place that no consumer asks it for: others would wait for
// that.
func TestPlaceOfATopicThatComesToBePulled(t *testing.T) {
	both := func(p *timer.Policy) {
		p.Concurrency, p.Rate, p.Serial, p.MinBackoffMs = 1, rate(1, 1), true, time.Hour.Milliseconds()
	}
	s := newShards(t, 2, both)
	s[1].add("kept", 0) // its queue is kept as long as it blocks its key
	s.turn()
	s[1].end(delivery.Outcome{Status: 500})
	waits := s[1].add("a", 0)
	s.turn()
	s[1].waits(waits, timer.WaitRate)
	s.topic(func(p *timer.Policy) { both(p); p.Pull = true })
	s[1].command(timer.Command{Kind: timer.Cancel, ID: "a"})
	s.turn()
	s[0].add("b", 0)
	for range 50 {
		s.pass(100 * time.Millisecond)
		if len(s[0].pull(1, 1)) > 0 {
			return
		}
	}
	t.Errorf("no consumer gets the place: %+v", s[0].cfg.Limiters.Inspect())
}

// countedShares counts the questions for this node's part of limits.
type countedShares struct {
	Unlimited
	asked int
}

func (c *countedShares) Concurrency(_ *timer.Topic, n int, _ time.Duration) int {
	c.asked++
	return n
}

// TestTopicsAtTheirLimitsAskSeldom: topics that wait for places ask for them again by themselves,
// as other nodes may have left some. How often they do does not grow with their number.
func TestTopicsAtTheirLimitsAskSeldom(t *testing.T) {
	asked := func(topics int) int {
		shares := &countedShares{}
		r := newReplica(t)
		r.cfg.Limiters = NewLimits(shares)
		for i := range topics {
			id := timer.TopicID(1 + i)
			r.topic(id, limited(1))
			for n := range 2 {
				r.add(fmt.Sprint(n), 0, func(c *timer.Command) { c.Topic = id })
			}
		}
		for len(r.calls) < topics {
			r.turn()
		}
		r.pass(time.Second)
		before := shares.asked
		for range 100 {
			r.pass(100 * time.Millisecond)
		}
		return shares.asked - before
	}
	few, many := asked(1_000), asked(4_000)
	if few == 0 || many > 3*few/2 {
		t.Errorf("asked %d times in ten seconds with a thousand topics, %d with four", few, many)
	}
}
