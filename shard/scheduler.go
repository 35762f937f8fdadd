package shard

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/wheel"
)

// Budgets of one turn of one group, so that no turn is long whatever falls due.
const (
	wheelBudget = 4096 // timers moved between levels of the wheel
	popBudget   = 4096 // due timers taken from the wheel
	leaseBudget = 512  // leases proposed
)

// Look-ahead: a lease is proposed this much before the due time, so that its commit is over when the time comes.
const (
	minLookAhead = 20 * time.Millisecond
	maxLookAhead = 250 * time.Millisecond
)

// scheduler is what only a shard's leader does: it takes what falls due from the wheel, queues it by topic and
// destination, leases it as gates open, starts the call when lease and due time are there, and judges how it ended.
// All of it is local: whatever a new leader does not find here, it finds in the table.
//
// Invariant (I3, I4): a call starts only for a lease that this leader proposed, saw applied in its own term, and whose due time its
// wall clock has reached.
type scheduler struct {
	group  *group
	active bool

	topics   map[timer.TopicID]*topicQueue
	runnable []*topicQueue // those with something that may go; served in turn
	routes   map[routeKey]*destQueue
	later    heap[entry]    // popped, but further off than the look-ahead (the clock stepped back)
	shut     heap[queueKey] // destination queues behind an open breaker, by when to ask again

	activeLeases map[timer.Handle]*activeLease
	held         heap[*activeLease]
	blocked      []*activeLease // client changes wait for these

	keyRefs       map[timer.Handle]keyRef // what timers mean to the lines of their keys
	inOrder       map[timer.TopicID]bool  // topics whose blockers have been looked for
	gateScan      bool                    // for timers that block their keys
	gateFrom      timer.Handle
	carried       map[timer.Handle]carriedLease
	carriedOver   map[timer.Handle]carriedLease // of the leadership before: what consumers had at its end
	carriedOverAt time.Duration                 // when to look at these again; monotonic
	exact         heap[entry]                   // of topics that are pulled or have a rate: leased no sooner than they are due
	caughtUp      bool                          // all that is due has left the wheel in this turn
	deferred      []*topicQueue                 // they wait for one of these
	rerouting     []*topicQueue                 // those with timers to be queued anew
	compacting    []staleQueue                  // queues that were mostly outdated: what stands is queued anew
	compacted     map[timer.Handle]bool

	consumerLeases map[timer.Handle]consumerLease // what consumers have
	reserved       map[timer.Handle]uint64        // what they are to have, by its number: the lease is in the pipeline
	ends           heap[leaseEnd]
	acked          acked
	pullable       []*topicQueue // topics that are pulled, and of which something may be ready

	outcomes []outcomeItem
	expires  []entry // scheduled, past their expiry
	forgets  []entry // dead, past their retention
	skips    []entry // occurrences that were missed
	overlaps []overlap

	calendar  recurrence.Calendar
	lookAhead time.Duration
	popped    [512]wheel.Handle
	random    *rand.Rand

	rearming      bool // for timers that a former leadership of this process took from the wheel and did not finish
	rearmFrom     timer.Handle
	scanning      bool // for leases of former leaders
	inheritedFrom timer.Handle
	reportAt      time.Duration
	turns         int           // of the row's members, when nobody is known to lead
	since         time.Duration // when this leadership began; monotonic
	leadership    uint64        // its number in this process

	realigned timer.Handle // how far series were seen to after the clock was set back; seriesAwait: all were
	realigns  []entry      // dueMs: when they are due now
	// realignLater are leased: their next attempts would be as wrong.
	realignLater []timer.Handle

	timed      bool // it was sure of the time in this leadership: until then nothing is proposed that depends on it
	doubted    bool // whether this node still leads: nothing is started until a majority has said so
	confirming bool
}

type routeKey struct {
	topic  timer.TopicID
	target Target
}

// queueKey orders shut destination queues.
type queueKey struct {
	until time.Duration // monotonic
	queue *destQueue
}

func (k queueKey) before(o queueKey) bool { return k.until < o.until }

// outcomeItem is an outcome on its way into the log, with its active lease (nil: an inherited lease's).
type outcomeItem struct {
	Outcome
	lease *activeLease
}

func newScheduler(g *group) *scheduler {
	return &scheduler{group: g, carriedOver: map[timer.Handle]carriedLease{}, calendar: recurrence.Calendar{Zones: g.w.host.zones}, random: rand.New(rand.NewPCG(g.w.host.cfg.Seed, uint64(g.id)))}
}

