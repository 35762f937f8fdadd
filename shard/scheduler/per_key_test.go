package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

func perKey(k timer.PerKey, set ...func(*timer.Policy)) func(*timer.Policy) {
	return func(p *timer.Policy) {
		p.PerKey = &k
		for _, f := range set {
			f(p)
		}
	}
}

func rate(perSecond float64, burst int) timer.Rate {
	return timer.Rate{PerSecond: perSecond, Burst: burst}
}

func priority(n uint8) func(*timer.Command) { return func(c *timer.Command) { c.Spec.Priority = n } }
func weight(n uint8) func(*timer.Command)   { return func(c *timer.Command) { c.Spec.Weight = n } }
func url(u string) func(*timer.Command)     { return func(c *timer.Command) { c.Spec.Callback.URL = u } }

// leftover checks that nothing of a topic's keys is kept.
func (r *replica) leftover() {
	r.t.Helper()
	if i := r.View.Inspect(); i.KeyRefs != 0 || i.Topics[1].Keys != 0 || i.Topics[1].InLine != 0 {
		r.t.Errorf("it keeps %+v", i)
	}
}

// TestConcurrencyOfAKey: so many of a key run at once, by priority, then due time; one that fails
// does not block the others.
func TestConcurrencyOfAKey(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Concurrency: 2}))
	r.add("{k}a", -9)
	r.add("{k}b", -8)
	c := r.add("{k}c", -7)
	r.add("{k}d", -7, priority(9))
	r.add("{l}e", -6)
	r.add("f", -5)
	r.add("g", -4)
	h := r.add("h", -3) // those without a key share one
	r.turn()
	r.want("{k}a{k}d{l}efg")
	r.waits(c, timer.WaitKey)
	r.waits(h, timer.WaitKey)
	var sum [1]timer.Counts
	r.View.Count([]timer.TopicID{1}, sum[:])
	if got := sum[0].Waiting[timer.WaitKey]; got != 3 {
		t.Errorf("%d wait for their key", got)
	}
	r.end(delivery.Outcome{Err: "timeout"})
	r.want("{k}d{l}efg{k}b")
	for range 7 {
		r.end(delivery.Outcome{Status: 200})
	}
	r.pass(time.Second)
	r.want("{k}a")
	r.end(delivery.Outcome{Status: 200})
	r.leftover()
}

// TestRateOfAKey: a key has so many starts a second, each key its own, and a burst in one instant.
// What a key has not used up is not kept for longer than its burst.
func TestRateOfAKey(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){"per key": func(*timer.Policy) {}, "serial": serial} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.topic(1, perKey(timer.PerKey{Rate: rate(5, 2)}, set))
			for i := range 6 {
				r.add(fmt.Sprintf("{k}%d", i), 0)
				r.add(fmt.Sprintf("{l}%d", i), 0)
			}
			starts := func() (k int) {
				for range 4 {
					r.turn()
					for len(r.calls) > 0 {
						if c := r.end(delivery.Outcome{Status: 200}); strings.HasPrefix(c.Job.ID, "{k}") {
							k++
						}
					}
				}
				return k
			}
			if n := starts(); n != 2 {
				t.Fatalf("%d starts at once", n)
			}
			last, _ := r.table.Lookup(1, "{k}5")
			r.waits(last, timer.WaitKeyRate)
			var sum [1]timer.Counts
			if r.View.Count([]timer.TopicID{1}, sum[:]); sum[0].Waiting[timer.WaitKeyRate] != 8 {
				t.Errorf("they wait for %v", sum[0].Waiting)
			}
			for range 4 {
				for i := range 2 {
					r.pass(101 * time.Millisecond)
					if n := starts(); n != i {
						t.Fatalf("%d starts after %d00 ms", n, i+1)
					}
				}
			}
			r.Sweep()
			if n := r.View.Inspect().Topics[1].Keys; n != 2 {
				t.Errorf("%d keys with buckets that are not full", n)
			}
			r.pass(time.Second)
			r.Sweep()
			r.leftover()
		})
	}
}

// TestUnusedToken: a lease whose call never started costs no token.
func TestUnusedToken(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Rate: rate(0.01, 1)}))
	r.dropping = true
	r.add("{k}a", 0)
	r.Run()
	r.entry()
	r.dropping = false
	r.turn()
	r.want("{k}a")
}

