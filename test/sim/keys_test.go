package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// TestNodeWithoutTheKeyLeadsNothing: a leading machine loses its key file and transfers all its
// leaderships within seconds; with the file it may lead again. If all machines lose the file, no
// transferee is left, and operations without secrets go on.
func TestNodeWithoutTheKeyLeadsNothing(t *testing.T) {
	const soon = 5 * time.Second
	for seed := uint64(1); seed <= 3; seed++ {
		for _, all := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: representative, script: func(w *World) {
					w.keys.on, w.keys.stage = true, 0
					w.lay()
					w.found()
					w.employ()
					w.pass(time.Second)
					without := w.leader(1)
					for _, n := range w.nodes {
						if all || n == without {
							w.keys.files[n] = noKeys
						}
					}
					served := func() bool { return w.serving() && (all || w.ledBy(without) == 0) }
					if !w.passUntil(soon, served) {
						t.Errorf("seed %d, all %v: node %d leads %d groups without the key: %s", seed, all, without.id, w.ledBy(without), w.describe())
					}
					w.pass(10 * time.Second)
					if !served() || without.self.Health.Why() == "" {
						t.Errorf("seed %d, all %v: node %d leads %d groups and says %q", seed, all, without.id, w.ledBy(without), without.self.Health.Why())
					}
					w.keys.done()
					w.pass(12 * time.Second) // an unhealthy node stays so for ten seconds
					if why := without.self.Health.Why(); why != "" {
						t.Errorf("seed %d, all %v: node %d has the key, and says %q", seed, all, without.id, why)
					}
					w.conclude()
				}})
				if r.Err != nil {
					t.Errorf("seed %d, all %v: %v", seed, all, r.Err)
				}
			})
		}
	}
}

// ledBy counts the groups that a machine leads.
func (w *World) ledBy(n *node) (groups int) {
	for id := range w.shards() + 1 {
		groups += int(b2u(n.host.Leads(timer.ShardID(id))))
	}
	return groups
}
