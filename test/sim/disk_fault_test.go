package sim

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// ailing is a disk fault that a run must reach.
type ailing struct {
	name    string
	set     func(s *swarm, c chance)
	reached func(c *Counts) bool
	least   uint64 // least number of runs
	profile string
}

// TestSeedsRare: runs reach and survive what too few of TestSeeds' runs come to (see rare).
func TestSeedsRare(t *testing.T) {
	survive(t,
		ailing{"blinds", (*swarm).blinding, func(c *Counts) bool { return c.Blinded > 0 && c.Unsent > 0 }, 1, ""},
		ailing{"put back", (*swarm).puttingBack, func(c *Counts) bool { return c.PutBack > c.Identity && c.Identity > 0 && c.ToldOlder > 1 }, 4, ""},
		ailing{"put back while shards double", (*swarm).puttingBack, func(c *Counts) bool { return c.Identity > 0 && c.Divided > 0 && c.ToldOlder > 0 }, 4, grows},
	)
	surviveReplicas(t, failingReplica{"releases", upgrading, func(c *Counts) bool {
		return c.Changed > 2 && c.TooOld > 0 && c.Compared > 0 && c.Finalized > 0 && c.TooEarly > 0
	}})
}

// TestSeedsAilments: the runs reach and survive each disk fault that TestSeeds draws often enough.
// So make ci leaves it out; make sim runs it.
func TestSeedsAilments(t *testing.T) {
	survive(t,
		ailing{"lies", (*swarm).lying, func(c *Counts) bool { return c.Lies > 0 }, 1, ""},
		ailing{"told", (*swarm).lying, func(c *Counts) bool { return c.Told > 0 && c.HeldBack > 0 }, 1, ""},
		ailing{"failing", func(s *swarm, c chance) { s.failing(c) }, func(c *Counts) bool { return c.AtOnce > 0 }, 1, ""},
		ailing{"swamping", (*swarm).swamping, func(c *Counts) bool { return c.HungUnder > 0 }, 6, ""},
		ailing{"brimming", (*swarm).brimming, func(c *Counts) bool { return c.Filled > 2 && c.Full > 0 && c.HeldOff > 0 && c.Cramped > 0 }, 4, ""},
		ailing{"garbled", func(s *swarm, _ chance) { s.ailments.garbled = 0.02 }, func(c *Counts) bool { return c.Garbled > 0 && c.Cut > 0 }, 1, ""},
	)
}

// survive runs seeds of each fault until one has reached it. (By their names these tests run where
// TestSeeds does, without the race detector.)
func survive(t *testing.T, list ...ailing) {
	t.Helper()
	if testing.Short() || underRace || *flagSeed != 0 || *flagShare != "" {
		t.Skip("runs take too long")
	}
	for _, test := range list {
		t.Run(test.name, func(t *testing.T) {
			sum := Counts{}
			runs := max(*flagSeeds, 20)
			for seed := *flagFirst; seed < *flagFirst+uint64(runs); seed++ {
				r := run(t, Config{Seed: seed, Profile: test.profile, Change: func(s *Plan) {
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
				if *flagSeeds == 0 && seed+1 >= *flagFirst+test.least && test.reached(&r.Counts) {
					t.Logf("seed %d: %+v", seed, r.Counts.DiskFaultCounts)
					return
				}
			}
			if !test.reached(&sum) {
				t.Errorf("not come to in %d runs: %+v", runs, sum.DiskFaultCounts)
			}
			t.Logf("%d runs: %+v", runs, sum.DiskFaultCounts)
		})
	}
}

// TestLiesAtOnce measures a fault that is not covered by any promise (CARILLON_LIES=n runs). A
// machine that has lost the end of its log restarts before another node leads, while a third lags.
// Its vote then counts for a majority that may lack acknowledged entries. No node can know: the
// disk had confirmed the sync. If the others get time to catch up, nothing may be lost.
func TestLiesAtOnce(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("CARILLON_LIES"))
	if runs == 0 {
		t.Skip("set CARILLON_LIES to the number of runs")
	}
	for _, atOnce := range []bool{false, true} {
		failed, sum := 0, Counts{}
		for seed := *flagFirst; seed < *flagFirst+uint64(runs); seed++ {
			r := run(t, Config{Seed: seed, Change: func(s *Plan) {
				s.ordeals, s.ailments = ordeals{}, ailments{}
				s.lying(newChance(seed, 8))
				s.nodes, s.think, s.longestDown = 3, 30*time.Millisecond, 200*time.Millisecond
				s.loss, s.slow, s.slowest = 0.05, 0.15, time.Second
				s.ailments.atOnce = atOnce
			}})
			sum.add(&r.Counts)
			if r.Err == nil {
				continue
			}
			if !atOnce {
				fail(t, r)
			}
			failed++
			t.Logf("seed %d: %.120s", seed, r.Err)
		}
		t.Logf("at once %v: %d of %d runs have lost or torn something; %+v", atOnce, failed, runs, sum.DiskFaultCounts)
	}
}