// TestTokenThatWasNotTaken: a lease from before a rate gives no token back that it has not taken.
func TestTokenThatWasNotTaken(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"of the key":   perKey(timer.PerKey{Rate: rate(0.001, 1)}),
		"of the topic": func(p *timer.Policy) { p.Rate = rate(0.001, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			a := r.add("{k}a", 15)
			r.turn()
			r.state(a, timer.Leased)
			r.topic(1, set)
			r.add("{k}b", 0)
			r.turn()
			r.want("{k}b")
			r.pass(time.Second)
			r.want("{k}b")
			r.state(a, timer.Scheduled)
		})
	}
}

// TestBucketOfANewLeader: a new leader does not know what the one before has spent, and begins with
// nothing.
func TestBucketOfANewLeader(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Rate: rate(1, 3)}))
	for i := range 9 {
		r.add(fmt.Sprintf("{k}%d", i), 0)
	}
	r.turn()
	if len(r.calls) != 3 {
		t.Fatalf("%d calls", len(r.calls))
	}
	r.End()
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.pass(900 * time.Millisecond)
	if len(r.calls) != 3 {
		t.Fatalf("%d calls before the first token", len(r.calls))
	}
	r.pass(200 * time.Millisecond)
	if len(r.calls) != 4 {
		t.Fatalf("%d calls after the first token", len(r.calls))
	}
}

// TestLeasesOfANewLeader: leases that former leaders took count for their keys.
func TestLeasesOfANewLeader(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Concurrency: 2}))
	for i := range 4 {
		r.add(fmt.Sprintf("{k}%d", i), int64(i-9))
	}
	r.turn()
	r.want("{k}0{k}1")
	r.End()
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	r.want("{k}0{k}1")
	r.end(delivery.Outcome{Status: 200})
	r.want("{k}1{k}2")
	r.end(delivery.Outcome{Status: 200})
	r.want("{k}2{k}3")
}

// TestKeysGetALimitAfterATakeover: leases of before count, also where the topic's keys had a rate
// alone as this leader began, and no timer of it was due since.
func TestKeysGetALimitAfterATakeover(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Rate: rate(100, 100)}, pulled))
	a := r.add("{k}a", 0)
	r.turn()
	if got := r.pull(1, 1); !slices.Equal(got, []timer.Handle{a}) {
		t.Fatalf("pulled %v", got)
	}
	r.End()
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	r.topic(1, perKey(timer.PerKey{Rate: rate(100, 100), Concurrency: 1}, pulled))
	b := r.add("{k}b", 0)
	r.pass(time.Second)
	if got := r.pull(1, 1); len(got) != 0 {
		t.Errorf("pulled %v while a consumer has another timer of the key", got)
	}
	r.waits(b, timer.WaitKey)
}

// TestLimitsOfKeysChange: leases of before count; with a higher limit more go, without one all.
func TestLimitsOfKeysChange(t *testing.T) {
	r := newReplica(t)
	for i := range 6 {
		r.add(fmt.Sprintf("{k}%d", i), int64(i-9))
		if i == 1 {
			r.turn()
			r.topic(1, perKey(timer.PerKey{Concurrency: 2, Fair: true}))
		}
	}
	r.turn()
	r.want("{k}0{k}1")
	r.topic(1, perKey(timer.PerKey{Concurrency: 3}))
	r.turn()
	r.want("{k}0{k}1{k}2")
	r.end(delivery.Outcome{Status: 200})
	r.want("{k}1{k}2{k}3")
	r.topic(1, func(*timer.Policy) {})
	r.turn()
	if len(r.calls) != 5 {
		t.Errorf("calls of %q", r.called())
	}
	for range 5 {
		r.end(delivery.Outcome{Status: 200})
	}
	r.Sweep()
	r.leftover()
}

