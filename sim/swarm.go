package sim

import "time"

// swarm is what may go wrong in a run, and how often. Half of the faults are absent from any one run: what hides behind one fault shows
// in a run without it.
type swarm struct {
	safety                  time.Duration // how long anything may fail
	nodes, shards, replicas int
	clients                 int
	think                   time.Duration // between a client's operations

	// The network. Rates are per frame.
	loss, duplicate, reset float64
	delay                  time.Duration // usual
	slow                   float64       // frames that take up to slowest
	slowest                time.Duration
	ordered                bool // frames between two nodes do not overtake each other

	// How many a second, of the whole cluster.
	partitions, crashes, pauses, steps, diskErrors, powerCuts, handOvers, moves, wipes, rots, full, topics float64

	early        bool // trouble begins before the cluster is founded
	longestPause time.Duration
	atMoves      float64 // of the steps of a move: the power is cut soon after
	longestCut   time.Duration
	longestDown  time.Duration // of a process that ended
	leaders      float64       // of pauses and cuts: of a leader and those it talks to, not of anybody
	keepNames    int           // what a crash leaves of what was not synced, percent
	keepData     int
	tear         int
	garbage      bool    // … in blocks that hold nothing yet
	atEffect     float64 // of the crashes: in the middle of what the disk does

	diskLatency time.Duration
	slowSync    float64 // syncs that take up to slowestSync
	slowestSync time.Duration

	drift float64

	segmentBytes, genBytes int64
	retainBytes            int
	snapshotBytes          int64

	receiverFails, receiverHangs, receiverLost, receiverStops float64
	receiverSlow                                              time.Duration
	slots                                                     int // of each destination; 0: unlimited
	calls                                                     int // of a node at once
	breaker                                                   float64
	sickThink                                                 time.Duration // between adds to the topic whose receiver is ill; 0: none
	apart                                                     bool          // at the end, is a healthy topic hurt by another's dead receiver?

	limits bool // workloads ask for much of topics with limits

	ordeals  ordeals
	ailments ailments
	clocks   clockFaults
	bounds   bounds
	padding  int // bytes that payloads have beside what tells them apart, at most

	replicaFaults replicaFaults
}

// draw makes a run's swarm.
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

// calm takes what goes wrong away: the second phase.
func (s *swarm) calm() {
	s.loss, s.duplicate, s.reset, s.slow, s.slowSync = 0, 0, 0, 0, 0
	s.partitions, s.crashes, s.pauses, s.steps, s.diskErrors, s.powerCuts, s.handOvers, s.moves, s.wipes, s.rots, s.full, s.topics, s.atMoves = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	s.clocks = clockFaults{}
	s.receiverFails, s.receiverHangs, s.receiverLost, s.receiverStops, s.breaker = 0, 0, 0, 0, 0
	s.receiverSlow, s.diskLatency = 20*time.Millisecond, time.Millisecond
}
