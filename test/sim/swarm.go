package sim

import "time"

// swarm holds the parameters and fault rates of a run. Each fault is absent from half of the runs,
// because one fault may hide the effect of another.
type swarm struct {
	safety                  time.Duration // length of the first phase
	nodes, shards, replicas int
	zones                   int // that the nodes are in, in turn; 0: none is named
	clients                 int
	think                   time.Duration // between two operations of a client

	// The network. Rates are per frame.
	loss, duplicate, reset float64
	delay                  time.Duration // the usual delay
	slow                   float64       // frames that take up to slowest
	slowest                time.Duration
	ordered                bool // frames between two nodes keep their order

	// Rates per second in the whole cluster.
	partitions, crashes, pauses, steps, diskErrors, powerCuts, handOvers, moves, wipes, rots, full, topics float64

	falseWords   float64 // per second; see speakFalsely
	early        bool    // faults begin before the cluster is founded
	longestPause time.Duration
	atMoves      float64 // share of the steps of a move after which the power is cut soon
	longestCut   time.Duration
	longestDown  time.Duration // of a process that ended
	leaders      float64       // share of pauses and cuts that hit a leader, not any node
	keepNames    int           // percentage of unsynced names that a crash keeps
	keepData     int
	tear         int
	garbage      bool    // … in blocks that were never written
	atEffect     float64 // share of crashes between two disk operations

	diskLatency time.Duration
	slowSync    float64 // syncs that take up to slowestSync
	slowestSync time.Duration

	drift float64

	segmentBytes, genBytes int64
	retainBytes            int
	snapshotBytes          int64

	receiverFails, receiverHangs, receiverLost, receiverStops float64
	receiverSlow                                              time.Duration
	slots                                                     int // per destination; 0: unlimited
	calls                                                     int // per node at once
	breaker                                                   float64
	// between adds to the sick topic; 0: none
	sickThink time.Duration
	// at the end, check that one topic's dead receivers do not delay another
	apart bool

	toil float64 // how many times as slow turns are; 0: they take no time

	limits bool // workloads load the topics with limits

	ordeals  ordeals
	ailments ailments
	clocks   clockFaults
	bounds   bounds
	padding  int // most bytes that make payloads longer

	replicaFaults replicaFaults
}

// draw draws the parameters of a run.
func draw(c chance, profile string) swarm {
	s := swarm{
		safety: c.between(20*time.Second, 70*time.Second),
		nodes:  3, shards: 2 + c.IntN(3), replicas: 3,
		clients: 3 + c.IntN(8), think: c.between(10*time.Millisecond, 400*time.Millisecond),
		loss: c.seldom(0.15), duplicate: c.seldom(0.1), reset: c.seldom(0.3),
		delay: c.between(100*time.Microsecond, 3*time.Millisecond),
		slow:  c.seldom(0.1), slowest: c.between(10*time.Millisecond, 3*time.Second),
		ordered:    c.IntN(2) == 0,
		partitions: c.seldom(0.3), crashes: c.seldom(0.3), pauses: c.seldom(0.2), steps: c.seldom(0.3), diskErrors: c.seldom(0.05),
		powerCuts: c.seldom(0.05), handOvers: c.seldom(0.2), moves: c.seldom(0.15), wipes: c.seldom(0.03), rots: c.seldom(0.2), full: c.seldom(0.03), topics: c.seldom(0.2),
		longestPause: c.between(100*time.Millisecond, 40*time.Second), longestCut: 15 * time.Second, longestDown: 12 * time.Second, leaders: 0.5,
		tear: 512 << (3 * c.IntN(2)), atEffect: c.seldom(1),
		diskLatency: c.between(20*time.Microsecond, 8*time.Millisecond),
		slowSync:    c.seldom(0.02), slowestSync: c.between(10*time.Millisecond, 3*time.Second),
		drift:         c.seldom(500e-6),
		segmentBytes:  16 << 10 << c.IntN(3),
		receiverFails: c.seldom(0.3), receiverHangs: c.seldom(0.1), receiverLost: c.seldom(0.1), receiverStops: c.seldom(0.3),
		receiverSlow: c.between(time.Millisecond, time.Second),
	}
	if c.IntN(2) == 0 {
		s.keepNames, s.keepData, s.garbage = c.IntN(101), c.IntN(101), c.IntN(2) == 0
	}
	if c.IntN(2) == 0 {
		s.slots = 1 + c.IntN(4)
	}
	s.calls = 16 << c.IntN(3)
	s.breaker = c.seldom(0.05)
	s.genBytes = s.segmentBytes * int64(1+c.IntN(6))
	switch c.IntN(4) {
	case 0:
		s.nodes = 4 + c.IntN(2)
	case 1:
		s.nodes = 1 + c.IntN(3)
	}
	if c.IntN(2) == 0 {
		s.sickThink = c.between(30*time.Millisecond, time.Second)
	}
	s.apart = c.IntN(3) == 0
	s.early = c.IntN(4) == 0
	s.retainBytes = 1 << (8 + c.IntN(14))
	s.snapshotBytes = 1 << (12 + c.IntN(10))
	s.profile(c, profile)
	return s
}

// calm ends all random faults, for the second phase.
func (s *swarm) calm() {
	s.loss, s.duplicate, s.reset, s.slow, s.slowSync = 0, 0, 0, 0, 0
	s.partitions, s.crashes, s.pauses, s.steps, s.diskErrors, s.powerCuts, s.handOvers, s.moves, s.wipes, s.rots, s.full, s.topics, s.atMoves = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	s.falseWords = 0
	s.clocks = clockFaults{}
	s.receiverFails, s.receiverHangs, s.receiverLost, s.receiverStops, s.breaker = 0, 0, 0, 0, 0
	s.receiverSlow, s.diskLatency = 20*time.Millisecond, time.Millisecond
}
