package sim

import (
	"testing"
	"time"
)

// TestSeedsOrdeals: the runs reach and survive each scenario, as TestSeeds' runs must. So make ci
// leaves it out; make sim runs it.
func TestSeedsOrdeals(t *testing.T) {
	if testing.Short() || underRace || *flagSeed != 0 || *flagShare != "" {
		t.Skip("runs take too long")
	}
	for _, test := range []struct {
		name    string
		set     func(s *swarm)
		reached func(c *Counts) bool
	}{
		{"together", func(s *swarm) { s.ordeals.together = 0.3 }, func(c *Counts) bool { return c.Together > 0 }},
		{"loops", func(s *swarm) { s.ordeals.loops = 0.2 }, func(c *Counts) bool { return c.Looped > 0 }},
		{"ends", func(s *swarm) { s.ordeals.ends = 0.5 }, func(c *Counts) bool { return c.Ended > 0 }},
		{"flaps and hangs", func(s *swarm) { s.ordeals.flaps, s.ordeals.hangs = 0.2, 0.1 }, func(c *Counts) bool { return c.Flapped > 0 && c.Hung > 0 }},
		{"clocks", func(s *swarm) { s.ordeals.backs, s.ordeals.freezes = 0.2, 0.2 }, func(c *Counts) bool { return c.Backs > 0 && c.Freezes > 0 }},
		{"storms and brinks", func(s *swarm) { s.ordeals.storms, s.ordeals.brinks = 0.1, 2 }, func(c *Counts) bool { return c.Storms > 0 && c.Brinks > 0 }},
		{"numbers", func(s *swarm) { s.ordeals.numbers, s.rots, s.wipes = 0.3, 0, 0 }, func(c *Counts) bool { return c.Numbers > 0 && c.Moves > 0 }},
		{"late frames", func(s *swarm) { s.ordeals.late, s.safety, s.think = 0.02, 2*time.Minute, time.Second }, func(c *Counts) bool { return c.Again > 0 }},
		{"partings", func(s *swarm) { s.partings(newChance(1, 6)) }, func(c *Counts) bool { return c.Parted > 0 && c.Leaving > 0 && c.Words > 0 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := *flagFirst; seed < *flagFirst+60; seed++ {
				r := run(t, Config{Seed: seed, Change: func(s *Plan) {
					s.safety, s.nodes, s.replicas, s.ordeals = 30*time.Second, 3, min(s.replicas, 3), ordeals{}
					s.ailments = ailments{}
					test.set(s)
				}})
				if r.Err != nil {
					fail(t, r)
				}
				if test.reached(&r.Counts) {
					t.Logf("seed %d: %+v", seed, r.Counts.ScenarioCounts)
					return
				}
			}
			t.Error("not come to in 60 runs")
		})
	}
}
