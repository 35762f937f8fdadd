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

// TestTakeoverInSlices: a leader of many topics breaks no limit and no order while it has yet to
// look at them, and to leave those of its last leaderships. In the end no limit is kept.
func TestTakeoverInSlices(t *testing.T) {
	const topics = 200
	for seed := range uint64(5) {
		r, random := newReplica(t), rand.New(rand.NewPCG(seed, 1))
		set := []func(*timer.Policy){limited(1), serial, perKey(timer.PerKey{Concurrency: 1})}
		for id := timer.TopicID(1); id <= topics; id++ {
			r.topic(id, set[id%3])
			for i := range 2 {
				r.add(fmt.Sprintf("{k}%d", i), int64(i-9), func(c *timer.Command) { c.Topic = id })
			}
		}
		check := func(most int, when string) {
			t.Helper()
			calls := map[timer.TopicID]int{}
			for _, c := range r.calls {
				if calls[c.Topic.ID]++; calls[c.Topic.ID] > 1 || c.Topic.Policy.Serial && most == 0 {
					t.Fatalf("seed %d: %s of topic %d is called %s", seed, c.Job.ID, c.Topic.ID, when)
				}
			}
		}
		r.turn()
		if len(r.calls) != topics {
			t.Fatalf("%d calls", len(r.calls))
		}
		keep := r.calls[:0]
		for _, c := range r.calls {
			if !c.Topic.Policy.Serial {
				keep = append(keep, c)
				continue
			}
			r.permits--
			c.done(delivery.Outcome{Err: "timeout", StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
		}
		r.calls = keep
		r.turn()
		check(0, "before")
		for range 6 {
			r.budget = 1
			r.End()
			r.takeover(table.NewIncarnation(ownNode, 1))
			r.Begin()
			for range random.IntN(20) {
				r.step()
				check(0, "in the survey")
				if random.IntN(3) == 0 {
					r.Tick()
					r.Sweep()
				}
			}
			r.budget = 0
		}
		r.turn()
		check(0, "after it")
		for range 40 {
			r.endAll()
			check(1, "at the end")
			r.pass(500 * time.Millisecond)
			check(1, "at the end")
			r.Sweep()
			r.turn()
		}
		if left := r.table.Totals(); left.Scheduled+left.Leased != 0 {
			t.Errorf("seed %d: %+v are left", seed, left)
		}
		if n := len(r.cfg.Limiters.Inspect()); n != 0 || r.limits.leaving != 0 {
			t.Errorf("seed %d: %d limits are kept, %d topics to leave", seed, n, r.limits.leaving)
		}
	}
}