// TestCallsRunWhileTheirKeysChange: calls that run count for their keys by another policy, too.
func TestCallsRunWhileTheirKeysChange(t *testing.T) {
	one := perKey(timer.PerKey{Concurrency: 1})
	for name, policies := range map[string][]func(*timer.Policy){
		"serial, with a rate":     {serial, perKey(timer.PerKey{Rate: rate(100, 100)}, serial)},
		"two, one":                {perKey(timer.PerKey{Concurrency: 2}), one},
		"serial, one":             {serial, one},
		"one, serial":             {one, serial},
		"a rate, one":             {perKey(timer.PerKey{Rate: rate(100, 100)}), one},
		"serial, nothing, serial": {serial, func(*timer.Policy) {}, serial},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.topic(1, policies[0])
			r.add("{k}a", -9)
			r.turn()
			for _, set := range policies[1:] {
				r.topic(1, set)
				r.turn()
			}
			b := r.add("{k}b", -8)
			r.pass(time.Second)
			r.want("{k}a")
			r.waits(b, timer.WaitKey)
			r.end(delivery.Outcome{Status: 200})
			r.pass(time.Second)
			r.want("{k}b")
			r.end(delivery.Outcome{Status: 200})
			r.Sweep()
			r.leftover()
		})
	}
}

// TestKeysTakeTurns: what is due goes in turn by key, by weight, and within a key by priority.
func TestKeysTakeTurns(t *testing.T) {
	for _, fair := range []bool{true, false} {
		r := newReplica(t)
		r.topic(1, perKey(timer.PerKey{Fair: fair}, func(p *timer.Policy) { p.Concurrency = 1 }))
		r.add("{z}", -100)
		r.turn()
		for i := range 10 {
			r.add(fmt.Sprintf("{a}%d", i), int64(i)-50, weight(2))
		}
		for i := range 4 {
			r.add(fmt.Sprintf("{b}%d", i), int64(i)-20, priority(uint8(i)))
		}
		r.turn()
		var got, order string
		for r.end(delivery.Outcome{Status: 200}); len(r.calls) > 0; r.turn() {
			id := r.end(delivery.Outcome{Status: 200}).Job.ID
			got += id[1:2]
			if id[1] == 'b' {
				order += id[3:]
			}
		}
		if fair && strings.Count(got[:6], "b") != 2 || !fair && got != "bbb"+"aaaaaaaaaa"+"b" || len(got) != 14 {
			t.Errorf("fair %t: turns %s", fair, got)
		}
		if order != "3210" {
			t.Errorf("b in the order %s", order)
		}
		r.leftover()
	}
}

// TestNewKeyNeedNotWait: the first timer of a key goes next, however many another key has.
func TestNewKeyNeedNotWait(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Fair: true}, func(p *timer.Policy) { p.Concurrency = 1 }))
	for i := range 2000 {
		r.add(fmt.Sprintf("{a}%d", i), -5000)
	}
	r.turn()
	for i := range 20 {
		id := fmt.Sprintf("{b}%d", i)
		r.add(id, 0)
		r.turn()
		r.end(delivery.Outcome{Status: 200})
		if r.called() != id && r.end(delivery.Outcome{Status: 200}) != nil && r.called() != id {
			t.Fatalf("%s waits behind %s", id, r.called())
		}
	}
}

// TestKeyWithReceiversThatAreDown: they do not hold up its timers for others, with a limit of the
// key and without one.
func TestKeyWithReceiversThatAreDown(t *testing.T) {
	for _, k := range []timer.PerKey{{Fair: true}, {Concurrency: 1}, {Concurrency: 1, Fair: true, Rate: rate(100, 1)}} {
		r := newReplica(t)
		r.topic(1, perKey(k))
		down := 3 * lanesAtOnce
		for i := range down {
			r.verdicts[fmt.Sprint("http://down", i)] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
			r.add(fmt.Sprintf("{k}down%d", i), -20, url(fmt.Sprint("http://down", i)))
			r.add(fmt.Sprintf("{k}more%d", i), -20, url(fmt.Sprint("http://down", i)))
		}
		r.add("{k}a", -2)
		r.add("{k}b", -1)
		r.turn()
		for range 20 {
			r.pass(100 * time.Millisecond)
			for len(r.calls) > 0 {
				r.end(delivery.Outcome{Status: 200})
			}
		}
		if n := r.table.Counts(1).Scheduled; n != int64(2*down) {
			t.Errorf("%+v: %d are not done", k, n)
		}
		for i := range down {
			for _, id := range []string{"{k}down", "{k}more"} {
				r.command(timer.Command{Kind: timer.Cancel, ID: fmt.Sprint(id, i)})
			}
		}
		r.pass(time.Second)
		r.Sweep()
		r.leftover()
	}
}

