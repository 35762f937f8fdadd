package e2e

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Limits of taking over from a dead leader. The lateness includes callTimeout, which the new leader
// waits for calls that the dead one may have been making.
const (
	takeoverMedian  = 1500 * time.Millisecond
	takeoverP99     = 4 * time.Second
	takeoverLimit   = 10 * time.Second // I14
	latenessOnFault = 5 * time.Second
)

// TestClusterKillLeader repeatedly kills the node that leads most shards, under adds and fires, and
// starts it again.
func TestClusterKillLeader(t *testing.T) {
	rounds := setting(t, "CARILLON_E2E_CLUSTER_KILLS", 3)
	random := seeded(t)
	c := newCluster(t, 3)
	rcv := newReceiver(t, slowNowAndThen())
	inBatches(rounds, func(rounds int) { c.killLeaders(t, loadOn(t, c, rcv, random), random, rounds) })
}

func (c *cluster) killLeaders(t *testing.T, load *clusterLoad, random *rand.Rand, rounds int) {
	t.Helper()
	v := &verdict{}
	var took []time.Duration
	var open int64
	for range rounds {
		wait(time.Duration(500+random.IntN(1000)) * time.Millisecond) // under load
		victim := c.busiest(t)
		led := c.view(t).ledBy(victim.name)
		killed := crashNow(victim.process(), load.receiver)
		v.crashes, open = append(v.crashes, killed), open+killed.open
		took = append(took, load.probes.takeover(t, led, killed.at, takeoverLimit)...)
		wait(time.Duration(random.IntN(500)) * time.Millisecond) // two of three nodes run
		c.start(t, victim)
		c.awaitHealthy(t)
	}
	wait(time.Second)
	load.rounds = rounds
	load.finish(t, v)

	adds := spreadOf(took)
	t.Logf("%d kills of a leader, %d timers, %d arrivals, %d duplicates (%d calls open at the kills; %d answered when their time was over)",
		rounds, load.ledger.size(), len(v.log), v.duplicates, open, v.tooLate)
	t.Logf("from the kill until a shard that it led takes adds: %v (%d)", adds, len(took))
	if adds.p50 > takeoverMedian || adds.p99 > takeoverP99 {
		t.Errorf("taking over took %v, promised p50 %v, p99 %v", adds, takeoverMedian, takeoverP99)
	}
	load.checkDuplicates(t, v, open)
	for _, k := range v.crashes {
		late := load.latenessBetween(k.at.Add(-time.Second), k.at.Add(takeoverLimit), v.log)
		t.Logf("due around the kill at %s: late by %v", k.at.Format(clockFormat), late)
		if late.max > latenessOnFault {
			t.Errorf("due around the kill at %s, late by %v, promised %v", k.at.Format(clockFormat), late.max, latenessOnFault)
		}
	}
}

// checkDuplicates checks that there are no more duplicates than calls in flight at the faults: open
// calls that the receiver had not answered, and answered calls whose outcome may not have been
// committed, estimated from the load's rate.
func (l *clusterLoad) checkDuplicates(t testing.TB, v *verdict, open int64) {
	t.Helper()
	uncommitted := int64(l.perSecond) * maxUncommitted / addsPerSecond
	if bound := open + int64(len(v.crashes))*uncommitted; int64(v.duplicates) > bound {
		t.Errorf("%d duplicates; %d calls were open at the %d faults, and at most %d can have had no outcome yet", v.duplicates, open, len(v.crashes), bound-open)
	}
}
