package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// TestConsumersThroughTrouble: with random adds, cancels, pauses, pulls, reports, acks, nacks, leases
// that run out, changes of the policy, lost entries and leaders, no more timers of a key and of the
// topic are leased at once than their limits; at the end everything is done, and nothing is kept.
func TestConsumersThroughTrouble(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 79))
		pulls := random.IntN(2) == 0
		var ofKey, ofTopic int
		draw := func() func(*timer.Policy) {
			ofKey, ofTopic = random.IntN(3), 2*random.IntN(3)
			serial := ofKey == 1 && random.IntN(2) == 0
			fair := random.IntN(2) == 0
			return func(p *timer.Policy) {
				if ofKey > 0 || fair {
					p.PerKey = &timer.PerKey{Concurrency: ofKey, Fair: fair}
				}
				p.Pull, p.Report, p.Serial, p.Concurrency = pulls, !pulls, serial, ofTopic
				p.LeaseMs, p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = 2000, 1000, 100, 300
			}
		}
		r := newReplica(t)
		r.topic(1, draw())
		var ids []string
		known := map[timer.Handle]uint64{} // fences of the leases that were checked
		leased := func() (list []timer.Handle) {
			for h := timer.Handle(1); h <= r.table.LastHandle(); h++ {
				if r.table.Due(h).State == timer.Leased {
					list = append(list, h)
				}
			}
			return list
		}
		check := func(doing string) {
			t.Helper()
			list := leased()
			running, begun := map[string]int{}, map[string]bool{}
			for _, h := range list {
				key, _ := timer.KeyOf(r.table.ID(h))
				running[key]++
				if d := r.table.Due(h); known[h] < d.Fence {
					known[h], begun[key] = d.Fence, true
				}
			}
			if ofTopic > 0 && len(list) > ofTopic && len(begun) > 0 {
				t.Fatalf("seed %d, %s: %d are leased, %d may be", seed, doing, len(list), ofTopic)
			}
			for key := range begun {
				if n := running[key]; ofKey > 0 && n > ofKey {
					t.Fatalf("seed %d, %s: %d of %q are leased, %d may be", seed, doing, n, key, ofKey)
				}
			}
		}
		counted := func(doing string) {
			t.Helper()
			of := map[*keyQueue]int32{}
			for _, f := range r.Leases.byTimer {
				of[f.key]++
			}
			for _, c := range r.Keys.refs {
				if c.leased {
					of[c.lane.key]++
				}
			}
			for h, f := range r.Leases.byTimer {
				if c := r.Keys.refs[h]; c.leased && c.lane.key == f.key {
					t.Fatalf("seed %d, %s: timer %s counts twice for its key", seed, doing, r.table.ID(h))
				}
			}
			for _, q := range r.Scheduler.topics.list {
				for _, k := range q.keys {
					if k.leased != of[k] {
						t.Fatalf("seed %d, %s: a key counts %d leases, of %d", seed, doing, k.leased, of[k])
					}
				}
			}
		}
		update := func() {
			list := leased()
			if len(list) == 0 {
				return
			}
			h := list[random.IntN(len(list))]
			kind := timer.AckLease
			if n := random.IntN(4); n < 3 {
				kind = [...]timer.Kind{timer.NackLease, timer.ExtendLease, timer.ReturnLease}[n]
			}
			if r.table.Due(h).Holder != table.ByCall {
				r.update(h, kind, func(c *timer.LeaseUpdate) { c.LeaseMs = 1000 })
			}
		}
		accept := func() {
			if len(r.calls) > 0 {
				r.end(delivery.Outcome{Status: []int{202, 202, 200, 500}[random.IntN(4)]})
			}
		}
		for step := range 150 {
			doing := ""
			switch n := random.IntN(20); {
			case n < 6:
				id := fmt.Sprintf("{k%d}%d", random.IntN(3), step)
				if random.IntN(4) == 0 {
					id = fmt.Sprint(step)
				}
				r.add(id, random.Int64N(500)-300, priority(uint8(random.IntN(3))))
				ids = append(ids, id)
				doing = "add"
			case n < 9:
				doing = "accept"
				if accept(); pulls {
					r.pull(1, 1+random.IntN(4))
				}
			case n < 13:
				update()
				doing = "update"
			case n == 13 && len(ids) > 0:
				kind := [...]timer.Kind{timer.Cancel, timer.Pause, timer.Resume}[random.IntN(3)]
				c := timer.Command{Kind: kind, ID: ids[random.IntN(len(ids))]}
				h, _ := r.table.Lookup(1, c.ID)
				if r.command(c); kind == timer.Resume {
					r.Keys.Resumed(h)
				}
				doing = "command"
			case n == 14 && random.IntN(3) == 0:
				r.topic(1, draw())
				doing = "policy"
			case n == 15:
				r.dropping = true
				r.Run()
				if pulls && random.IntN(2) == 0 {
					r.pull(1, 2)
				} else {
					r.entry()
				}
				r.dropping = false
				doing = "lost entry"
			case n == 16 && random.IntN(2) == 0:
				r.End()
				r.takeover(table.NewIncarnation(ownNode, 1))
				r.Begin()
				doing = "leader"
			case n == 17 && random.IntN(4) == 0:
				r.pause(!r.topics[1].Paused)
				doing = "pause"
			default:
				r.pass(time.Duration(random.Int64N(600)) * time.Millisecond)
				doing = "pass"
			}
			counted(doing)
			r.turn()
			counted(doing)
			check(doing)
			if random.IntN(10) == 0 {
				r.Sweep()
				r.turn()
				check("sweep")
			}
		}
		r.pause(false)
		for _, id := range ids {
			h, _ := r.table.Lookup(1, id)
			r.command(timer.Command{Kind: timer.Resume, ID: id})
			r.Keys.Resumed(h)
		}
		for n := 0; r.table.Counts(1).Scheduled+r.table.Counts(1).Leased > 0; n++ {
			if n == 3000 {
				t.Fatalf("seed %d: %+v are not done", seed, r.table.Counts(1))
			}
			for len(r.calls) > 0 {
				r.end(delivery.Outcome{Status: 202})
				counted("drain")
			}
			if pulls {
				r.pull(1, 4)
			}
			check("drain")
			for _, h := range leased() {
				if r.table.Due(h).Holder != table.ByCall {
					r.update(h, timer.AckLease)
				}
				counted("drain")
			}
			r.pass(20 * time.Millisecond)
			check("drain")
		}
		r.pass(5 * time.Second)
		for range 5 {
			r.Sweep()
			r.turn()
		}
		r.leftover()
		for id, l := range r.cfg.Limiters.Inspect() {
			if l.Leases != 0 {
				t.Errorf("limit %d counts %d leases", id, l.Leases)
			}
		}
		if r.permits != 0 || r.View.Inspect().ConsumerLeases != 0 {
			t.Errorf("%d permits, %d leases of consumers are left", r.permits, r.View.Inspect().ConsumerLeases)
		}
		if t.Failed() {
			t.Fatalf("seed %d, pulls %t", seed, pulls)
		}
	}
}