// TestKeysWaitAtTheirReceiver: a shard whose keys take turns waits at a full receiver for as many
// calls as it could use before it asks again, by their weights; any other for one. What it cannot
// use any more is given to others.
func TestKeysWaitAtTheirReceiver(t *testing.T) {
	for _, f := range []struct {
		keys, each int
		weight     uint8
		policy     func(*timer.Policy)
		want       int
	}{
		{9, 5, 1, perKey(timer.PerKey{Fair: true}), 45},
		{30, 5, 1, perKey(timer.PerKey{Fair: true}), mostAhead},
		{1, 50, 1, perKey(timer.PerKey{Fair: true}), turnsAhead},
		{1, 50, 3, perKey(timer.PerKey{Fair: true}), 3 * turnsAhead},
		{1, 50, 1, perKey(timer.PerKey{Fair: true, Concurrency: 1}), turnsAhead},
		{1, 3, 100, perKey(timer.PerKey{Fair: true}), 3},
		{9, 5, 1, perKey(timer.PerKey{Concurrency: 1}), 1},
		{9, 5, 1, func(*timer.Policy) {}, 1},
		{9, 5, 1, perKey(timer.PerKey{Fair: true}, func(p *timer.Policy) { p.Batch = &timer.Batch{Max: 2} }), 5},
	} {
		r := newReplica(t)
		r.topic(1, f.policy)
		r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.ReceiverFull}
		for i := range f.keys * f.each {
			r.add(fmt.Sprintf("{%d}%d", i%f.keys, i), -10, func(c *timer.Command) { c.Spec.Weight = f.weight })
		}
		r.turn()
		if len(r.waiters) != f.want {
			t.Errorf("%d keys with %d timers each wait for %d calls, want %d", f.keys, f.each, len(r.waiters), f.want)
		}
		r.permits += len(r.waiters)
		for _, w := range r.waiters[:len(r.waiters)-1] {
			w.Receiver.Granted(permit{r, "http://a"})
		}
		r.turn()
		for i := range f.keys * f.each {
			r.command(timer.Command{Kind: timer.Cancel, ID: fmt.Sprintf("{%d}%d", i%f.keys, i)})
		}
		r.waiters[f.want-1].Receiver.Granted(permit{r, "http://a"})
		r.turn()
		for len(r.calls) > 0 {
			r.end(delivery.Outcome{Status: 200})
		}
		for len(r.batches) > 0 {
			r.endBatch(delivery.Outcome{Status: 200})
		}
		if r.pass(time.Second); r.permits != 0 {
			t.Errorf("%d permits are kept", r.permits)
		}
	}
}

// TestPartsOfShards: of what a topic may run at once, a shard has its part by the weights of the
// keys that have something due.
func TestPartsOfShards(t *testing.T) {
	l := NewLimits(nil)
	topic := &timer.Topic{Policy: timer.Policy{Concurrency: 1}}
	notified := map[*limiterUse]bool{}
	join := func() (p *limiterUse) {
		p = l.join(1, func() { notified[p] = true })
		return p
	}
	keys := map[*limiterUse]int{}
	first, one, many := join(), join(), join()
	keys[one], keys[many] = 1, 9
	if ok, _ := first.acquire(topic, 0, 1, 0); !ok {
		t.Fatal("refused")
	}
	for p, n := range keys {
		if ok, _ := p.acquire(topic, n, 1, 0); ok {
			t.Fatal("not refused")
		}
	}
	served := map[*limiterUse]int{}
	for range 100 {
		clear(notified)
		first.limit.end(0, 0, true)
		for p := range notified {
			served[p]++
			p.acquire(topic, keys[p], 1, 0) // uses the one that it was granted
			if ok, _ := p.acquire(topic, keys[p], 1, 0); ok {
				t.Fatal("two at once")
			}
		}
	}
	if served[one] != 10 || served[many] != 90 {
		t.Errorf("%d and %d of 100", served[one], served[many])
	}
}

