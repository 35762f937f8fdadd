package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// shards are replicas of several shards that one node leads.
type shards []*replica

func newShards(t *testing.T, n int, set func(*timer.Policy)) shards {
	return newShardsWith(t, n, NewLimits(nil), set)
}

func newManualShards(t *testing.T, n int, set func(*timer.Policy)) shards {
	return newShardsWith(t, n, NewManualLimits(), set)
}

func newShardsWith(t *testing.T, n int, limits *Limits, set func(*timer.Policy)) (s shards) {
	for range n {
		r := newReplica(t)
		r.cfg.Limiters = limits
		s = append(s, r)
	}
	s.topic(set)
	return s
}

func (s shards) topic(set func(*timer.Policy)) {
	for _, r := range s {
		r.topic(1, set)
	}
	s.turn()
}

// turn runs turns until no shard has anything left to do.
func (s shards) turn() {
	for range 3 * len(s) {
		for _, r := range s {
			r.turn()
		}
	}
}

func (s shards) pass(d time.Duration) {
	for ; d > 0; d -= 10 * time.Millisecond {
		for _, r := range s {
			r.pass(min(d, 10*time.Millisecond))
		}
		s.turn()
	}
}

// called is how many timers run.
func (s shards) called() (n int) {
	for _, r := range s {
		n += len(r.calls)
		for _, b := range r.batches {
			n += len(b.Jobs)
		}
	}
	return n
}

// end ends the first call of the first shard that has one. It returns the shard.
func (s shards) end() int {
	for i, r := range s {
		if len(r.calls) > 0 {
			r.end(delivery.Outcome{Status: 200})
			s.turn()
			return i
		}
	}
	return -1
}

// leftover checks that no limit counts anything any more.
func (s shards) leftover() {
	s[0].t.Helper()
	for id, l := range s[0].cfg.Limiters.Inspect() {
		if l.Leases != 0 || l.Waiting != 0 {
			s[0].t.Errorf("limit of %#x: %+v", id, l)
		}
	}
}

// TestTimersWithoutAKeyShareOne: the timers of all shards that have no key share one: so many of
// them run at once, and shards take turns. Those with a key are not held up.
func TestTimersWithoutAKeyShareOne(t *testing.T) {
	s := newShards(t, 4, perKey(timer.PerKey{Concurrency: 2}))
	var last timer.Handle
	for i := range 5 {
		for _, r := range s {
			last = r.add(fmt.Sprint(i), int64(i)-9)
		}
	}
	s[3].add("{k}a", -1)
	s.turn()
	if n := s.called(); n != 3 {
		t.Fatalf("%d run at once", n)
	}
	s[3].waits(last, timer.WaitKey)
	s[3].end(delivery.Outcome{Status: 200})
	s.turn()
	ended := map[int]int{}
	for i := range 20 {
		if n, most := s.called(), min(2, 20-i); n != most {
			t.Fatalf("%d run at once, %d are left", n, 20-i)
		}
		if ended[s.end()]++; i == 9 && (len(ended) < 4) {
			t.Errorf("after ten calls %v of the shards had some", ended)
		}
	}
	s.leftover()
	for _, r := range s {
		r.leftover()
	}
}

// TestRateWithoutAKey: the timers of all shards that have no key start at one rate.
func TestRateWithoutAKey(t *testing.T) {
	s := newShards(t, 4, perKey(timer.PerKey{Rate: rate(10, 2)}))
	var last timer.Handle
	for i := range 3 {
		for _, r := range s {
			last = r.add(fmt.Sprint(i), 0)
		}
	}
	s.turn()
	s[3].waits(last, timer.WaitKeyRate)
	for i := range 11 {
		if n := s.called(); n != min(2+i, 12) {
			t.Fatalf("%d starts within %d00 ms", n, i)
		}
		s.pass(101 * time.Millisecond)
	}
	for s.end() >= 0 {
	}
	s.leftover()
}