// begin starts a leadership, after the takeover was applied.
func (l *scheduler) begin() {
	l.active = true
	l.topics = map[timer.TopicID]*topicQueue{}
	l.routes = map[routeKey]*destQueue{}
	if l.activeLeases == nil {
		l.activeLeases = map[timer.Handle]*activeLease{}
	} else {
		l.rearming, l.rearmFrom = true, 0
	}
	l.runnable, l.later, l.shut, l.held = nil, heap[entry]{}, heap[queueKey]{}, heap[*activeLease]{}
	l.ends, l.consumerLeases, l.reserved = heap[leaseEnd]{}, map[timer.Handle]consumerLease{}, map[timer.Handle]uint64{}
	l.pullable = nil
	l.outcomes, l.expires, l.forgets, l.skips, l.overlaps = nil, nil, nil, nil, nil
	l.lookAhead = minLookAhead
	l.since, l.scanning, l.inheritedFrom = l.group.w.mono, true, 0
	l.leadership++
	l.timed, l.doubted, l.confirming = false, false, false
	l.realigned, l.realigns, l.realignLater = 0, nil, nil
	l.compacting, l.compacted = nil, nil
	l.rerouting, l.exact, l.carried = nil, heap[entry]{}, map[timer.Handle]carriedLease{}
	l.beginOrder()
	for _, h := range l.activeHandles() {
		if f := l.activeLeases[h]; f.phase == reporting {
			l.ended(f, &f.attempt) // nobody else has to be told any more
		}
	}
}

// activeHandles are the timers with an active lease, in order: what is done for each must not depend on chance.
func (l *scheduler) activeHandles() []timer.Handle { return slices.Sorted(maps.Keys(l.activeLeases)) }

// end stops the leadership: nothing more is started. What was taken from the wheel a later leadership puts back, in slices: see rewatch.
func (l *scheduler) end() {
	if !l.active {
		return
	}
	l.active, l.timed = false, false
	for _, id := range slices.Sorted(maps.Keys(l.topics)) {
		for _, n := range slices.Concat(l.topics[id].lanes, l.topics[id].moving) {
			n.fresh, n.backlog = heap[entry]{}, heap[entry]{}
			if n.spare != nil {
				n.spare.Cancel()
				n.spare = nil
			}
		}
	}
	l.later, l.exact = heap[entry]{}, heap[entry]{}
	l.compacting, l.compacted = nil, nil
	l.endLimits()
	l.blocked = nil
	for _, h := range l.activeHandles() {
		f := l.activeLeases[h]
		for _, o := range f.waiting {
			o.answer(timer.Result{}, l.group.notLeader())
		}
		f.waiting = nil
		switch f.phase {
		case started: // it goes on, and is reported when it ends
		case proposed, held:
			f.permit.Cancel()
			l.report(f, Attempt{NotSent: true})
		case returned:
			l.report(f, Attempt{NotSent: true})
		case ended:
			l.report(f, f.attempt)
		}
	}
}

// run does this turn's share: wheel → destination queues → leases, and starts what is held and due. Nothing leaves the wheel, and nothing
// starts, while the wall clock is in doubt.
func (l *scheduler) run() {
	if !l.active {
		return
	}
	if l.group.w.sure() && !l.timed {
		l.timed = true
		l.rebase()
	}
	l.confirm()
	l.rearm()
	if l.timed {
		l.scanInherited()
		l.expireLeases()
	}
	if l.group.w.sure() {
		l.takeDue()
	}
	l.realign()
	l.scanBlockers()
	l.move()
	l.compact()
	l.unpark()
	l.reopen()
	if l.mayStart() {
		l.startDue()
		l.notifyReady()
	}
}

// takeDue moves the wheel on and queues what is due within the look-ahead.
func (l *scheduler) takeDue() {
	g := l.group
	horizon := g.w.nowMs + l.lookAhead.Milliseconds()
	l.caughtUp = g.table.Advance(horizon, wheelBudget)
	if !l.caughtUp {
		g.w.touchNext(g)
	}
	for l.later.len() > 0 && l.later.top().dueMs <= horizon {
		l.classify(l.later.pop(), horizon)
	}
	for l.exact.len() > 0 && l.exact.top().dueMs <= g.w.nowMs {
		l.classify(l.exact.pop(), horizon)
	}
	for taken := 0; taken < popBudget; {
		n := g.table.Pop(l.popped[:])
		for _, h := range l.popped[:n] {
			l.sort(timer.Handle(h), horizon)
		}
		taken += n
		if n < len(l.popped) {
			return
		}
	}
	l.caughtUp = false
	g.w.touchNext(g)
}

// unpark brings back the topics that waited for the whole of what is due, or for those who block their keys, to be known.
func (l *scheduler) unpark() {
	for _, q := range l.deferred {
		l.join(q)
	}
	l.deferred = l.deferred[:0]
}

// sort decides what a timer that left the wheel needs.
func (l *scheduler) sort(h timer.Handle, horizon int64) {
	d := l.group.table.Due(h)
	if d.State != timer.Dead && !l.hasZone(h, &d) {
		l.group.table.Arm(h, horizon+zoneWait.Milliseconds())
		return
	}
	e := entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev, priority: d.Priority}
	switch d.State {
	case timer.Scheduled:
		if d.ExpiresMs != 0 && l.group.w.nowMs > d.ExpiresMs {
			l.expires = append(l.expires, e)
			return
		}
		if d.ExpiresMs != 0 && d.NextMs > d.ExpiresMs { // it came for its expiry, which is ahead by the look-ahead
			l.group.table.Arm(h, horizon+d.ExpiresMs+1-l.group.w.nowMs)
			return
		}
		if l.missed(e) {
			return
		}
		l.classify(e, horizon)
	case timer.Leased:
		l.leaseEnded(h, &d)
	case timer.Dead:
		if d.RetainMs > l.group.w.nowMs {
			l.group.table.Arm(h, horizon+d.RetainMs-l.group.w.nowMs)
			return
		}
		l.forgets = append(l.forgets, e)
	}
}

