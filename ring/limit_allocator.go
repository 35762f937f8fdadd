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
	// lead. The node asks for its part aheadMs before.
	turnMs  = 1000
	aheadMs = 500
	// silenceTimeout is how long a node must be silent until its part counts as free, unless
	// another node hears it. A node that is not heard may use its own part for a little less.
	silenceTimeout = 5 * time.Second
	liveWithin     = 1500 * time.Millisecond
	ownPartsFor    = silenceTimeout - 500*time.Millisecond
	// maxTickGap bounds how much one tick adds to a silence: a node that was stopped for a while
	// has received nothing, through no fault of the others.
	maxTickGap = 500 * time.Millisecond
	// maxParts bounds the topics in a report. A node's part of any further limit is that of its own
	// view, unconfirmed.
	maxParts    = 8192
	keptReports = 64
	seqBits     = 32 // bits of a report's number that count within one process
)

// LimitAllocator has one node's parts of the limits that topics have in the whole cluster. The part
// that a node should have follows from the leaders of the shards (see shareView): of a rate, its
// share of the shards; of leases at once, one, and of the rest its share of the shards, or, where a
// topic's keys take turns, of the weights of its keys with something due that the nodes report.
// Where a limit is smaller than the number of nodes that lead, these take turns by the clock of the
// first of them.
//
// Nodes do not see leaderships move at the same moment, and leases outlast turns and leaderships.
// So the leases that a node should have at once are not those that it may have. It reports in each
// heartbeat how many it may reach (Part). It may raise its part only by the rest that all others'
// parts leave, in reports that they made after they received its own: of two that raise theirs at
// the same time, the later one has received the report of the earlier. It lowers its part by
// itself, and reports that once it has no more leases than that.
//
// A report lists the reports that its node has received only while the node knows a topic with such
// a limit, or of a node with a part: the list grows with the cluster, and most clusters never need
// it. A report without the list proves nothing of what was received: the nodes that it does not
// name as unheard raise no part while its node sends such reports.
//
// Invariant: at any time the leases that nodes have taken of a topic are together no more than its
// limit, whichever leaders they believe in, with any clocks, and with heartbeats of any delay. This
// holds while no leading node has been silent for silenceTimeout both to another one and to all
// nodes that the other hears, and no process ends with leases of consumers in a shard that then has
// no leader for silenceTimeout.
//
// Methods may be called from any goroutine. Nothing here reads a clock.
type LimitAllocator struct {
	self uint64

	mu     sync.Mutex
	view   *shareView
	turn   int64
	seq    uint64
	sent   [keptReports]time.Duration // when the last reports were made, by number
	ticked time.Duration
	begun  bool          // it has ticked
	unsure time.Duration // how long it still is; see AllocationReport
	// Until then the parts are this node's, and longer if it is heard again.
	fresh  time.Duration
	limits *limitList // only Tick sets it, which one goroutine calls
	others map[uint64]*other
}

// limitList is the topics that the last Tick was given, and this node's parts of them. It does not
// change, but for what a part is.
type limitList struct {
	given  []*timer.Topic
	topics []*timer.Topic // of given, those that have a part; by id
	parts  []*part        // … these
	byID   map[timer.TopicID]*part
}

// with is the list for what Tick is given now: who has a part keeps it, and others get one while
// there is room. Cost: O(1), and O(topics) after one of them has changed.
func (l *limitList) with(given []*timer.Topic) *limitList {
	if same(given, l.given) {
		return l
	}
	had, room := make([]*part, len(given)), maxParts
	for i, t := range given {
		if had[i] = l.byID[t.ID]; had[i] != nil {
			room--
		}
	}
	next := &limitList{given: given, byID: make(map[timer.TopicID]*part, maxParts-room)}
	for i, t := range given {
		p := had[i]
		if p == nil {
			if room == 0 {
				continue
			}
			p, room = &part{}, room-1
		}
		next.topics, next.parts, next.byID[t.ID] = append(next.topics, t), append(next.parts, p), p
	}
	return next
}

// part is this node's part of one topic's leases at once.
type part struct {
	topic    *timer.Topic
	limit    int
	target   int    // the part that it should have
	reported int    // the part that it has reported
	since    uint64 // the first report with that, or more
	allowed  int    // the part that it may have
	keys     keyCount
}

