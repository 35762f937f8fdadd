package scheduler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// TestKeysThroughTrouble: with random adds, cancels, ends, receivers that are shut and full,
// changes of the policy, pauses, lost entries and leaders, with calls of one timer and of many, no
// key has more timers at once in calls than its limit, nor more starts than its rate; at the end
// everything is done, and nothing is kept.
func TestKeysThroughTrouble(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 77))
		r := newReplica(t)
		most := 0 // calls of the topic
		draw := func() (k timer.PerKey, set func(*timer.Policy)) {
			switch random.IntN(4) {
			case 0:
				k.Concurrency = 1 + random.IntN(3)
			case 1:
				k.Rate = rate(float64(1+random.IntN(20)), 1+random.IntN(3))
			case 2:
				k.Concurrency, k.Rate = 1+random.IntN(2), rate(20, 2)
			}
			k.Fair = random.IntN(2) == 0
			serial := random.IntN(5) == 0 && k.Concurrency < 2
			most = 2 * random.IntN(3)
			var batch *timer.Batch
			if random.IntN(2) == 0 {
				batch = &timer.Batch{Max: 2 + random.IntN(3), WaitMs: int64(random.IntN(2)) * 300, ByKey: random.IntN(2) == 0}
			}
			policy := perKey(k, func(p *timer.Policy) {
				p.Batch = batch
				p.Serial, p.Concurrency, p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = serial, most, 1000, 100, 300
			})
			if serial {
				k.Concurrency = 1
			}
			return k, policy
		}
		k, set := draw()
		r.topic(1, set)
		urls := []string{"http://a", "http://b", "http://c"}
		starts := map[string][]int64{}    // of each key, leased since the policy
		before := map[*activeLease]bool{} // leased before it
		known, knownBatches, ids := 0, 0, []string{}
		check := func(doing string) {
			running, all := map[string]int{}, 0
			var begun []*table.Job
			for i, c := range r.calls {
				key, _ := timer.KeyOf(c.Job.ID)
				if running[key]++; i >= known {
					begun = append(begun, &c.Job)
				}
			}
			for i, b := range r.batches {
				for j := range b.Jobs {
					key, _ := timer.KeyOf(b.Jobs[j].ID)
					if running[key]++; i >= knownBatches {
						begun = append(begun, &b.Jobs[j])
					}
				}
			}
			known, knownBatches = len(r.calls), len(r.batches)
			for _, n := range running {
				all += n
			}
			if most > 0 && all > most && len(begun) > 0 {
				t.Fatalf("seed %d, %s: %d at once, where %d may", seed, doing, all, most)
			}
			for _, j := range begun { // those that ran before a change of the policy may be more
				key, _ := timer.KeyOf(j.ID)
				if n := running[key]; k.Concurrency > 0 && n > k.Concurrency {
					t.Fatalf("seed %d, %s: %d of %q at once, %+v", seed, doing, n, key, k)
				}
			}
			firedMs := func(j *table.Job) int64 { return r.Leases.byTimer[j.Handle].firedMs }
			slices.SortStableFunc(begun, func(a, b *table.Job) int { return cmp.Compare(firedMs(a), firedMs(b)) })
			for _, j := range begun {
				if before[r.Leases.byTimer[j.Handle]] {
					continue
				}
				key, _ := timer.KeyOf(j.ID)
				now := firedMs(j)
				starts[key] = append(starts[key], now)
				for i, at := range starts[key] {
					n := len(starts[key]) - i
					if may := float64(k.Rate.Burst) + k.Rate.PerSecond*float64(now-at)/1000 + 0.01; k.Rate.PerSecond > 0 && float64(n) > may {
						t.Fatalf("seed %d, %s: %d starts of %q within %d ms, %+v", seed, doing, n, key, now-at, k)
					}
				}
			}
		}
		end := func() {
			o := delivery.Outcome{Status: 200}
			if random.IntN(4) == 0 {
				o = delivery.Outcome{Err: "timeout"}
			}
			if n := len(r.batches); n > 0 && (len(r.calls) == 0 || random.IntN(2) == 0) {
				knownBatches--
				r.endBatch(o, r.batches[0].Jobs[random.IntN(len(r.batches[0].Jobs))].ID)
				return
			}
			known--
			r.end(o)
		}
		for step := range 120 {
			doing := ""
			switch n := random.IntN(20); {
			case n < 9:
				id := fmt.Sprintf("{k%d}%d", random.IntN(3), step)
				r.add(id, random.Int64N(500)-300, url(urls[random.IntN(3)]), priority(uint8(random.IntN(3))), weight(uint8(1+random.IntN(3))))
				ids = append(ids, id)
				doing = "add"
			case n < 14 && len(r.calls)+len(r.batches) > 0:
				end()
				doing = "end"
			case n < 16 && len(ids) > 0:
				r.command(timer.Command{Kind: timer.Cancel, ID: ids[random.IntN(len(ids))]})
				doing = "cancel"
			case n == 16:
				u := urls[random.IntN(3)]
				if r.verdicts[u].Kind == delivery.Granted {
					r.verdicts[u] = delivery.Verdict{Kind: delivery.Shut, RetryIn: 200 * time.Millisecond}
				} else {
					delete(r.verdicts, u)
				}
				doing = "shut"
			case n == 17 && random.IntN(4) == 0:
				k, set = draw()
				clear(starts)
				clear(before)
				for _, f := range r.Leases.byTimer {
					before[f] = true
				}
				r.topic(1, set)
				doing = "policy"
			case n == 18 && random.IntN(3) == 0:
				r.dropping = true
				r.Run()
				r.entry()
				r.dropping = false
				doing = "lost entry"
			case n == 19 && random.IntN(2) == 0:
				r.End()
				r.takeover(table.NewIncarnation(ownNode, 1))
				r.Begin()
				doing = "leader"
			default:
				r.pass(time.Duration(random.Int64N(300)) * time.Millisecond)
				doing = "pass"
			}
			r.turn()
			check(doing)
			if random.IntN(10) == 0 {
				r.Sweep()
			}
		}
		clear(r.verdicts)
		for range 3000 {
			if len(r.calls) > 0 {
				known--
				r.end(delivery.Outcome{Status: 200})
			} else if len(r.batches) > 0 {
				knownBatches--
				r.endBatch(delivery.Outcome{Status: 200})
			} else if r.table.Counts(1).Scheduled+r.table.Counts(1).Leased == 0 {
				break
			}
			r.pass(10 * time.Millisecond)
			check("drain")
		}
		if c := r.table.Counts(1); c.Scheduled+c.Leased > 0 {
			t.Fatalf("seed %d: %+v are not done, %+v", seed, c, k)
		}
		if r.permits != 0 {
			t.Fatalf("seed %d: %d permits are in use", seed, r.permits)
		}
		r.pass(5 * time.Second)
		for range 5 {
			r.Sweep()
		}
		r.leftover()
		if q := r.Scheduler.topics.byID[1]; q != nil && q.weights != 0 {
			t.Fatalf("seed %d: keys of weight %d are counted as due", seed, q.weights)
		}
	}
}
