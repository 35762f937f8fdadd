package sim

import (
	"time"

	"carillon/shard"
	"carillon/timer"
)

// write is a value that a client wrote: its payload and due time belong together (I6).
type write struct {
	op      uint64
	asked   time.Duration // when a client first requested it
	dueMs   int64
	payload string
	whole   bool         // by an add or a put, not by a patch
	trace   *timer.Trace // for a whole write

	// The fields below are used in the feature topics only.
	every, count int64 // interval and number of occurrences of a series
	catchUp      timer.CatchUp
	overlap      bool       // an occurrence does not wait for the end of the last
	timetable    *timetable // of a cron series
	capped       bool       // maxWait may make it due earlier
	dies         bool       // it expires at its due time
	maxWaitMs    int64
	acked, alone bool // alone: no other change of the id was open when this one was requested
	call         int  // which change of the id this is, from 1
	priority     uint8
	expiresMs    int64 // after the due time
	relative     bool  // the due time was given as a delay
	labels       []string
	more         func(*timer.Spec)
	starts       map[int64]startedAs // by due time: the timer of the first call
	over         map[int64]bool      // by due time: delivered, or rejected for good
}

// startedAs records the timer of the first call of an occurrence.
type startedAs struct {
	seq uint64
	at  time.Duration
}

// timerKey identifies one timer for ever.
type timerKey struct {
	shard timer.ShardID
	seq   uint64
}

// idKey identifies an id within its topic.
type idKey struct {
	topic timer.TopicID
	id    string
}

// life is the checker's knowledge of one timer.
type life struct {
	id        idKey
	shard     timer.ShardID
	seq       uint64
	acked     bool
	versions  map[uint32]*write // by version, as acknowledged
	newest    uint32            // the newest acknowledged version
	prevented bool              // a cancel was answered `prevented`
	delivered int
	attempts  map[attemptKey]uint64 // fences of the calls that started
	fence     uint64                // of the call that started last
	running   *call
}

// attemptKey identifies an attempt. A PUT starts the attempts anew, under the next version.
type attemptKey struct {
	version uint32
	attempt int
}

// named is the checker's knowledge of one id.
type named struct {
	since   time.Duration     // when a client first used it
	writes  map[string]*write // by payload
	cancels int               // cancels that were requested and not refused
	lives   []*life
}

type recentID struct {
	id    string
	topic timer.TopicID
}

// checker collects the answers that clients got, the calls that receivers got and the state of each
// replica after each entry, and compares them with the invariants.
type checker struct {
	decided   uint64 // the newest entry of the meta group that any node has applied
	ops       uint64
	recent    []recentID
	changed   recentID // the id that was changed last
	ids       map[idKey]*named
	names     []idKey // the keys of ids, in order of their creation
	lives     map[timerKey]*life
	replicas  replicas
	sick      map[uint64]bool // nodes whose disk was made to fail
	history   history
	features  featureChecker
	leases    leaseChecker
	order     orderChecker
	limits    limitChecker
	attempts  attemptChecker
	answers   answerChecker
	successes successChecker
	visits    map[timer.TopicID]visit
	ranked    *rankChecker
	bulks     *bulkChecker
	turned    *turnChecker // nil: no client changes a topic's delivery

	// nodes known to be removed; nil: removals are not checked against majorities
	buried map[uint64]bool
	times  shardTimes
	misled time.Duration // when a process last trusted a wrong clock, as it had to; 0: none has
}

func newChecker() *checker {
	b := &checker{ids: map[idKey]*named{}, lives: map[timerKey]*life{}, sick: map[uint64]bool{}, replicas: newReplicas(), attempts: newAttemptChecker(),
		features: newFeatureChecker(),
		leases:   leaseChecker{timers: map[timerKey]*lease{}}, order: orderChecker{lines: map[string][]*inLine{}}}
	b.judgeVisits()
	return b
}

