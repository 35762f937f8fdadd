package ring

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"carillon/timer"
)

const (
	// turnMs is how long a node's turn lasts where a limit is smaller than the number of nodes that
	// lead; aheadMs before it the node asks.
	turnMs  = 1000
	aheadMs = 500
	// silentFor is after how much silence a node's part is taken for free, unless another node
	// hears it. This node may use its own part for a little less time without being heard itself.
	silentFor = 5 * time.Second
	heardFor  = 1500 * time.Millisecond
	freshFor  = silentFor - 500*time.Millisecond
	// longestLook bounds how much one look adds to a silence: a node that was stopped for long has
	// heard no other, through no fault of theirs.
	longestLook = 500 * time.Millisecond
	// maxParts bounds the topics in a node's report. Beyond them its part of a limit is the one of
	// its own view, unconfirmed.
	maxParts  = 8192
	sentKept  = 64
	seqOfLife = 32 // bits of a Says' number that count within one process
)

// Shares are one node's parts of the limits that topics have in the whole cluster. The part that a
// node should have follows from the leaders of the shards (see shareView): of a rate its share of
// the shards; of leases at once one, and of the rest its share of the shards; where there are fewer
// than nodes that lead, these take turns by the clock of the first of them.
//
// Nodes do not see leaderships move at the same moment, and leases outlast turns and leaderships.
// So the leases that a node should have at once are not those that it may have. It says in each
// heartbeat how many it may come to (Part). It may go up only by the rest that all others' parts
// leave, as they say them after they have heard of its own: of two that go up at the same time, the
// later one has heard of the earlier. It goes down by itself, and says so once it has no more
// leases than that.
//
// Invariant: at any time the leases that nodes have taken of a topic are together no more than its
// limit, whichever leaders they believe in, with any clocks, and with heartbeats of any delay; as
// long as no node leads of which another that leads has not heard for silentFor, nor any node that
// the other hears; and no process ends with leases of consumers in a shard that then has no leader
// for silentFor.
//
// Methods may be called from any goroutine. Nothing here reads a clock.
type Shares struct {
	self uint64

	mu     sync.Mutex
	view   *shareView
	turn   int64
	seq    uint64
	sent   [sentKept]time.Duration // when the last ones were said, by number
	looked time.Duration
	begun  bool          // it has looked
	unsure time.Duration // so long yet
	// Until then the leases that this node may take are its own, unless it is heard again.
	fresh  time.Duration
	parts  map[timer.TopicID]*part
	others map[uint64]*other
}

// part is this node's part of one topic's leases at once.
type part struct {
	topic  *timer.Topic
	limit  int
	target int    // the part that it should have
	told   int    // the part that it said that it may come to
	since  uint64 // the first Says with that, or more
	may    int    // the part that it may have
}

// other is the latest report of another node.
type other struct {
	process uint64
	seq     uint64
	silence time.Duration
	word    uint64        // the last of its Says that this node knows anybody to have heard
	lost    time.Duration // since that was news
	free    bool          // it has been lost for so long that its parts are taken for free
	met     bool
	wallMs  int64
	at      time.Duration // when it said so; this node's monotonic clock
	unsure  bool
	untold  bool
	heard   map[uint64]uint64
	parts   map[timer.TopicID]int
}

// Says is a node's report of its parts, in each heartbeat.
type Says struct {
	Seq    uint64 // grows from one to the next, over all its processes
	WallMs int64
	Heard  []Heard // the latest report of each node that it hears
	Parts  []Part  // by topic, in rising order
	// Its process has just begun: consumers may have leases from the one before, which nobody
	// counts yet.
	Unsure bool
	Untold bool // it says nothing of these: a node of an older kind
}

// Heard is the last Says that was heard of a node.
type Heard struct{ Node, Seq uint64 }

// Part is how many leases at once a node may come to.
type Part struct {
	Topic  timer.TopicID
	Leases int
}

// Observation is the input of Look.
type Observation struct {
	Now    time.Duration // monotonic
	WallMs int64
	Shards int
	Leads  map[uint64]int64 // how many shards each node leads, as far as is known
	Mine   []timer.ShardID  // the shards that this node leads
	Others []uint64         // the cluster's other nodes
	Topics []*timer.Topic   // those with a Concurrency
	// Leases of this node. Called without a lock: Concurrency may be called meanwhile.
	Held func(timer.TopicID) int
}

