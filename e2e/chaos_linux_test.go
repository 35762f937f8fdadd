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

// chaosRun is a cluster of three under load on which one fault after the other is tried. Each node
// has a small disk of its own and a clock that can be set; with root each is in a network of its
// own.
type chaosRun struct {
	*cluster
	random   *rand.Rand
	receiver *receiver
	network  *network // nil: all are on loopback
	disks    map[*member]string
	clocks   map[*member]clock
	brief    bool // one short round: nothing is waited for that takes long by design

	load    *clusterLoad // of this batch
	v       *verdict
	strikes []strike
}

// strike is one round of a fault.
type strike struct {
	kind     string
	from, to time.Time
	took     []time.Duration // until others had taken over
}

// fault is one kind.
type fault struct {
	name  string
	fresh bool // no other test of clusters tries it: the short run does
	why   func(s *chaosRun) string
	try   func(s *chaosRun, t *testing.T) []time.Duration
}

func faults() []fault {
	list := slices.Concat(processFaults, diskFaults, clockFaults)
	for _, p := range partitions {
		list = append(list, fault{name: "network: " + p.name, why: needsNetwork, try: func(s *chaosRun, t *testing.T) []time.Duration {
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

// TestClusterChaos tries the faults. By default those that no other test tries, one short round of
// each; CARILLON_E2E_CLUSTER_CHAOS=n: n rounds of each kind, in order;
// CARILLON_E2E_CLUSTER_SIEGE=1h: for so long, one drawn after the other.
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

// siegeCalls is how long a call may take: longer than a process waits for its turn while strace
// stops another at every step.
const siegeCalls = 3 * time.Second

// siegeBatch is how many faults there are to a load: finished timers are not kept for ever, and the
// check wants to see them all.
const siegeBatch = 8

func drawn(random *rand.Rand, kinds []fault, n int) (list []fault) {
	for range n {
		list = append(list, kinds[random.IntN(len(kinds))])
	}
	return list
}

// newSiege founds the cluster.
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
		m.binary = wrongClockBinary(t)
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

// batch tries faults under one load and checks it.
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
	// The checker has asked of each duplicate that a fault came before its outcome can have been
	// safe. Together they may be no more than such calls were.
	inHand := int64(0)
	for _, c := range s.v.crashes {
		inHand += s.receiver.openBetween(c.at.Add(-outcomeSlack), c.gone)
	}
	if int64(s.v.duplicates) > inHand {
		t.Errorf("%d duplicates; %d calls were open at the %d faults or had been answered shortly before", s.v.duplicates, inHand, len(s.v.crashes))
	}
	t.Logf("%d timers, %d arrivals, %d operations, %d early by a clock that was ahead, %d duplicates (%d calls open at the faults, %d with those answered within %v before)",
		s.load.ledger.size(), len(s.v.log), s.v.operations, s.v.byClock, s.v.duplicates, s.v.open(), inHand, outcomeSlack)
	s.receiver.forget()
}

// lateLimit is for what fell due around a fault of any kind: one that lasts longer than another's
// taking over is no reason to be late for longer.
const lateLimit = 30 * time.Second

// handedOver waits until another member sees that the victim leads nothing any more and, where a
// reason is asked for, that it says why. It tells how long that took.
func (s *chaosRun) handedOver(t *testing.T, victim *member, from time.Time, limit time.Duration, why string) time.Duration {
	t.Helper()
	var last string
	if !s.handsOver(victim, limit, why, &last) {
		t.Fatalf("%s has not handed over within %v, with %q as the reason: %s", victim.name, limit, why, last)
	}
	return time.Since(from)
}

// handsOver waits until a node leads nothing any more and says why; last is how it was then.
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

// leadsAgain waits until a node that was unfit has been given its leaderships back.
func (s *chaosRun) leadsAgain(t *testing.T, victim *member) {
	t.Helper()
	if s.brief {
		return
	}
	s.awaitView(t, 45*time.Second, victim.name+" leads again", func(v view) bool { return len(v.ledBy(victim.name)) > 0 && v.unfit(victim.name) == "" })
}
