package sim

import (
	"testing"
	"time"
)

// TestSeedsAilments: each ailment is come to, and survived. (Its name has it run where TestSeeds does, without the race detector.)
func TestSeedsAilments(t *testing.T) {
	if testing.Short() || underRace || *flagSeed != 0 || *flagShare != "" {
		t.Skip("runs take too long")
	}
	for _, test := range []struct {
		name    string
		set     func(s *swarm, c chance)
		reached func(c *Counts) bool
	}{
		{"blinds", (*swarm).blinding, func(c *Counts) bool { return c.Blinded > 0 && c.Unsent > 0 }},
		{"lies", (*swarm).lying, func(c *Counts) bool { return c.Lies > 0 }},
		{"told", (*swarm).lying, func(c *Counts) bool { return c.Told > 0 }},
		{"garbled", func(s *swarm, _ chance) { s.ailments.garbled = 0.02 }, func(c *Counts) bool { return c.Garbled > 0 && c.Cut > 0 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			sum := AilmentCounts{}
			runs := max(*flagSeeds, 20)
			for seed := *flagFirst; seed < *flagFirst+uint64(runs); seed++ {
				r := run(t, Config{Seed: seed, Change: func(s *Plan) {
					s.ordeals, s.ailments = ordeals{}, ailments{}
					test.set(s, newChance(seed, 8))
					if *flagSeeds == 0 {
						s.safety = 30 * time.Second
					}
				}})
				if r.Err != nil {
					fail(t, r)
				}
				sum.add(&r.Counts)
				if *flagSeeds == 0 && test.reached(&r.Counts) {
					t.Logf("seed %d: %+v", seed, r.Counts.AilmentCounts)
					return
				}
			}
			if !test.reached(&Counts{AilmentCounts: sum}) {
				t.Errorf("not come to in %d runs: %+v", runs, sum)
			}
			t.Logf("%d runs: %+v", runs, sum)
		})
	}
}

func (a *AilmentCounts) add(c *Counts) {
	a.Unread += c.Unread
	a.Blinded += c.Blinded
	a.Unsent += c.Unsent
	a.Lies += c.Lies
	a.Told += c.Told
	a.Garbled += c.Garbled
	a.Cut += c.Cut
}