func (b *checker) nextOp() uint64 {
	b.ops++
	return b.ops
}

// remember keeps the 40 newest ids for further operations.
func (b *checker) remember(id string, topic timer.TopicID) {
	b.recent = append(b.recent, recentID{id, topic})
	if len(b.recent) > 40 {
		b.recent = b.recent[1:]
	}
}

func (b *checker) named(k idKey) *named {
	n := b.ids[k]
	if n == nil {
		n = &named{writes: map[string]*write{}}
		b.ids[k] = n
		b.names = append(b.names, k)
	}
	return n
}

func (b *checker) life(k timerKey, id idKey) *life {
	l := b.lives[k]
	if l == nil {
		l = &life{id: id, shard: k.shard, seq: k.seq, versions: map[uint32]*write{}, attempts: map[attemptKey]uint64{}}
		b.lives[k] = l
		n := b.named(id)
		n.lives = append(n.lives, l)
	}
	return l
}

// mayFail reports whether a disk fault may have stopped the node's host.
func (b *checker) mayFail(n *node) bool { return b.sick[n.id] }

// called records an operation before it is sent: from then on it may take effect.
func (b *checker) called(o *operation) {
	if o.write != nil {
		o.write.asked = o.began
	}
	if o.claim() {
		b.leases.called(o)
		return
	}
	if v := b.visits[o.topic]; v != nil {
		v.called(o)
		return
	}
	if o.topic > plainTopics {
		b.features.called(o)
		return
	}
	n := b.named(idKey{o.topic, o.id})
	if n.since == 0 {
		n.since = o.began
	}
	if o.write != nil {
		n.writes[o.write.payload] = o.write
	}
	if o.cmd != nil && o.cmd.Kind == timer.Cancel {
		n.cancels++
	}
	b.history.call(o)
}

// refused records that an operation has not taken effect and never will.
func (b *checker) refused(o *operation) {
	if o.claim() {
		return // still counted as sent, which only weakens later checks
	}
	if v := b.visits[o.topic]; v != nil {
		v.refused(o)
		return
	}
	if o.topic > plainTopics {
		b.features.refused(o)
		return
	}
	n := b.named(idKey{o.topic, o.id})
	if o.cmd != nil && o.cmd.Kind == timer.Cancel {
		n.cancels--
	}
	b.history.drop(o)
}

// answered records and checks the answer to an operation.
func (b *checker) answered(o *operation, r timer.Result, t *timer.Timer) {
	w, id := o.client.w, idKey{o.topic, o.id}
	b.answers.shown(w, t)
	if r.Code == timer.CancelInFlight && t != nil {
		b.attempts.cancelled(keyOf(o.shard, t), t.Fence)
	}
	if o.claim() {
		b.leases.answered(w, o, r)
		return
	}
	if v := b.visits[o.topic]; v != nil {
		v.answered(w, o, r, t)
		return
	}
	if o.topic > plainTopics {
		b.features.answered(w, o, r, t)
		b.order.answered(o, r, t)
		return
	}
	n := b.named(id)
	var wrote *write
	if t != nil {
		if t.ID != o.id || t.Topic != o.topic {
			w.violate("I2", "operation %d on %s is answered with timer %s", o.number, o.id, t.ID)
		}
		wrote = n.writes[string(t.Payload)]
		if wrote == nil || wrote.dueMs != t.DueMs {
			w.violate("I6", "timer %s is shown with payload %s and due %d, which no client wrote together", o.id, t.Payload, t.DueMs)
		}
		b.life(keyOf(o.shard, t), id).know(w, t.Version, wrote)
	}
	b.history.answer(o, r, t, wrote)
	if o.cmd == nil {
		return
	}
	if r.Code == timer.Created || r.Code == timer.OK || r.Code == timer.Prevented {
		b.changed = recentID{o.id, o.topic}
	}
	switch {
	case r.Code == timer.Created || r.Code == timer.OK:
		if t == nil {
			w.violate("answer", "operation %d on %s is answered with code %d and no timer", o.number, o.id, r.Code)
		}
		l := b.life(keyOf(o.shard, t), id)
		l.acked, l.newest = true, max(l.newest, t.Version)
		if string(t.Payload) != o.write.payload {
			w.violate("I1", "operation %d wrote %s, but its answer has %s", o.number, o.write.payload, t.Payload)
		}
	case r.Code == timer.Prevented:
		if t == nil {
			w.violate("answer", "a cancel of %s is answered with no timer", o.id)
		}
		b.life(keyOf(o.shard, t), id).prevented = true
	}
}