// classify queues a scheduled timer in its destination queue, or in the line of its key. One with an expiry also stays in the wheel for that
// moment, in case its gates stay shut.
func (l *scheduler) classify(e entry, horizon int64) {
	g := l.group
	if e.dueMs > horizon {
		e.priority = 0 // they come back in order of time
		l.later.push(e)
		return
	}
	if !g.table.Live(e.handle, e.seq) {
		return
	}
	d := g.table.Due(e.handle)
	if d.Rev != e.rev || d.State != timer.Scheduled {
		return
	}
	e.priority = d.Priority
	q := l.queue(d.Topic)
	if e.dueMs = d.NextMs + l.spread(q, &d, e.handle); e.dueMs > horizon {
		at := e.dueMs
		if d.ExpiresMs != 0 {
			at = min(at, horizon+d.ExpiresMs+1-g.w.nowMs)
		}
		g.table.Arm(e.handle, at)
		return
	}
	switch {
	case q.topic != nil && (q.topic.Policy.Rate.PerSecond > 0 || q.pulled()) && e.dueMs > g.w.nowMs:
		e.priority = 0
		l.exact.push(e)
	case q.keys != nil:
		l.enter(q, e)
	default:
		l.queueIn(l.destQueue(d.Topic, d.Target), e)
	}
	if d.ExpiresMs != 0 {
		g.table.Arm(e.handle, horizon+d.ExpiresMs+1-g.w.nowMs)
	}
}

// queueUp puts a timer into its destination queue.
func (l *scheduler) queueUp(e entry) {
	d := l.group.table.Due(e.handle)
	l.queueIn(l.destQueue(d.Topic, d.Target), e)
}

func (l *scheduler) queueIn(n *destQueue, e entry) {
	if !n.queue.pulled() && l.group.w.nowMs-e.dueMs > backlogAfterMs {
		n.backlog.push(e)
	} else {
		n.fresh.push(e)
	}
	l.join(n.queue)
}

// queue finds or makes the queue of a topic.
func (l *scheduler) queue(id timer.TopicID) *topicQueue {
	q := l.topics[id]
	if q == nil {
		q = &topicQueue{id: id, topic: l.topic(id)}
		l.topics[id] = q
		l.setOrder(q)
		l.setLimit(q)
	}
	return q
}

// destQueue finds or makes the queue of a topic's timers with the given callback override.
func (l *scheduler) destQueue(id timer.TopicID, target Target) *destQueue {
	key := routeKey{id, target}
	if n := l.routes[key]; n != nil {
		return n
	}
	q := l.queue(id)
	var dest Destination // nil: no way to deliver as things stand
	switch {
	case id == canaryTopic:
		dest = canaryDest{l.group}
	case q.pulled(): // one destination queue for all
	case q.topic != nil:
		own := l.group.table.Callback(target)
		if d, err := l.group.w.host.cfg.Dispatcher.Route(q.topic, &own); err == nil {
			dest = d
		}
	}
	for _, n := range q.lanes {
		if n.dest == dest {
			l.routes[key] = n
			return n
		}
	}
	n := &destQueue{queue: q, dest: dest}
	q.lanes = append(q.lanes, n)
	l.routes[key] = n
	return n
}

// topic is a topic as this node knows it; nil: not at all.
func (l *scheduler) topic(id timer.TopicID) *timer.Topic {
	if id == canaryTopic {
		return canaryOf
	}
	t, _ := l.group.w.host.cfg.Topics.Topic(id)
	return t
}

// retention is how long a timer of the topic stays a dead letter, in ms.
func (l *scheduler) retention(h timer.Handle) int64 {
	if t := l.topic(l.group.table.Due(h).Topic); t != nil {
		return t.Policy.DeadRetentionMs
	}
	return timer.DefaultPolicy().DeadRetentionMs
}

// join puts a topic in the ring unless it is there, or offers it to who pulls.
func (l *scheduler) join(q *topicQueue) {
	switch {
	case q.pulled():
		l.markReady(q)
	case !q.inRing:
		q.inRing = true
		l.runnable = append(l.runnable, q)
	}
}

// reopen brings back destination queues whose breaker may let a call through again.
func (l *scheduler) reopen() {
	for l.shut.len() > 0 && l.shut.top().until <= l.group.w.mono {
		n := l.shut.pop().queue
		n.shutMs = l.group.w.nowMs
		l.join(n.queue)
	}
}