// TestRateWithoutAKeyOfANewLeader: a new leader does not know what was started before, so it begins
// without a token.
func TestRateWithoutAKeyOfANewLeader(t *testing.T) {
	s := newShards(t, 2, perKey(timer.PerKey{Rate: rate(10, 4)}))
	for _, r := range s {
		for i := range 4 {
			r.add(fmt.Sprint(i), 10)
		}
		r.End()
		r.turn()
	}
	for _, r := range s {
		r.takeover(table.NewIncarnation(ownNode, 1))
		r.Begin()
	}
	s.pass(10 * time.Millisecond)
	for i := range 4 {
		if n := s.called(); n != i {
			t.Fatalf("%d starts within %d00 ms", n, i)
		}
		s.pass(100 * time.Millisecond)
	}
}

// TestLimitsOnAManualClock: where time passes from instant to instant nobody polls. A shard that was
// refused by the limit at once comes to its turn when the rate allows one more, at that instant: as
// timers without a key, and as a topic.
func TestLimitsOnAManualClock(t *testing.T) {
	for name, policy := range map[string]func(*timer.Policy){
		"key": perKey(timer.PerKey{Concurrency: 1, Rate: rate(0.01, 1)}),
		"topic": func(p *timer.Policy) {
			p.Concurrency, p.Rate = 1, rate(0.01, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newManualShards(t, 2, policy)
			for i := range 2 {
				for _, r := range s {
					r.add(fmt.Sprint(i), 0)
				}
			}
			s.turn()
			for n := range 4 {
				if s.called() != 1 {
					t.Fatalf("%d run after %d", s.called(), n)
				}
				s.end()
				if s.called() != 0 {
					t.Fatalf("the rate lets %d go at once", s.called())
				}
				next := min(s[0].NextWake(), s[1].NextWake()) - s[0].now.WallMs
				if n < 3 && (next <= 0 || next > 100_001) {
					t.Fatalf("the next turn is in %d ms", next)
				}
				s.pass(100_010 * time.Millisecond)
			}
			s.leftover()
		})
	}
}

// TestTurnOnAManualClockIsPassedOn: a shard that cannot use the next token leaves it to the others.
func TestTurnOnAManualClockIsPassedOn(t *testing.T) {
	s := newManualShards(t, 3, perKey(timer.PerKey{Concurrency: 1, Rate: rate(0.01, 1)}))
	for _, r := range s {
		r.add("a", 0)
		r.turn()
	}
	s[1].verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: 10 * time.Hour}
	s[0].end(delivery.Outcome{Status: 200})
	s.turn()
	s.pass(101 * time.Second)
	if len(s[2].calls) != 1 {
		t.Error("the third shard has no turn")
	}
}

// TestPullWithoutAKey: consumers' leases of timers without a key count at the same limit, in the
// next leadership too.
func TestPullWithoutAKey(t *testing.T) {
	s := newShards(t, 2, perKey(timer.PerKey{Concurrency: 3}, func(p *timer.Policy) { p.Pull = true }))
	for i := range 5 {
		for _, r := range s {
			r.add(fmt.Sprint(i), -9)
		}
	}
	s.turn()
	if n := len(s[0].pull(1, 2)); n != 2 {
		t.Fatalf("pulled %d", n)
	}
	if n := len(s[1].pull(1, 9)); n != 1 {
		t.Fatalf("pulled %d", n)
	}
	s[0].End()
	s.turn()
	if n := len(s[1].pull(1, 9)); n != 0 {
		t.Fatalf("pulled %d while others hold all", n)
	}
	s[0].takeover(table.NewIncarnation(ownNode, 1))
	s[0].Begin()
	s.turn()
	if n := len(s[0].pull(1, 9)) + len(s[1].pull(1, 9)); n != 0 {
		t.Fatalf("pulled %d while others hold all", n)
	}
	h, _ := s[0].table.Lookup(1, "0")
	d := s[0].table.Due(h)
	s[0].apply(func(b *table.Batch) {
		b.Outcome(&table.Outcome{Handle: h, Seq: d.Seq, Fence: d.Fence, Kind: table.Ack})
	})
	s[0].Keys.Review(h)
	s.pass(200 * time.Millisecond)
	if n := len(s[0].pull(1, 9)) + len(s[1].pull(1, 9)); n != 1 {
		t.Errorf("pulled %d after one has ended", n)
	}
}