// know checks that a version has one value only.
func (l *life) know(w *World, version uint32, wrote *write) {
	if had := l.versions[version]; had != nil && had != wrote {
		w.violate("I6", "version %d of timer %s is both %s and %s", version, l.id.id, had.payload, wrote.payload)
	}
	l.versions[version] = wrote
}

// mayStart checks a call when the host starts it, against the host's table and all other replicas.
func (b *checker) mayStart(c *call) {
	n, j := c.node, &c.delivery
	w := n.w
	table := n.host.Table(j.Shard)
	d := table.Due(j.Job.Handle)
	p := n.host.Progress(j.Shard)
	if d.State != timer.Leased || d.Seq != j.Job.Seq || d.Fence != j.Job.Fence || d.Attempts != j.Job.Attempts || !p.Serves {
		w.violate("I3", "node %d starts attempt %d of %s under fence %d, but its table has it in state %d, attempt %d, fence %d (leads %v)",
			n.id, j.Job.Attempts, j.Job.ID, j.Job.Fence, d.State, d.Attempts, d.Fence, p.Serves)
	}
	earliest := j.Job.EarliestMs()
	if table.DueByClock(j.Job.Handle) && j.Job.Attempts > 1 {
		earliest = min(earliest, n.clock.WallMs()) // it was due already, perhaps by a clock that was ahead
	}
	if now := n.clock.WallMs(); now < earliest {
		w.violate("I4", "node %d starts %s %d ms early (asked for at %d): %s", n.id, j.Job.ID, earliest-now, j.Job.AskedMs, w.clockwork())
	}
	n.mayGoByClock(j.Job.ID, earliest)
	b.order.mayStart(c, table)
	if v := b.visits[j.Job.Topic]; v != nil {
		v.mayStart(c, table)
	}
}