// TestPartsOfShardsThatComeLate: many leases end between two turns of a shard. What it could use of
// them is its own, by its weights, and what it does not use is returned.
func TestPartsOfShardsThatComeLate(t *testing.T) {
	const leases, ended, rounds = 40, 10, 100
	l := NewLimits(nil)
	topic := &timer.Topic{Policy: timer.Policy{Concurrency: leases}}
	one, many := l.join(1, func() {}), l.join(1, func() {})
	weights, served := map[*limiterUse]int{one: 1, many: 9}, map[*limiterUse]int{}
	turn := func(p *limiterUse) {
		for {
			ok, _ := p.acquire(topic, weights[p], turnsAhead*weights[p], 0)
			if !ok {
				return
			}
			served[p]++
		}
	}
	turn(one)
	turn(many)
	clear(served)
	for range rounds {
		for range ended {
			one.limit.end(0, 0, true)
		}
		turn(one)
		turn(many)
	}
	if served[one]+served[many] != rounds*ended || served[one] < 98 || served[one] > 102 {
		t.Errorf("%d and %d, want 100 and 900", served[one], served[many])
	}
	one.limit.end(0, 0, true)
	many.release(0)
	one.release(0)
	if n := l.Held(1); n != leases-1 {
		t.Errorf("%d are counted, want %d", n, leases-1)
	}
}

// TestWeightsAcrossShards: keys have their turns by weight in whichever shards they live, also once
// the weight of one changes.
func TestWeightsAcrossShards(t *testing.T) {
	shards := []*replica{newReplica(t), newReplica(t)}
	shards[1].cfg.Limiters = shards[0].cfg.Limiters
	turns := func() {
		for range 3 {
			for _, r := range shards {
				r.turn()
			}
		}
	}
	for _, r := range shards {
		r.topic(1, perKey(timer.PerKey{Fair: true}, func(p *timer.Policy) { p.Concurrency = 1 }))
	}
	add := func(shard int, key string, from, to int, w uint8) {
		for i := from; i < to; i++ {
			shards[shard].add(fmt.Sprintf("{%s}%d", key, i), int64(i)-500, weight(w))
		}
	}
	add(0, "a", 0, 200, 1)
	add(0, "b", 0, 200, 3)
	add(1, "c", 0, 200, 6)
	turns()
	check := func(total, a, b, c int) {
		t.Helper()
		got := map[byte]int{}
		for range total {
			for _, r := range shards {
				if len(r.calls) > 0 {
					got[r.end(delivery.Outcome{Status: 200}).Job.ID[1]]++
					break
				}
			}
			turns()
		}
		for key, want := range map[byte]int{'a': a, 'b': b, 'c': c} {
			if off := got[key] - want; off < -2 || off > 2 {
				t.Errorf("%c has %d turns of %d, want %d", key, got[key], total, want)
			}
		}
	}
	check(100, 10, 30, 60)
	add(0, "b", 200, 201, 13)
	turns()
	check(100, 5, 65, 30)
	for len(shards[0].calls)+len(shards[1].calls) > 0 {
		check(1, 1, 1, 1)
	}
	if n := shards[0].cfg.Limiters.KeyWeights(1); n != 0 {
		t.Errorf("keys of weight %d are counted as due", n)
	}
}

// TestPullOfKeys: a pull gets what the limits of the keys leave, in turn by key.
func TestPullOfKeys(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Concurrency: 3, Fair: true}, func(p *timer.Policy) { p.Pull = true }))
	for i := range 9 {
		r.add(fmt.Sprintf("{a}%d", i), -9)
	}
	r.add("{b}0", -1)
	r.turn()
	if n := len(TopCandidates([]*Scheduler{r.Scheduler}, 1, 100)); n != 4 {
		t.Fatalf("%d candidates", n)
	}
	got := ""
	for _, h := range r.pull(1, 2) {
		got += r.table.ID(h)
	}
	if got != "{a}0{b}0" {
		t.Errorf("pulled %s", got)
	}
	if n := len(r.pull(1, 100)); n != 2 {
		t.Errorf("pulled %d", n)
	}
	last, _ := r.table.Lookup(1, "{a}8")
	r.waits(last, timer.WaitKey)
	if n := len(r.pull(1, 100)); n != 0 {
		t.Errorf("pulled %d", n)
	}
}