// TestSerialWithoutAKey: in a serial topic a timer without a key is one of its own.
func TestSerialWithoutAKey(t *testing.T) {
	r := newReplica(t)
	r.topic(1, perKey(timer.PerKey{Rate: rate(1, 1)}, serial))
	r.add("a", -2)
	r.add("b", -1)
	r.add("{k}c", -2)
	r.add("{k}d", -1)
	r.turn()
	r.want("a{k}cb")
}

// TestGrantWithoutAKeyIsReturned: a shard that cannot use what it was granted leaves it to others:
// its timers are cancelled, its receiver is shut, or its topic is paused.
func TestGrantWithoutAKeyIsReturned(t *testing.T) {
	policy := perKey(timer.PerKey{Concurrency: 1})
	for name, hinder := range map[string]func(r *replica){
		"cancelled": func(r *replica) { r.command(timer.Command{Kind: timer.Cancel, ID: "a"}) },
		"shut": func(r *replica) {
			r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
		},
		"full": func(r *replica) { r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.ReceiverFull} },
		"paused": func(r *replica) {
			r.topics[1] = &timer.Topic{ID: 1, Policy: r.topics[1].Policy, Paused: true}
			r.Refresh()
		},
		"leader": func(r *replica) { r.End() },
		"policy": func(r *replica) { r.topic(1, func(*timer.Policy) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShards(t, 3, policy)
			for _, r := range s {
				r.add("a", 0)
				r.turn()
			}
			if n := s.called(); n != 1 || len(s[0].calls) != 1 {
				t.Fatalf("%d run", n)
			}
			hinder(s[1])
			s[0].end(delivery.Outcome{Status: 200})
			s.pass(50 * time.Millisecond)
			if len(s[2].calls) != 1 {
				t.Error("the third shard has no turn")
			}
		})
	}
}

// TestGrantIsNotKeptInABusyTopic: it is returned soon, although other keys keep the topic busy.
func TestGrantIsNotKeptInABusyTopic(t *testing.T) {
	s := newShards(t, 2, perKey(timer.PerKey{Concurrency: 1}))
	for _, r := range s {
		r.add("a", 0, url("http://b"))
		r.turn()
	}
	s[1].verdicts["http://b"] = delivery.Verdict{Kind: delivery.ReceiverFull}
	s[0].end(delivery.Outcome{Status: 200})
	s[0].add("b", 0)
	for i := range 100 {
		s[1].add(fmt.Sprintf("{k%d}", i), int64(i)*10)
	}
	s.pass(300 * time.Millisecond)
	if len(s[0].calls) != 1 {
		t.Error("the other shard has no turn")
	}
}

