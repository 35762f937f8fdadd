package e2e

import (
	"testing"
	"time"
)

// handOverLimit is the pause at which an election, rather than a transfer of leadership, must have
// taken place. handOverPause is promised only for an idle machine.
const handOverLimit = time.Second

// TestClusterRollingRestart stops and starts one node after the other with SIGTERM; no client
// notices.
func TestClusterRollingRestart(t *testing.T) {
	rounds := setting(t, "CARILLON_E2E_CLUSTER_ROLLS", 1)
	c := newCluster(t, 3)
	rcv, random := newReceiver(t, slowNowAndThen()), seeded(t)
	inBatches(rounds, func(rounds int) { c.roll(t, loadOn(t, c, rcv, random), rounds) })
}

func (c *cluster) roll(t *testing.T, load *clusterLoad, rounds int) {
	t.Helper()
	watch := c.watchMoves(t, load.probes)
	var pauses []time.Duration
	for range rounds {
		for _, m := range c.all() {
			wait(500 * time.Millisecond)
			begin := time.Now()
			m.process().stop(t)
			stopped := time.Now()
			c.start(t, m)
			c.awaitHealthy(t)
			longest := load.probes.pauses(begin)
			t.Logf("%s stopped in %v, healthy again after %v; longest wait for an add of each shard: %v", m.name, stopped.Sub(begin), time.Since(begin), spreadOf(longest))
			pauses = append(pauses, longest...)
		}
	}
	wait(500 * time.Millisecond)
	watch.finish(t, handOverPause)
	v := &verdict{} // nothing crashes, so every duplicate is an error
	load.rounds = 3 * rounds
	load.finish(t, v)
	s := spreadOf(pauses)
	t.Logf("%d timers, %d arrivals, %d duplicates; pauses %v", load.ledger.size(), len(v.log), v.duplicates, s)
	if s.max > handOverLimit {
		t.Errorf("a shard took no adds for %v while its leader was handed over", s.max)
	}
}