// NewShares is for the n-th process of a node (its start number).
func NewShares(self uint64, starts uint32) *Shares {
	s := &Shares{self: self, seq: uint64(starts) << seqOfLife, parts: map[timer.TopicID]*part{}, others: map[uint64]*other{}}
	if starts > 1 {
		s.unsure = silentFor
	}
	return s
}

// Rate implements scheduler.Shares.
func (s *Shares) Rate(t *timer.Topic) (perSecond float64, burst int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.rate(t, s.turn)
}

// Concurrency implements scheduler.Shares.
func (s *Shares) Concurrency(t *timer.Topic, limit int, now time.Duration) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[t.ID]
	switch {
	case p == nil && (len(s.parts) >= maxParts || s.alone()):
		return s.view.units(t, limit, s.turn)
	case p == nil || now > s.fresh:
		return 0
	}
	return min(p.may, limit)
}

// Abandoned implements scheduler.Shares.
func (s *Shares) Abandoned(id timer.TopicID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parts[id]; p != nil && !s.alone() {
		p.may, p.since = max(0, p.may-1), s.seq+1
	}
}

// alone reports that there is nobody to share with.
func (s *Shares) alone() bool {
	for _, o := range s.others {
		if !o.free {
			return false
		}
	}
	return true
}

// Look takes stock, and gives the report that is to be sent now.
func (s *Shares) Look(st *Observation) Says {
	s.mu.Lock()
	s.take(st)
	for _, t := range st.Topics {
		p := s.parts[t.ID]
		if p == nil {
			if len(s.parts) >= maxParts {
				continue
			}
			p = &part{}
			s.parts[t.ID] = p
		}
		p.topic, p.limit = t, t.Policy.Concurrency
		p.target = max(s.view.units(t, p.limit, s.turn), s.view.units(t, p.limit, s.turnAt(st, aheadMs)))
		p.may = min(p.may, p.target)
	}
	s.mu.Unlock()

	// Leases are counted once none above the target can be taken any more: so the count is no less
	// than any later one.
	held := make([]int, len(st.Topics))
	for i, t := range st.Topics {
		held[i] = st.Held(t.ID)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	s.sent[s.seq%sentKept] = st.Now
	says := Says{Seq: s.seq, WallMs: st.WallMs, Unsure: s.unsure > 0}
	for i, t := range st.Topics {
		p := s.parts[t.ID]
		if p == nil {
			continue
		}
		told := max(p.target, held[i])
		if told > p.told {
			p.since = s.seq
		}
		p.told = told
		s.confirm(p, st.Now)
		if told > 0 {
			says.Parts = append(says.Parts, Part{t.ID, told})
		}
	}
	slices.SortFunc(says.Parts, func(a, b Part) int { return int(int64(a.Topic) - int64(b.Topic)) })
	for _, id := range slices.Sorted(maps.Keys(s.others)) {
		if o := s.others[id]; o.met && o.silence < heardFor {
			says.Heard = append(says.Heard, Heard{id, o.seq})
		}
	}
	return says
}

// take notes the state of things: the nodes that are there, and the silent ones; the leaders; the
// topics that have a limit no more.
func (s *Shares) take(st *Observation) {
	passed := min(max(0, st.Now-s.looked), longestLook)
	if !s.begun {
		passed, s.begun = 0, true
	}
	s.looked = st.Now
	s.unsure -= passed
	for _, id := range st.Others {
		if s.others[id] == nil {
			s.others[id] = &other{}
		}
	}
	for id, o := range s.others {
		o.lost += passed
		if o.silence += passed; o.silence >= silentFor && !slices.Contains(st.Others, id) {
			// Before that it may be a member already: this node hears that later than others.
			delete(s.others, id)
		}
	}
	for _, o := range s.others {
		o.free = o.lost >= silentFor
	}
	s.refresh(st.Now)
	s.view = newShareView(st.Shards, st.Leads, s.self)
	s.turn = s.turnAt(st, 0)
	if len(s.parts) > 0 {
		limited := make(map[timer.TopicID]bool, len(st.Topics))
		for _, t := range st.Topics {
			limited[t.ID] = true
		}
		for id := range s.parts {
			if !limited[id] {
				delete(s.parts, id)
			}
		}
	}
}

// turnAt is whose turn it is, by the clock of the first that leads: so one clock that is off shifts
// it for all.
func (s *Shares) turnAt(st *Observation, ahead int64) int64 {
	ms := st.WallMs
	if len(s.view.nodes) > 0 {
		if o := s.others[s.view.nodes[0]]; o != nil && o.met && o.silence < silentFor {
			ms = o.wallMs + (st.Now - o.at).Milliseconds()
		}
	}
	return (max(ms, 0) + ahead) / turnMs
}

// refresh works out how long this node can know that others heed its report: as long as one of them
// has heard it lately, or there is none.
func (s *Shares) refresh(now time.Duration) {
	if s.fresh > 0 && now > s.fresh { // they may have taken its parts for free since
		s.startOver()
	}
	s.fresh = 0
	if s.alone() {
		s.fresh = math.MaxInt64
		return
	}
	for _, o := range s.others {
		if at, ok := s.saidAt(o.heard[s.self]); ok && !o.free {
			s.fresh = max(s.fresh, at+freshFor)
		}
	}
}

// saidAt is when this node said something; false: it is too long ago, or another process did.
func (s *Shares) saidAt(seq uint64) (time.Duration, bool) {
	if seq == 0 || seq > s.seq || seq>>seqOfLife != s.seq>>seqOfLife || s.seq-seq >= sentKept || seq&(1<<seqOfLife-1) == 0 {
		return 0, false
	}
	return s.sent[seq%sentKept], true
}

// confirm lets a part go up by the rest that the others leave, if they say so knowing of it. Nor
// does it go up while consumers may have leases from this node's process before, which took them of
// the part that no other node may have meanwhile.
func (s *Shares) confirm(p *part, now time.Duration) {
	if s.unsure > 0 && !s.alone() {
		return
	}
	left := p.limit
	for id, o := range s.others {
		switch {
		case o.free:
			continue
		case !o.met, o.unsure, o.silence >= silentFor:
			return
		case o.untold:
			if at, ok := slices.BinarySearch(s.view.nodes, id); ok {
				left -= s.view.unitsOf(at, p.topic, p.limit, s.turn)
			}
			continue
		case o.heard[s.self] < p.since:
			// It may be deaf to this node, and then is silent for it: it goes up no more itself
			// while others hear this node.
			at, ok := s.saidAt(p.since)
			if _, hears := o.heard[s.self]; hears || ok && now-at < silentFor {
				return
			}
		}
		left -= o.parts[p.topic.ID]
	}
	p.may = max(p.may, min(p.target, left))
}

// Hear takes the report of another node.
func (s *Shares) Hear(now time.Duration, from uint64, says *Says) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.others[from]
	if o == nil {
		o = &other{}
		s.others[from] = o
	}
	if !says.Untold && o.met && says.Seq <= o.seq {
		return // it was overtaken
	}
	s.found(o, says.Seq)
	*o = other{process: says.Seq >> seqOfLife, seq: says.Seq, word: max(o.word, says.Seq), met: true, wallMs: says.WallMs, at: now, unsure: says.Unsure, untold: says.Untold,
		heard: make(map[uint64]uint64, len(says.Heard)), parts: make(map[timer.TopicID]int, len(says.Parts))}
	for _, h := range says.Heard {
		o.heard[h.Node] = h.Seq
		if third := s.others[h.Node]; third != nil && h.Seq > third.word {
			s.found(third, h.Seq)
		}
	}
	for _, p := range says.Parts {
		o.parts[p.Topic] = p.Leases
	}
	s.refresh(now)
	for _, p := range s.parts {
		if p.may < p.target {
			s.confirm(p, now)
		}
	}
}

// found notes that a node has said something new, to this one or to one that this one hears.
func (s *Shares) found(o *other, seq uint64) {
	if o.free && (!o.met || o.process == seq>>seqOfLife) {
		s.startOver() // each has taken the other's part for free
	}
	o.word, o.lost, o.free = max(o.word, seq), 0, false
}

// startOver gives up this node's parts, until all have heard of it anew.
func (s *Shares) startOver() {
	for _, p := range s.parts {
		p.may, p.since = 0, s.seq+1
	}
}
