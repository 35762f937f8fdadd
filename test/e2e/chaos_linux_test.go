package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// chaosRun is a cluster of three nodes under load on which one fault after the other is tried. Each
// node has a clock that can be set. With root it also has a small disk and, in long runs, a network
// namespace.
type chaosRun struct {
	*cluster
	random   *rand.Rand
	receiver *receiver
	network  *network // nil: all nodes are on loopback
	disks    map[*member]string
	clocks   map[*member]clock
	brief    bool // one short round: skip waits that are long by design

	load    *clusterLoad // of the current batch
	v       *verdict
	strikes []strike
}

// strike is one round of a fault.
type strike struct {
	kind     string
	from, to time.Time
	took     []time.Duration // until the victim's shards had other leaders
}

// fault is one kind of fault.
type fault struct {
	name  string
	fresh bool // no other cluster test tries it, so the short run does
	why   func(s *chaosRun) string
	try   func(s *chaosRun, t *testing.T) []time.Duration
}

func faults() []fault {
	list := slices.Concat(processFaults, diskFaults, clockFaults)
	for _, p := range partitions {
		list = append(list, fault{name: "network: " + p.name, why: needsNetwork, try: func(s *chaosRun, t *testing.T) []time.Duration {
			// After the fault before, leaderships may be on their way back.
			s.awaitSettledWithin(t, s.all(), len(s.all()), settleLimit)
			s.cutAndHeal(t, s.network, p, s.load, s.v)
			return nil
		}})
	}
	return list
}

func needsNetwork(s *chaosRun) string {
	if s.network == nil {
		return "network namespaces need root and iproute2"
	}
	return ""
}