// TestCandidatesOnce: a timer that was let out more than once is a candidate once.
func TestCandidatesOnce(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Fair: true}, func(p *timer.Policy) { p.Pull = true }))
	for i := range 10 {
		r.add(fmt.Sprintf("{a}%d", i), -1, priority(uint8(i)))
		r.turn()
	}
	for taken := range 10 {
		if n := len(TopCandidates([]*Scheduler{r.Scheduler}, 1, 100)); n != 10-taken {
			t.Fatalf("%d candidates, want %d", n, 10-taken)
		}
		if n := len(r.pull(1, 1)); n != 1 {
			t.Fatalf("pulled %d", n)
		}
	}
}

// TestOutdatedEntriesOfLanes: cancelled timers leave the lanes of their keys.
func TestOutdatedEntriesOfLanes(t *testing.T) {
	for name, keys := range map[string]int{"long lane": 1, "many lanes": 600} {
		t.Run(name, func(t *testing.T) { checkOutdatedGo(t, keys, perKey(timer.PerKey{Fair: true})) })
	}
}

// TestTurnsOfOneInstant: keys whose timers share one due time in the future take turns by their
// weights, however many run at once. In a serial topic a key has no second one while its first
// runs.
func TestTurnsOfOneInstant(t *testing.T) {
	const timers, rounds = 300, 30
	for _, weights := range [][]uint8{{1, 1, 1, 1}, {1, 3}, {3, 1}, {1, 10}, {10, 1}, {1, 10, 5}} {
		for _, c := range []struct {
			most   int
			serial bool
		}{{1, false}, {4, false}, {1, true}} {
			r := newReplica(t)
			r.topic(1, perKey(timer.PerKey{Fair: true}, func(p *timer.Policy) { p.Concurrency, p.Serial = c.most, c.serial }))
			sum := 0
			for k, w := range weights {
				sum += int(w)
				for i := range timers {
					r.add(fmt.Sprintf("{%d}%d", k, i), 1200, weight(w))
				}
			}
			r.pass(1190 * time.Millisecond)
			r.pass(10 * time.Millisecond)
			got, calls := make([]float64, len(weights)), min(timers/2, rounds*sum)
			for range calls {
				got[r.end(delivery.Outcome{Status: 200}).Job.ID[1]-'0']++
			}
			for k, w := range weights {
				if want := float64(calls) * float64(w) / float64(sum); got[k] < 0.9*want-1 || got[k] > 1.1*want+1 {
					t.Errorf("weights %v, %+v: calls %v of %d", weights, c, got, calls)
					break
				}
			}
		}
	}
}

// TestRatedKeysAreForgotten: of many keys that have one timer each, those are kept whose buckets
// are not full, and about as many more. Sweeps are too seldom for that.
func TestRatedKeysAreForgotten(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Rate: rate(1, 1)}))
	const keys, inTurn, turns = 50_000, 500, 10 // so many turns until a bucket is full
	most := 0
	for i := range keys {
		r.add(fmt.Sprintf("{%d}", i), 0)
		if i%inTurn == inTurn-1 {
			r.pass(time.Second / turns)
			r.endAll()
			most = max(most, r.View.Inspect().Topics[1].Keys)
		}
	}
	if bound := 2 * (turns + 1) * inTurn; most > bound {
		t.Errorf("%d keys, want at most %d", most, bound)
	}
}

// TestDebtOfAKey: keys whose next timers come after the outcomes of their last ones have no more
// turns than one with a backlog. However many such keys there are, it has turns, and few are kept.
func TestDebtOfAKey(t *testing.T) {
	for _, c := range []struct{ others, waiting, calls, least, most int }{
		{2, 2, 90, 30, 30},
		{2 * keptDebts, 2 * keptDebts, 6 * keptDebts, 2, 4},
		{3 * keptDebts, 2, 6 * keptDebts, 4, 6},
	} {
		r := newReplica(t)
		r.topic(1, perKey(timer.PerKey{Fair: true}, func(p *timer.Policy) { p.Concurrency = 1 }))
		for i := range 100 {
			r.add(fmt.Sprintf("{a}%d", i), int64(i)-500)
		}
		r.turn()
		added, most, calls := 0, 0, map[string]int{}
		next := func() {
			r.add(fmt.Sprintf("{%d}%d", added%c.others, added), 0)
			added++
		}
		for range c.waiting {
			next()
		}
		r.turn()
		for range c.calls {
			key, _ := timer.KeyOf(r.end(delivery.Outcome{Status: 200}).Job.ID)
			if calls[key]++; key != "a" {
				next()
				r.turn()
			}
			most = max(most, r.View.Inspect().Topics[1].Keys)
		}
		if n := calls["a"]; n < c.least || n > c.most {
			t.Errorf("%+v: it has %d calls", c, n)
		}
		if most > 1+c.waiting+min(c.others, keptDebts) {
			t.Errorf("%+v: %d keys are kept", c, most)
		}
	}
}

