package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/shard"
	"carillon/timer"
)

// failingReplica is a replica fault that a run must reach.
type failingReplica struct {
	name    string
	set     func(s *swarm)
	reached func(c *Counts) bool
}

func upgrading(s *swarm) {
	s.replicaFaults.releases, s.crashes, s.longestDown = true, 0.3, time.Second
}

func striking(s *swarm) { s.replicaFaults.strikes, s.replicas = 0.2, 3 }

// TestSeedsReplicaFaults: the runs reach and survive each replica fault that TestSeeds draws often
// enough. So make ci leaves it out; make sim runs it.
func TestSeedsReplicaFaults(t *testing.T) {
	surviveReplicas(t,
		failingReplica{"memory", striking, func(c *Counts) bool { return c.Struck > 2 && c.Wrong > 1 && c.Remade > 1 }},
		failingReplica{"memory that a snapshot finds", striking, func(c *Counts) bool { return c.MemoryEnded > 0 }},
		failingReplica{"zones that differ", upgrading, func(c *Counts) bool { return c.Zoneless > 2 }},
		failingReplica{"overtaken", func(s *swarm) { s.overtaking(newChance(1, 6)) }, func(c *Counts) bool { return c.Overtaken > 2 && c.Installed > 0 }},
	)
}

// surviveReplicas is survive for faults of replicas.
func surviveReplicas(t *testing.T, list ...failingReplica) {
	t.Helper()
	if testing.Short() || underRace || *flagSeed != 0 || *flagShare != "" {
		t.Skip("runs take too long")
	}
	const most = 100 // runs: one in thirty comes to all that is asked of releases
	for _, test := range list {
		t.Run(test.name, func(t *testing.T) {
			for seed := *flagFirst; seed < *flagFirst+most; seed++ {
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
			t.Errorf("not come to in %d runs", most)
		})
	}
}

// TestWrongMetaReplicaIsReplaced: the copy of the meta group's state on one node, which leads the group
// or does not, differs from the others'. It is replaced by one under another id, also though the
// node's own copy does not get the row any more that says so.
func TestWrongMetaReplicaIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for _, leads := range []bool{true, false} {
		t.Run(map[bool]string{true: "leader", false: "follower"}[leads], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Run(Config{Seed: 4, Settle: synctest.Wait, Change: func(p *Plan) {
					representative(p)
					p.snapshotBytes, p.genBytes = 64<<20, 64<<20 // a snapshot would find it first
				}, script: func(w *World) {
					w.lay()
					w.found()
					w.employ()
					w.pass(8 * time.Second)
					n := w.leader(shard.Meta)
					if !leads {
						n = w.nodes[(slices.Index(w.nodes, n)+1)%3]
					}
					before := n.host.Progress(shard.Meta).Replica
					flip(n.state, "sum", 3)
					n.struck[shard.Meta] = true
					p := timer.DefaultPolicy()
					w.insist(putTopic("compared", &p)) // states are compared after an entry
					if !w.passUntil(time.Minute, func() bool {
						p := n.host.Progress(shard.Meta)
						row, _ := w.nodes[(slices.Index(w.nodes, n)+1)%3].state.Row(shard.Meta)
						return p.Replica > before && p.Installs > 0 && row.Settled && len(row.Nodes()) == 3
					}) {
						t.Errorf("it is not replaced: %s", w.describe())
					}
					w.conclude()
				}})
				if r.Err != nil {
					t.Error(r.Err)
				}
				if r.Counts.Wrong != 1 || r.Counts.Remade != 1 {
					t.Errorf("%d wrong, %d replaced", r.Counts.Wrong, r.Counts.Remade)
				}
			})
		})
	}
}