// TestClusterChaos tries the faults: by default one short round of each that no other test tries.
// CARILLON_E2E_CLUSTER_CHAOS=n tries n rounds of each, in order. CARILLON_E2E_CLUSTER_SIEGE=1h
// tries random faults for that long.
func TestClusterChaos(t *testing.T) {
	needCluster(t)
	rounds, siegeFor := setting(t, "CARILLON_E2E_CLUSTER_CHAOS", 0), time.Duration(0)
	if text := os.Getenv("CARILLON_E2E_CLUSTER_SIEGE"); text != "" {
		var err error
		if siegeFor, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newSiege(t, rounds == 0 && siegeFor == 0)
	var kinds []fault
	for _, f := range faults() {
		if f.why != nil && f.why(s) != "" {
			t.Logf("%s: not tried: %s", f.name, f.why(s))
		} else if (f.fresh || !s.brief) && strings.Contains(f.name, os.Getenv("CARILLON_E2E_CLUSTER_FAULT")) {
			kinds = append(kinds, f)
		}
	}
	switch {
	case siegeFor > 0:
		for end := time.Now().Add(siegeFor); time.Now().Before(end) && !t.Failed(); {
			s.batch(t, drawn(s.random, kinds, siegeBatch))
		}
	default:
		var list []fault
		for range max(rounds, 1) {
			list = append(list, kinds...)
		}
		for part := range slices.Chunk(list, siegeBatch) {
			s.batch(t, part)
		}
	}
}

// siegeCalls is the timeout of a client's call. A process may wait for seconds while strace stops
// another at each system call.
const siegeCalls = 3 * time.Second

// siegeBatch is the number of faults under one load. It is small because the check reads finished
// timers, and those are kept for a limited time.
const siegeBatch = 8

func drawn(random *rand.Rand, kinds []fault, n int) (list []fault) {
	for range n {
		list = append(list, kinds[random.IntN(len(kinds))])
	}
	return list
}

// newSiege starts the cluster.
func newSiege(t *testing.T, brief bool) *chaosRun {
	t.Helper()
	s := &chaosRun{random: seeded(t), brief: brief, disks: map[*member]string{}, clocks: map[*member]clock{}}
	var members []*member
	var flags []string
	handle := slowNowAndThen()
	if _, err := exec.LookPath("ip"); err == nil && os.Geteuid() == 0 && !brief {
		s.network = newNetwork(t, 3)
		members = s.network.members(t)
		flags = []string{"--insecure-no-auth", "--callback-allow", testNets + ",127.0.0.0/8"}
		s.receiver = newReceiverAt(t, peerNet+gateway+":0", handle)
	} else {
		members = loopbackMembers(t, 3)
		s.receiver = newReceiver(t, handle)
	}
	for _, m := range members {
		m.binary = testBinary(t)
		s.clocks[m], m.env = newClock(t)
		if os.Geteuid() == 0 {
			s.disks[m] = diskOf(t, "size=1g")
			m.dir = s.disks[m] + "/data"
		}
	}
	s.cluster = found(t, members, flags...)
	s.calls = siegeCalls
	return s
}

// batch tries faults under one load, then checks the load.
func (s *chaosRun) batch(t *testing.T, list []fault) {
	t.Helper()
	s.load, s.v, s.strikes = loadOn(t, s.cluster, s.receiver, s.random), &verdict{}, nil
	for _, f := range list {
		wait(time.Duration(300+s.random.IntN(700)) * time.Millisecond) // under load
		begin := strike{kind: f.name, from: time.Now()}
		begin.took = f.try(s, t)
		s.awaitHealthy(t)
		begin.to = time.Now()
		s.strikes = append(s.strikes, begin)
		t.Logf("%s: %s: taken over after %v, over after %v", begin.from.Format(clockFormat), f.name, spreadOf(begin.took), begin.to.Sub(begin.from).Round(time.Millisecond))
	}
	wait(time.Second)
	s.load.rounds = len(list)
	s.load.finish(t, s.v)
	for _, x := range s.strikes {
		late := s.load.latenessBetween(x.from.Add(-time.Second), x.to, s.v.log)
		counts.fault(x.kind, x.took, late.max)
		if late.max > lateLimit && !s.brief {
			t.Errorf("%s at %s: due around it, late by %v", x.kind, x.from.Format(clockFormat), late.max)
		}
		t.Logf("%s %s: late by %v; twice: %d", x.from.Format(clockFormat), x.kind, late, s.v.twiceBetween(x.from, x.to))
	}
	// The checker has verified that each duplicate follows a fault that may have lost its outcome.
	// In total there may be no more duplicates than calls that were open at the faults or answered
	// shortly before.
	inHand := int64(0)
	for _, c := range s.v.crashes {
		inHand += s.receiver.openBetween(c.at.Add(-c.slack()), c.gone)
	}
	if int64(s.v.duplicates) > inHand {
		t.Errorf("%d duplicates; %d calls were open at the %d faults or had been answered shortly before", s.v.duplicates, inHand, len(s.v.crashes))
	}
	t.Logf("%d timers, %d arrivals, %d operations, %d early by a clock that was ahead, %d duplicates (%d calls open at the faults, %d with those answered within %v before)",
		s.load.ledger.size(), len(s.v.log), s.v.operations, s.v.byClock, s.v.duplicates, s.v.open(), inHand, outcomeSlack)
	s.receiver.forget()
}

// lateLimit bounds the lateness of timers that were due around a fault of any kind. A fault may
// last longer; it delays timers only until other nodes have taken over.
const lateLimit = 30 * time.Second

// handedOver waits until another member reports that the victim leads no shards, with why in its
// reason. It returns the time since from.
func (s *chaosRun) handedOver(t *testing.T, victim *member, from time.Time, limit time.Duration, why string) time.Duration {
	t.Helper()
	var last string
	if !s.handsOver(victim, limit, why, &last) {
		t.Fatalf("%s has not handed over within %v, with %q as the reason: %s", victim.name, limit, why, last)
	}
	return time.Since(from)
}

// handsOver is handedOver without a failure: it reports success, and last is the state last seen.
func (s *chaosRun) handsOver(victim *member, limit time.Duration, why string, last *string) bool {
	return holdsWithinBy(20*time.Millisecond, limit, func() bool {
		for _, m := range s.running() {
			if m == victim {
				continue
			}
			v, err := m.view()
			if err != nil {
				return false
			}
			*last = fmt.Sprintf("%s says %q; %s", victim.name, v.unfit(victim.name), v.summary())
			return len(v.ledBy(victim.name)) == 0 && strings.Contains(v.unfit(victim.name), why)
		}
		return false
	})
}

// leadsAgain waits until a node that was unhealthy leads again.
func (s *chaosRun) leadsAgain(t *testing.T, victim *member) {
	t.Helper()
	if s.brief {
		return
	}
	s.awaitView(t, 45*time.Second, victim.name+" leads again", func(v view) bool { return len(v.ledBy(victim.name)) > 0 && v.unfit(victim.name) == "" })
}