// TestWeightsOfAHead: a timer that is let out counts as before, so the cluster is not asked.
func TestWeightsOfAHead(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Fair: true, Rate: rate(0.1, 1)}, func(p *timer.Policy) { p.Concurrency = 5 }))
	r.pass(10 * time.Second)
	r.add("{k}0", 0)
	r.add("{k}1", 0)
	r.turn()
	r.want("{k}0")
	q := r.Scheduler.topics.byID[1]
	l := q.keyRing.First().parked.First()
	use, weights := q.limiterUse, q.weights
	q.limiterUse = &limiterUse{} // of no limit: it cannot be asked
	r.Scheduler.Keys.promoteHead(l)
	q.limiterUse = use
	if q.weights != weights || q.weights != 1 {
		t.Errorf("the weight is %d, was %d", q.weights, weights)
	}
}

// TestTokenOfALostPull: a consumer's lease that never was costs no token, of its key or its topic.
func TestTokenOfALostPull(t *testing.T) {
	for _, lost := range []string{"dropped", "changed", "cancelled"} {
		r := newReplica(t)
		r.topic(1, perKey(timer.PerKey{Rate: rate(0.01, 1)}, func(p *timer.Policy) { p.Pull, p.Rate = true, rate(0.01, 1) }))
		r.add("{k}a", -1)
		r.add("{k}b", 0)
		r.turn()
		r.dropping = lost == "dropped"
		r.entry(func(b *table.Batch) {
			if n := len(r.propose(b, 1, 1, func(timer.Handle) {})); n != 1 {
				t.Fatalf("%d are pulled", n)
			}
			switch lost { // by an entry that is applied before
			case "changed":
				r.command(timer.Command{Kind: timer.Modify, ID: "{k}a", Patch: &timer.Patch{Priority: true}})
			case "cancelled":
				r.command(timer.Command{Kind: timer.Cancel, ID: "{k}a"})
			}
		})
		r.dropping = false
		r.turn()
		if n := len(r.pull(1, 2)); n != 1 {
			t.Errorf("%s: pulled %d", lost, n)
		}
	}
}

// TestTopicThatWasUnknown: of a topic that a leader did not know when it began, and that has no
// rate by key, nothing is kept: a rate that it gets later begins with full buckets. One that it has
// not learned of yet may have a rate, and begins with empty ones.
func TestTopicThatWasUnknown(t *testing.T) {
	begin := func(inMs int64) *replica {
		r := newReplica(t)
		r.add("{k}first", inMs)
		r.End()
		delete(r.topics, 1)
		r.takeover(table.NewIncarnation(ownNode, 1))
		r.Begin()
		r.turn()
		return r
	}
	rated := func(r *replica) {
		r.topic(1, perKey(timer.PerKey{Rate: rate(0.01, 3)}))
		r.turn()
		for i := range 3 {
			r.add(fmt.Sprint("{k}", i), 0)
		}
		r.turn()
	}
	r := begin(0)
	r.topic(1, func(*timer.Policy) {})
	r.turn()
	r.want("{k}first")
	r.end(delivery.Outcome{Status: 200})
	rated(r)
	r.want("{k}0{k}1{k}2")

	for _, given := range []bool{true, false} {
		r = begin(3_600_000)
		r.notGiven = !given
		r.Scheduler.topics.queue(1)
		r.Sweep()
		if n := len(r.Scheduler.Keys.unknown); given == (n > 0) {
			t.Errorf("given %t: %d unknown topics are kept", given, n)
		}
		if !given {
			rated(r)
			r.want("")
		}
	}
}
