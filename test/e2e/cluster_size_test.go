package e2e

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// growthPause is the longest that an add may wait while its shard moves or divides, where each node
// has a core of its own. Nodes that share a core take turns to copy, load and write.
func growthPause(nodes int) time.Duration {
	cores := runtime.NumCPU()
	return pauseLimit(time.Duration((nodes+cores-1)/cores) * 500 * time.Millisecond)
}

// TestClusterGrowsFromOneNode: one node with 4 shards and many timers becomes a cluster of nine
// nodes with 64 shards and three replicas of each, under 1,000 adds and fires a second. No timer is
// lost, early, or called twice. It logs a table of each step: how long it took, how long adds
// waited, and the bytes that were copied.
func TestClusterGrowsFromOneNode(t *testing.T) {
	needTime(t)
	many, nodes, to := setting(t, "CARILLON_E2E_GROWTH_TIMERS", 1_000_000), setting(t, "CARILLON_E2E_GROWTH_NODES", 9), setting(t, "CARILLON_E2E_GROWTH_SHARDS", 64)
	limit := settleLimit + time.Duration(many)*time.Millisecond/2
	members := loopbackMembers(t, nodes)
	c := foundOf(t, reshardFrom, 1, slices.Clip(members[:1]))
	c.addMany(t, "many", many)
	kept := c.keepTimers(t, "kept", 0, reshardKept)
	c.rate = setting(t, "CARILLON_E2E_CLUSTER_RATE", 1000)
	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), seeded(t))
	started := time.Now()
	wait(time.Second)

	step := func(what string, replicas int, members []*member, do func()) {
		t.Helper()
		begin, before := time.Now(), c.copied(t)
		do()
		end := time.Now()
		c.awaitSettledWithin(t, members, replicas, limit)
		settled := time.Since(begin) - stillFor
		waits := spreadOf(load.probes.pauses(begin))
		t.Logf("| %s | %.1f s | %.1f s | %v | %.0f MB |", what, end.Sub(begin).Seconds(), settled.Seconds(), waits, (c.copied(t)-before)/1e6)
		if limit := growthPause(nodes); waits.max > limit {
			t.Errorf("%s: an add waited %v, at most %v is promised", what, waits.max, limit)
		}
	}
	t.Log("| step | done | settled | longest wait for an add, by shard | copied |")
	step("three nodes", 1, members[:3], func() { c.joinWithin(t, members[1], limit); c.joinWithin(t, members[2], limit) })
	step("three replicas", 3, members[:3], func() { c.setReplicas(t, 3) })
	step(fmt.Sprint(nodes, " nodes"), 3, members, func() {
		for _, m := range members[3:] {
			c.joinWithin(t, m, limit)
		}
	})
	for n := 2 * reshardFrom; n <= to; n *= 2 {
		step(fmt.Sprint(n, " shards"), 3, members, func() {
			c.eventually(t, "POST", "/v1/cluster/shards", fmt.Sprintf(`{"shards":%d}`, n))
			poll(t, limit, "the shards are divided", func() bool {
				g, ok := c.grows()
				return ok && g.Resharding == nil && g.Total == n
			})
			c.shards = n
		})
	}
	ended := time.Now()
	load.finish(t, &verdict{}) // nothing crashes, so every duplicate is an error
	c.checkKept(t, "kept", kept)
	c.checkCount(t, "many", many)
	c.checkAgreed(t, c.all())
	t.Logf("%d timers in the load; lateness over the whole run: %v", load.ledger.size(), load.latenessBetween(started, ended, load.arrivals()))
}

const copiedBytes = `carillon_snapshot_transfer_bytes_total{direction="received"}`

// copied returns how many bytes of states all members have received from others.
func (c *cluster) copied(t testing.TB) float64 {
	t.Helper()
	return c.counter(t, copiedBytes)
}