// keyCount is the smoothed weight of a topic's keys with something due on this node. It follows the
// count slowly, in steps: parts cannot follow a count that changes from one heartbeat to the next.
type keyCount struct {
	average float64
	shown   int
}

func (c *keyCount) follow(keys int) {
	c.average += (float64(keys) - c.average) / 8
	if off := math.Abs(c.average - float64(c.shown)); off >= max(0.5, float64(c.shown)/4) {
		c.shown = int(math.Round(c.average))
	}
}

// other is the latest report of another node.
type other struct {
	process uint64
	seq     uint64
	silence time.Duration
	lastSeq uint64        // its last report that some node has received, for all this one knows
	lost    time.Duration // since lastSeq has grown
	free    bool          // it has been lost for silenceTimeout: its parts count as free
	met     bool
	wallMs  int64
	at      time.Duration // when it reported that; this node's monotonic clock
	unsure  bool
	mayHear bool   // it receives this node's reports, or does not list what it receives
	heard   uint64 // … the last one that it has received
	parts   map[timer.TopicID]Part
}

// AllocationReport is a node's report of its parts, in each heartbeat.
type AllocationReport struct {
	Seq      uint64 // grows from one to the next, over all its processes
	WallMs   int64
	Received []ReportRef // the latest report of each node that it hears, unless Unlisted
	Parts    []Part      // by topic, in rising order
	// Its process has just begun: consumers may have leases from the one before, which nobody
	// counts yet.
	Unsure   bool
	Unlisted bool // Received is left out: for all that its node knows, nobody has a part
	// If Unlisted: the nodes that it does not hear. That may be why it knows of no topic.
	Unheard []uint64
}

// ReportRef is the last report that was received from a node.
type ReportRef struct{ Node, Seq uint64 }

// Part is how many leases at once a node may reach, and the weights, together, of the keys that
// have something due on it, if the topic's keys take turns.
type Part struct {
	Topic  timer.TopicID
	Leases int
	Keys   int
}

// Observation is the input of Tick.
type Observation struct {
	Now    time.Duration // monotonic
	WallMs int64
	Shards int
	Leads  map[uint64]int64 // how many shards each node is known to lead
	Others []uint64         // the cluster's other nodes
	Topics []*timer.Topic   // those with a Concurrency, by id; another slice if one has changed
	// Held is the leases of this node, and Keys the weights of the keys with something due on it.
	// Both are called without a lock of the allocator: their own locks are held where Concurrency is
	// called.
	Held, Keys func(timer.TopicID) int
}

// NewLimitAllocator is for one process of a node. starts is its number.
func NewLimitAllocator(self uint64, starts uint32) *LimitAllocator {
	s := &LimitAllocator{self: self, seq: uint64(starts) << seqBits, limits: &limitList{}, others: map[uint64]*other{}}
	if starts > 1 {
		s.unsure = silenceTimeout
	}
	return s
}

// Rate implements scheduler.Shares.
func (l *LimitAllocator) Rate(t *timer.Topic) (perSecond float64, burst int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.rate(t, l.turn)
}

func (l *LimitAllocator) Concurrency(t *timer.Topic, limit int, now time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.limits.byID[t.ID]
	switch {
	case p == nil && (len(l.limits.parts) >= maxParts || l.alone()):
		return l.view.units(t, limit, l.turn)
	case p == nil || now > l.fresh:
		return 0
	}
	return min(p.allowed, limit)
}

func (l *LimitAllocator) Abandoned(id timer.TopicID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.limits.byID[id]; p != nil && !l.alone() {
		p.allowed, p.since = max(0, p.allowed-1), l.seq+1
	}
}

// alone reports that there is nobody to share with.
func (l *LimitAllocator) alone() bool {
	for _, o := range l.others {
		if !o.free {
			return false
		}
	}
	return true
}