// started checks a call when it is sent.
func (b *checker) started(c *call) {
	n, j := c.node, &c.delivery
	w := n.w
	w.counts.Started++
	w.note(n, "call", uint64(j.Shard), j.Job.Fence, j.Job.ID)
	b.stale(c)
	if has := n.host.Applied(shard.Meta); has < n.decided && !n.learned {
		w.violate("I17", "node %d calls for %s by topics as of entry %d, though entry %d was decided before its process began", n.id, j.Job.ID, has, n.decided)
	}
	b.limits.started(c)
	b.attempts.started(c)
	w.apart.started(c)
	if v := b.visits[j.Job.Topic]; v != nil {
		v.started(c)
		return
	}
	if j.Job.Topic > plainTopics {
		b.features.started(c)
		if j.Job.Topic == reportTopic {
			b.leases.handed(n, keyOfCall(j), j.Job.Fence, j.Job.ID, 0)
		}
		return
	}
	id := idKey{j.Job.Topic, j.Job.ID}
	known := b.ids[id]
	if known == nil {
		w.violate("I2", "node %d calls for %s, which no client added", n.id, j.Job.ID)
	}
	wrote := known.writes[string(j.Job.Payload)]
	if wrote == nil {
		w.violate("I2", "node %d delivers %s of %s, which no client wrote", n.id, j.Job.Payload, j.Job.ID)
	}
	if wrote.dueMs != j.Job.DueMs {
		w.violate("I6", "node %d delivers %s of %s due at %d, it was written to be due at %d", n.id, j.Job.Payload, j.Job.ID, j.Job.DueMs, wrote.dueMs)
	}
	if got := j.Job.Trace; got != nil && wrote.whole && (wrote.trace == nil || *got != *wrote.trace) {
		w.violate("I2", "node %d delivers %s of %s with the trace %+v, it was written with %+v", n.id, j.Job.Payload, j.Job.ID, got, wrote.trace)
	}
	l := b.life(keyOfCall(j), id)
	l.know(w, j.Job.Version, wrote)
	if j.Job.Version < l.newest {
		w.violate("I1", "node %d delivers version %d of %s, version %d was acknowledged", n.id, j.Job.Version, j.Job.ID, l.newest)
	}
	if l.prevented {
		w.violate("I5", "node %d calls for %s after its cancel was answered `prevented`", n.id, j.Job.ID)
	}
	key := attemptKey{j.Job.Version, j.Job.Attempts}
	if fence, twice := l.attempts[key]; twice {
		w.violate("I3", "attempt %d of %s (version %d) starts twice, under fences %d and %d", j.Job.Attempts, j.Job.ID, j.Job.Version, fence, j.Job.Fence)
	}
	if j.Job.Fence <= l.fence {
		w.violate("I3", "attempt %d of %s starts under fence %d after fence %d", j.Job.Attempts, j.Job.ID, j.Job.Fence, l.fence)
	}
	if r := l.running; r.runs() {
		w.violate("I3", "node %d calls for %s under fence %d while a call of node %d runs under fence %d", n.id, j.Job.ID, j.Job.Fence, r.node.id, r.delivery.Job.Fence)
	}
	l.attempts[key] = j.Job.Fence
	l.fence, l.running = j.Job.Fence, c
}

// stale checks a call against every replica: none may have applied the end of its lease.
func (b *checker) stale(c *call) {
	w, j := c.node.w, &c.delivery
	for _, n := range w.nodes {
		if n.host == nil {
			continue
		}
		table := n.host.Table(j.Shard)
		if n.host.Progress(j.Shard).Replica == 0 || !table.Live(j.Job.Handle, j.Job.Seq) {
			continue
		}
		d := table.Due(j.Job.Handle)
		if d.Fence > j.Job.Fence || d.Fence == j.Job.Fence && d.State != timer.Leased {
			w.violate("I3", "node %d calls for %s under fence %d, but on node %d that lease is over: state %d, fence %d",
				c.node.id, j.Job.ID, j.Job.Fence, n.id, d.State, d.Fence)
		}
	}
}

// delivered records a call that was answered 2xx.
func (b *checker) delivered(c *call) {
	j := &c.delivery
	c.node.w.counts.Delivered++
	if v := b.visits[j.Job.Topic]; v != nil {
		v.heard(c)
		return
	}
	if j.Job.Topic > plainTopics {
		b.features.heard(c)
		return
	}
	b.lives[keyOfCall(j)].delivered++
}

// Bounds of a host's queues (I15), far above the needs of this load.
const (
	mostEvents     = 20_000
	mostOperations = 2_000
	mostFlights    = 20_000
	// the log's files, and one for each snapshot that is written, sent or received; with more than
	// five nodes one more for each, since a node sends one to each other at a time
	mostFiles, ofNodes = 8, 5
)

func (b *checker) bounded(n *node) {
	events, operations, flights := n.host.Waiting()
	if events > mostEvents || operations > mostOperations || flights > mostFlights {
		n.w.violate("I15", "node %d holds %d events, %d operations, %d leases of calls; the bounds are %d, %d, %d",
			n.id, events, operations, flights, mostEvents, mostOperations, mostFlights)
	}
	most := mostFiles + max(0, n.w.swarm.nodes-ofNodes)
	if files := n.disk.OpenFiles(); files > most {
		n.w.violate("I15", "node %d has %d files open, the bound is %d", n.id, files, most)
	}
}
