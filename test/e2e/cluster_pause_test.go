package e2e

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"
)

// maxOnTheirWay is how many calls may have been partly sent when their node was stopped.
const maxOnTheirWay = 3

// TestClusterPauseLeader stops the process that leads most shards for longer than elections and
// leases take. When resumed it must notice that others lead before it makes a call.
func TestClusterPauseLeader(t *testing.T) {
	pause := time.Duration(setting(t, "CARILLON_E2E_CLUSTER_PAUSE", 6)) * time.Second
	rounds := setting(t, "CARILLON_E2E_CLUSTER_PAUSES", 1)
	random := seeded(t)
	c := newCluster(t, 3)
	rcv := newReceiver(t, slowNowAndThen())
	inBatches(rounds, func(rounds int) { c.pauseLeaders(t, loadOn(t, c, rcv, random), random, rounds, pause) })
}

func (c *cluster) pauseLeaders(t *testing.T, load *clusterLoad, random *rand.Rand, rounds int, pause time.Duration) {
	t.Helper()
	v := &verdict{}
	var took []time.Duration
	var open int64
	for range rounds {
		wait(time.Duration(1000+random.IntN(500)) * time.Millisecond) // under load
		victim := c.busiest(t)
		led := c.view(t).ledBy(victim.name)
		stopped := crash{at: time.Now(), open: load.receiver.open.Load()}
		load.probes.avoid.Store(victim, true)
		victim.process().signal(t, syscall.SIGSTOP)
		stopped.gone = time.Now()
		resume := time.NewTimer(pause)
		took = append(took, load.probes.takeover(t, led, stopped.gone, takeoverLimit)...)
		<-resume.C
		v.resumes = append(v.resumes, time.Now())
		victim.process().signal(t, syscall.SIGCONT)
		load.probes.avoid.Delete(victim)
		v.crashes, open = append(v.crashes, stopped), open+stopped.open
		c.awaitHealthy(t)
	}
	wait(time.Second)
	load.rounds = rounds
	load.finish(t, v)
	t.Logf("%d pauses of %v: %d timers, %d arrivals, %d duplicates (%d calls open), %d calls came on resuming; other leaders took adds after %v",
		rounds, pause, load.ledger.size(), len(v.log), v.duplicates, open, v.resumed, spreadOf(took))
	load.checkDuplicates(t, v, open)
	if v.resumed > rounds*maxOnTheirWay {
		t.Errorf("%d calls came after other leaders' when the stopped node went on", v.resumed)
	}
	if slices.Max(append(took, 0)) > takeoverLimit {
		t.Errorf("other leaders took adds only after %v", spreadOf(took))
	}
}