// TestWithoutAKeyThroughTrouble: with random adds, cancels, ends, receivers that are shut, changes
// of the policy, lost entries and leaders of several shards, no more timers without a key run at
// once than their limit, nor do more start than their rate; at the end everything is done, and
// nothing is kept.
func TestWithoutAKeyThroughTrouble(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 78))
		var k timer.PerKey
		draw := func() func(*timer.Policy) {
			k = timer.PerKey{Fair: random.IntN(2) == 0}
			if random.IntN(3) > 0 {
				k.Concurrency = 1 + random.IntN(3)
			}
			if k.Concurrency == 0 || random.IntN(3) == 0 {
				k.Rate = rate(float64(5+random.IntN(20)), 1+random.IntN(3))
			}
			limit := random.IntN(3)
			var batch *timer.Batch
			if random.IntN(3) == 0 {
				batch = &timer.Batch{Max: 2 + random.IntN(3), WaitMs: int64(random.IntN(2)) * 300, ByKey: random.IntN(2) == 0}
			}
			return perKey(k, func(p *timer.Policy) {
				p.Batch = batch
				p.Concurrency, p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = 2*limit, 1000, 100, 300
			})
		}
		s := newShards(t, 3, draw())
		urls := []string{"http://a", "http://b", "http://c"}
		var starts []int64                // leased since the policy
		before := map[*activeLease]bool{} // leased before it
		granted := 0                      // in advance, as the policy came: these have no token
		leaders := 0
		seen := map[*table.Job]bool{}
		check := func(doing string) {
			runs, begun := 0, false
			look := func(r *replica, j *table.Job) {
				if _, keyed := timer.KeyOf(j.ID); keyed {
					return
				}
				if runs++; !seen[j] {
					seen[j] = true
					if f := r.Leases.byTimer[j.Handle]; !before[f] {
						starts, begun = append(starts, f.firedMs), true
					}
				}
			}
			for _, r := range s {
				for _, c := range r.calls {
					look(r, &c.Job)
				}
				for _, b := range r.batches {
					for i := range b.Jobs {
						look(r, &b.Jobs[i])
					}
				}
			}
			if k.Concurrency > 0 && runs > k.Concurrency && begun { // those that ran before may be more
				t.Fatalf("seed %d, %s: %d at once, %+v", seed, doing, runs, k)
			}
			slices.Sort(starts)
			for i, at := range starts {
				for n, later := range starts[i:] {
					// A new leader may find a part of the limit that was not used.
					most := float64(k.Rate.Burst*(1+leaders)+granted) + k.Rate.PerSecond*float64(later-at+10)/1000 + 0.01
					if k.Rate.PerSecond > 0 && float64(n+1) > most {
						t.Fatalf("seed %d, %s: %d starts within %d ms, %+v %v", seed, doing, n+1, later-at, k, starts)
					}
				}
			}
		}
		end := func(r *replica, o delivery.Outcome) {
			if len(r.batches) > 0 {
				r.endBatch(o)
			} else if len(r.calls) > 0 {
				r.end(o)
			}
		}
		for step := range 100 {
			r, doing := s[random.IntN(3)], ""
			switch n := random.IntN(20); {
			case n < 9:
				key := ""
				if random.IntN(4) == 0 {
					key = "{k}"
				}
				r.add(fmt.Sprint(key, step), random.Int64N(500)-300, url(urls[random.IntN(3)]), priority(uint8(random.IntN(3))))
				doing = "add"
			case n < 13:
				o := delivery.Outcome{Status: 200}
				if random.IntN(4) == 0 {
					o = delivery.Outcome{Err: "timeout"}
				}
				end(r, o)
				doing = "end"
			case n == 13:
				r.command(timer.Command{Kind: timer.Cancel, ID: fmt.Sprint(random.IntN(step + 1))})
				doing = "cancel"
			case n == 14:
				u := urls[random.IntN(3)]
				if r.verdicts[u].Kind == delivery.Granted {
					r.verdicts[u] = delivery.Verdict{Kind: delivery.Shut, RetryIn: 200 * time.Millisecond}
				} else {
					delete(r.verdicts, u)
				}
				doing = "shut"
			case n == 15 && random.IntN(4) == 0:
				starts, leaders, granted = nil, 0, 0
				for _, l := range s[0].cfg.Limiters.topics {
					granted += l.lent
				}
				for _, r := range s {
					for _, f := range r.Leases.byTimer {
						before[f] = true
					}
				}
				s.topic(draw())
				doing = "policy"
			case n == 16:
				r.dropping = true
				r.Run()
				r.entry()
				r.dropping = false
				doing = "lost entry"
			case n == 17:
				r.End()
				r.takeover(table.NewIncarnation(ownNode, 1))
				r.Begin()
				leaders++
				doing = "leader"
			default:
				s.pass(time.Duration(10*random.IntN(30)) * time.Millisecond)
				doing = "pass"
			}
			s.turn()
			check(doing)
		}
		left := func() (n int64) {
			for _, r := range s {
				c := r.table.Counts(1)
				n += c.Scheduled + c.Leased
			}
			return n
		}
		for _, r := range s {
			clear(r.verdicts)
		}
		for n := 0; left() > 0; n++ {
			if n == 3000 {
				t.Fatalf("seed %d: %d are not done, %+v", seed, left(), k)
			}
			for _, r := range s {
				end(r, delivery.Outcome{Status: 200})
			}
			s.pass(10 * time.Millisecond)
			check("drain")
		}
		s.pass(time.Second)
		s.leftover()
		for _, r := range s {
			if r.permits != 0 {
				t.Fatalf("seed %d: %d permits are in use", seed, r.permits)
			}
			r.pass(5 * time.Second)
			for range 5 {
				r.Sweep()
			}
			r.leftover()
		}
		if t.Failed() {
			t.Fatalf("seed %d, %+v", seed, k)
		}
	}
}