// Tick brings the parts up to date, and returns the report that is to be sent now. Schedulers wait
// meanwhile: O(parts), at most maxParts.
func (l *LimitAllocator) Tick(st *Observation) AllocationReport {
	limits := l.limits.with(st.Topics)
	weights := make([]int, len(limits.topics))
	for i, t := range limits.topics {
		if t.Policy.PerKey.TakeTurns() {
			weights[i] = st.Keys(t.ID)
		}
	}
	l.mu.Lock()
	l.observe(st)
	l.limits = limits
	for i, t := range limits.topics {
		p := limits.parts[i]
		p.topic, p.limit = t, t.Policy.Concurrency
		p.target = max(l.view.units(t, p.limit, l.turn), l.view.units(t, p.limit, l.turnAt(st, aheadMs)))
		if t.Policy.PerKey.TakeTurns() && p.limit >= len(l.view.nodes) {
			p.keys.follow(weights[i])
			p.target = l.byKeys(p)
		}
		p.allowed = min(p.allowed, p.target)
	}
	l.mu.Unlock()

	// Leases are counted once none above the target can be taken any more: so the count is no less
	// than any later one.
	held := make([]int, len(limits.topics))
	for i, t := range limits.topics {
		held[i] = st.Held(t.ID)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.sent[l.seq%keptReports] = st.Now
	report := AllocationReport{Seq: l.seq, WallMs: st.WallMs, Unsure: l.unsure > 0}
	for i, t := range limits.topics {
		p := limits.parts[i]
		most := max(p.target, held[i])
		if most > p.reported {
			p.since = l.seq
		}
		p.reported = most
		l.confirm(p, st.Now)
		keys := 0
		if t.Policy.PerKey.TakeTurns() {
			keys = p.keys.shown
		}
		if most+keys > 0 {
			report.Parts = append(report.Parts, Part{t.ID, most, keys})
		}
	}
	report.Unlisted = len(st.Topics) == 0 && !l.othersHaveParts()
	for _, id := range slices.Sorted(maps.Keys(l.others)) {
		o := l.others[id]
		switch {
		case report.Unlisted && (!o.met || o.silence >= silenceTimeout):
			report.Unheard = append(report.Unheard, id)
		case !report.Unlisted && o.met && o.silence < liveWithin:
			report.Received = append(report.Received, ReportRef{id, o.seq})
		}
	}
	return report
}

// othersHaveParts reports whether another node that is not silent has a part of a limit. This node
// may learn of the topic later. O(nodes).
func (l *LimitAllocator) othersHaveParts() bool {
	for _, o := range l.others {
		if len(o.parts) > 0 && o.silence < silenceTimeout {
			return true
		}
	}
	return false
}

// byKeys is this node's part by the weights of the keys that have something due; by shards while
// there are none.
func (l *LimitAllocator) byKeys(p *part) int {
	v := l.view
	if v.me < 0 {
		return 0
	}
	weights, sum := make([]int64, len(v.nodes)), int64(0)
	for i, id := range v.nodes {
		weights[i] = int64(p.keys.shown)
		if id != l.self {
			weights[i] = 0
			if o := l.others[id]; o != nil {
				weights[i] = int64(o.parts[p.topic.ID].Keys)
			}
		}
		sum += weights[i]
	}
	if sum == 0 {
		return p.target
	}
	return divide(p.limit, v.me, weights, sum)
}

// observe takes over which nodes there are, which are silent, and which lead.
func (l *LimitAllocator) observe(st *Observation) {
	passed := min(max(0, st.Now-l.ticked), maxTickGap)
	if !l.begun {
		passed, l.begun = 0, true
	}
	l.ticked = st.Now
	l.unsure -= passed
	for _, id := range st.Others {
		if l.others[id] == nil {
			l.others[id] = &other{}
		}
	}
	for id, o := range l.others {
		o.lost += passed
		if o.silence += passed; o.silence >= silenceTimeout && !slices.Contains(st.Others, id) {
			// Before that it may be a member already: this node hears that later than others.
			delete(l.others, id)
		}
	}
	for _, o := range l.others {
		o.free = o.lost >= silenceTimeout
	}
	l.refresh(st.Now)
	l.view = newShareView(st.Shards, st.Leads, l.self)
	l.turn = l.turnAt(st, 0)
}

// turnAt is whose turn it is, by the clock of the first that leads: so one clock that is off shifts
// it for all.
func (l *LimitAllocator) turnAt(st *Observation, ahead int64) int64 {
	ms := st.WallMs
	if len(l.view.nodes) > 0 {
		if o := l.others[l.view.nodes[0]]; o != nil && o.met && o.silence < silenceTimeout {
			ms = o.wallMs + (st.Now - o.at).Milliseconds()
		}
	}
	return (max(ms, 0) + ahead) / turnMs
}

// refresh sets until when the parts are this node's: while another node has received its report
// lately, or there is no other.
func (l *LimitAllocator) refresh(now time.Duration) {
	if l.fresh > 0 && now > l.fresh { // its parts may have counted as free since
		l.startOver()
	}
	l.fresh = 0
	if l.alone() {
		l.fresh = math.MaxInt64
		return
	}
	for _, o := range l.others {
		if at, ok := l.sentAt(o.heard); ok && !o.free {
			l.fresh = max(l.fresh, at+ownPartsFor)
		}
	}
}

// sentAt is when this node made a report. false: it was too long ago, or another process made it.
func (l *LimitAllocator) sentAt(seq uint64) (time.Duration, bool) {
	if seq == 0 || seq > l.seq || seq>>seqBits != l.seq>>seqBits || l.seq-seq >= keptReports || seq&(1<<seqBits-1) == 0 {
		return 0, false
	}
	return l.sent[seq%keptReports], true
}

// confirm raises a part by the rest that the others leave, if they reported that knowing of its
// target. A part does not rise while consumers may have leases from this node's process before:
// those were taken of a part that no other node may have meanwhile.
func (l *LimitAllocator) confirm(p *part, now time.Duration) {
	if l.unsure > 0 && !l.alone() {
		return
	}
	if p.since > l.seq {
		return // no report has said it yet
	}
	left := p.limit
	for _, o := range l.others {
		switch {
		case o.free:
			continue
		case !o.met, o.unsure, o.silence >= silenceTimeout:
			return
		case o.heard < p.since:
			// It may not receive this node's reports. Then it does not raise its own parts
			// while others hear this node.
			at, ok := l.sentAt(p.since)
			if o.mayHear || ok && now-at < silenceTimeout {
				return
			}
		}
		left -= o.parts[p.topic.ID].Leases
	}
	p.allowed = max(p.allowed, min(p.target, left))
}

func (l *LimitAllocator) Receive(now time.Duration, from uint64, report *AllocationReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.others[from]
	if o == nil {
		o = &other{}
		l.others[from] = o
	}
	if o.met && report.Seq <= o.seq {
		return // a later report has overtaken it
	}
	l.observed(o, report.Seq)
	*o = other{process: report.Seq >> seqBits, seq: report.Seq, lastSeq: max(o.lastSeq, report.Seq), met: true, wallMs: report.WallMs, at: now, unsure: report.Unsure,
		mayHear: report.Unlisted && !slices.Contains(report.Unheard, l.self)}
	for _, h := range report.Received {
		if h.Node == l.self {
			o.mayHear, o.heard = true, h.Seq
		}
		if third := l.others[h.Node]; third != nil && h.Seq > third.lastSeq {
			l.observed(third, h.Seq)
		}
	}
	if len(report.Parts) > 0 {
		o.parts = make(map[timer.TopicID]Part, len(report.Parts))
	}
	for _, p := range report.Parts {
		o.parts[p.Topic] = p
	}
	if len(l.limits.parts) == 0 {
		return // refresh costs O(nodes), and Tick does it before this node has a part
	}
	l.refresh(now)
	for _, p := range l.limits.parts {
		if p.allowed < p.target {
			l.confirm(p, now)
		}
	}
}

// observed records that a node has made a new report, to this one or to one that this one hears.
func (l *LimitAllocator) observed(o *other, seq uint64) {
	if o.free && (!o.met || o.process == seq>>seqBits) {
		l.startOver() // each node's part has counted as free for the other
	}
	o.lastSeq, o.lost, o.free = max(o.lastSeq, seq), 0, false
}

// startOver gives up this node's parts until all others have received new reports of it.
func (l *LimitAllocator) startOver() {
	for _, p := range l.limits.parts {
		p.allowed, p.since = 0, l.seq+1
	}
}
