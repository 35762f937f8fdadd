package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestClusterSuspendLeader suspends the machine of the node that leads most shards for longer than
// elections and leases take. First it sleeps: its monotonic clock stops. Then it stops like a
// virtual machine: its boot clock stops, too. When resumed, the node must notice that its leases
// are over before it makes a call.
func TestClusterSuspendLeader(t *testing.T) {
	needCluster(t)
	t.Parallel()
	random := seeded(t)
	members, clocks := loopbackMembers(t, 3), map[*member]clock{}
	for _, m := range members {
		m.binary = testBinary(t)
		clocks[m], m.env = newClock(t)
	}
	c := found(t, members)
	rcv := newReceiver(t, slowNowAndThen())
	load := loadOn(t, c, rcv, random)
	v := &verdict{}
	var took []time.Duration
	var open int64
	const lasts = 14 * time.Second
	for _, stopped := range []bool{false, true} {
		wait(time.Duration(1000+random.IntN(500)) * time.Millisecond) // under load
		victim := c.busiest(t)
		led := c.view(t).ledBy(victim.name)
		asleep := crash{at: time.Now(), open: load.receiver.open.Load()}
		load.probes.avoid.Store(victim, true)
		victim.process().signal(t, syscall.SIGSTOP)
		asleep.gone = time.Now()
		resume := time.NewTimer(lasts)
		took = append(took, load.probes.takeover(t, led, asleep.gone, takeoverLimit)...)
		<-resume.C
		boot := time.Duration(0)
		if stopped {
			boot = time.Since(asleep.gone)
		}
		clocks[victim].stood(t, time.Since(asleep.gone), boot)
		v.resumes = append(v.resumes, time.Now())
		victim.process().signal(t, syscall.SIGCONT)
		load.probes.avoid.Delete(victim)
		v.crashes, open = append(v.crashes, asleep), open+asleep.open
		c.awaitHealthy(t)
		clocks[victim].set(t, 0, 0) // its clocks jump by as much
		c.awaitHealthy(t)
	}
	wait(time.Second)
	load.finish(t, v)
	t.Logf("2 sleeps of %v: %d timers, %d arrivals, %d duplicates (%d calls open), %d calls came on waking; other leaders took adds after %v",
		lasts, load.ledger.size(), len(v.log), v.duplicates, open, v.resumed, spreadOf(took))
	load.checkDuplicates(t, v, open)
	if v.resumed > 2*maxOnTheirWay {
		t.Errorf("%d calls came after other leaders' when the machine went on", v.resumed)
	}
	if slices.Max(append(took, 0)) > takeoverLimit {
		t.Errorf("other leaders took adds only after %v", spreadOf(took))
	}
}
