package sim

import (
	"testing"
	"time"
)

// TestSeedsReplicaFaults: the runs reach and survive each replica fault. (By its name it runs where
// TestSeeds does.)
func TestSeedsReplicaFaults(t *testing.T) {
	if testing.Short() || underRace || *flagSeed != 0 || *flagShare != "" {
		t.Skip("runs take too long")
	}
	for _, test := range []struct {
		name    string
		set     func(s *swarm)
		reached func(c *Counts) bool
	}{
		{"memory", func(s *swarm) { s.replicaFaults.strikes = 0.3 }, func(c *Counts) bool { return c.Struck > 2 && c.Refilled > 1 }},
		{"memory of one that is alone", func(s *swarm) { s.replicaFaults.strikes, s.nodes, s.replicas, s.safety = 0.2, 1, 1, time.Minute },
			func(c *Counts) bool { return c.MemoryEnded > 0 }},
		{"releases", func(s *swarm) { s.replicaFaults.releases, s.crashes, s.longestDown = true, 0.3, time.Second },
			func(c *Counts) bool {
				return c.Changed > 2 && c.TooOld > 0 && c.Compared > 0 && c.Finalized > 0 && c.TooEarly > 0
			}},
		{"zones that differ", func(s *swarm) { s.replicaFaults.releases, s.crashes, s.longestDown = true, 0.3, time.Second }, func(c *Counts) bool { return c.Zoneless > 2 }},
		{"overtaken", func(s *swarm) { s.overtaking(newChance(1, 6)) }, func(c *Counts) bool { return c.Overtaken > 2 && c.Installed > 0 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := *flagFirst; seed < *flagFirst+20; seed++ {
				r := run(t, Config{Seed: seed, Change: func(s *Plan) {
					s.safety, s.nodes, s.replicas = 40*time.Second, 3, min(s.replicas, 3)
					s.ordeals, s.ailments, s.replicaFaults = ordeals{}, ailments{}, replicaFaults{}
					test.set(s)
				}})
				if r.Err != nil {
					fail(t, r)
				}
				if test.reached(&r.Counts) {
					t.Logf("seed %d: %+v", seed, r.Counts.ReplicaFaultCounts)
					return
				}
			}
			t.Error("not come to in 20 runs")
		})
	}
}
