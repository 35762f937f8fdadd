package sim

import (
	"slices"
	"time"
)

// profiles are the kinds of faults that a run may be dense with; "" is none.
var profiles = []string{"unsteady", "restless", "dark", "rotting", "failing", "rationed", ""}

// profile makes six runs in seven dense with one kind of faults. A bug that needs several rare
// events within a second shows only where these events are common. Other faults that would
// interfere are left out. want, if not empty, names the kind.
func (s *swarm) profile(c chance, want string) {
	kind := profiles[c.IntN(len(profiles))]
	if want != "" {
		kind = want
	}
	switch kind {
	case "unsteady":
		s.unsteady(c)
	case "restless":
		s.restless(c)
	case "dark":
		s.dark(c)
	case "rotting":
		s.rotting(c)
	case "failing":
		s.failing(c)
	case "rationed":
		s.rationed(c)
	}
}

// isProfile reports whether there is such a kind.
func isProfile(name string) bool {
	return name == crowded || name == grows || name == wide || slices.Contains(profiles, name)
}

// unsteady changes leaders again and again while leases run: short pauses, cuts of leaders,
// leadership transfers, long calls.
func (s *swarm) unsteady(c chance) {
	s.nodes = 3
	s.shards = 1 + c.IntN(3)
	s.pauses, s.partitions, s.handOvers = 0.2+0.5*c.Float64(), c.seldom(0.5), c.seldom(0.5)
	s.longestPause, s.longestCut, s.leaders = c.between(1500*time.Millisecond, 3*time.Second), c.between(1500*time.Millisecond, 3*time.Second), 0.9
	s.receiverSlow = c.between(time.Second, callTimeout)
	s.think, s.clients = c.between(5*time.Millisecond, 60*time.Millisecond), 6+c.IntN(6)
	s.crashes, s.longestDown = c.seldom(0.3), c.between(50*time.Millisecond, time.Second)
	s.powerCuts, s.full, s.breaker, s.slots = 0, 0, 0, 0
	s.receiverHangs = c.seldom(0.4)
}

// restless moves replicas all the time, in shards with little load, and cuts the power again and
// again, so that knowledge of only one replica is lost. With one or two replicas each is needed.
func (s *swarm) restless(c chance) {
	s.nodes, s.replicas = 3+c.IntN(2), 1+c.IntN(3)
	s.moves, s.powerCuts, s.atMoves = 0.3+c.Float64(), 0.02+0.2*c.Float64(), 0.1+0.3*c.Float64()
	s.longestDown = c.between(100*time.Millisecond, 3*time.Second)
	s.think, s.clients = c.between(200*time.Millisecond, 2*time.Second), 2+c.IntN(4)
	s.pauses, s.longestPause, s.leaders = c.seldom(0.4), c.between(1500*time.Millisecond, 5*time.Second), 0.9
	s.diskErrors, s.full, s.partitions = 0, 0, c.seldom(0.1)
}

// dark kills processes, often all of them, and restarts them at once. They lose unsynced state
// while others still act on it, and elections are contested.
func (s *swarm) dark(c chance) {
	s.nodes, s.shards = 3, 2+c.IntN(4)
	s.powerCuts, s.crashes = 0.05+0.3*c.Float64(), 0.2+0.6*c.Float64()
	s.longestDown = c.between(50*time.Millisecond, 700*time.Millisecond)
	s.slow, s.slowest = c.seldom(0.3), c.between(50*time.Millisecond, time.Second)
	s.partitions, s.pauses, s.diskErrors, s.full, s.moves, s.rots, s.wipes = 0, 0, 0, 0, 0, 0, 0
}

// rotting damages or wipes one disk after another, with few other faults, because both happen only
// while the rest of the cluster is whole.
func (s *swarm) rotting(c chance) {
	s.nodes, s.replicas = 3+c.IntN(2), 3
	s.rots, s.wipes = 0.2+0.6*c.Float64(), c.seldom(0.3)
	s.segmentBytes = 16 << 10
	s.crashes, s.longestDown = c.seldom(0.1), time.Second
	s.loss, s.slow, s.slowSync = 0, 0, 0
	s.partitions, s.pauses, s.powerCuts, s.diskErrors, s.full, s.moves = 0, 0, 0, 0, 0, 0
}

// failing makes syncs fail in groups of one or two replicas, and processes die soon after. The
// unsynced data is gone then, even if a retried sync succeeded.
func (s *swarm) failing(c chance) {
	s.nodes, s.replicas = 3, 1+c.IntN(2)
	s.diskErrors, s.crashes, s.powerCuts = 0.1+0.4*c.Float64(), 0.2+0.6*c.Float64(), c.seldom(0.1)
	s.longestDown = c.between(50*time.Millisecond, time.Second)
	s.keepData = c.IntN(50)
	s.partitions, s.pauses, s.moves, s.rots, s.wipes, s.full = 0, 0, 0, 0, 0, 0
}

// rationed loads the topics with limits, by long calls and pulls, while leaderships and heartbeats
// are interrupted. Other load is low.
func (s *swarm) rationed(c chance) {
	s.limits, s.replicas = true, 1+c.IntN(3)
	s.partitions, s.crashes, s.pauses, s.handOvers = c.seldom(0.5), c.seldom(0.5), c.seldom(0.4), c.seldom(0.4)
	s.longestCut, s.longestDown = c.between(time.Second, 15*time.Second), c.between(50*time.Millisecond, 12*time.Second)
	s.receiverSlow = c.between(100*time.Millisecond, callTimeout)
	s.clients, s.think = 1, c.between(20*time.Millisecond, 200*time.Millisecond)
	s.sickThink, s.apart, s.topics = 0, false, 0
	s.moves, s.wipes, s.rots, s.full, s.diskErrors = 0, 0, 0, 0, 0
}

// wide is a profile of its own: thirty nodes in three zones with 128 shards, which double, while
// some processes end, stand still or are cut off. Two faults at once seldom meet in one shard, so
// that most of them serve all the time. A run takes minutes.
const wide = "wide"

func (s *swarm) wide(c chance) {
	s.nodes, s.shards, s.replicas, s.zones = 30, 128, 3, 3
	s.safety = 20 * time.Second
	s.crashes, s.pauses, s.partitions = 0.05+0.1*c.Float64(), c.seldom(0.1), c.seldom(0.1)
	s.longestPause, s.longestCut, s.longestDown = 5*time.Second, 5*time.Second, 5*time.Second
	s.diskErrors, s.powerCuts, s.moves, s.wipes, s.rots, s.full = 0, 0, 0, 0, 0, 0
	s.clients, s.think = 10, c.between(50*time.Millisecond, 200*time.Millisecond)
	s.clocks = clockFaults{}
}
