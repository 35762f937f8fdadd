package scheduler

import (
	"iter"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// topicQueues are the topics with timers that have left the wheel and have no lease yet, and what
// their destination queues wait for.
//
// Cost: a timer that becomes due, a permit, a credit or a refusal costs O(log n) in the destination
// queues of its topic. Whatever is done for all topics or destinations is done in slices.
type topicQueues struct {
	byID      map[timer.TopicID]*topicQueue
	list      []*topicQueue // all of them, in no order
	turns     turns
	deferred  order.Ring[*topicQueue] // topics that wait until the order of their keys is known
	withSlot  order.Ring[*topicQueue]
	spares    order.Ring[*destQueue] // with permits that are not used yet
	idle      order.Ring[*destQueue] // the longest first
	shut      heap[shutKey]          // what a breaker or a limit refused, by when to ask again; keys too
	asking    int                    // … of which so many are topics
	gathering order.Heap[*group]     // by when they go
	sweepAt   int
	sweeps    int64
	made      int // queues, since spentOn

	*leader
	compaction *compaction
	due        *dueQueues
	keys       *keyQueues
	limits     *topicLimits
	pulls      *pulledTopics
}

func newTopicQueues(s *Scheduler) topicQueues {
	return topicQueues{
		byID: map[timer.TopicID]*topicQueue{}, turns: turns{tenants: map[string]*tenantTurns{}}, leader: &s.leader,
		compaction: &s.compaction, due: &s.due, keys: &s.Keys, limits: &s.limits, pulls: &s.Pulls,
	}
}

// shutKey orders what was refused: a destination queue, a topic or a key.
type shutKey struct {
	until time.Duration // monotonic
	dest  *destQueue
	topic *topicQueue
	key   *keyQueue
}

func (k shutKey) before(o shutKey) bool { return k.until < o.until }

// queue finds or makes the queue of a topic.
func (tq *topicQueues) queue(id timer.TopicID) *topicQueue {
	q := tq.byID[id]
	if q != nil {
		return q
	}
	q = &topicQueue{queues: tq, id: id, topic: tq.topic(id), at: len(tq.list)}
	q.deferred.Of, q.withSlot.Of, q.limited.Of = q, q, q
	q.destinations = newDestinations()
	tq.byID[id] = q
	tq.list = append(tq.list, q)
	tq.keys.survey.lookAtNew(id)
	tq.keys.setOrder(q)
	tq.limits.set(q)
	tq.countQueue()
	return q
}

// forgetTopic drops the queue of a topic that has nothing.
func (tq *topicQueues) forgetTopic(q *topicQueue) {
	tq.limits.leave(q)
	tq.turns.forget(q)
	delete(tq.byID, q.id)
	if q.topic == nil {
		tq.keys.forget(q.id)
	}
	last := len(tq.list) - 1
	tq.list[q.at] = tq.list[last]
	tq.list[q.at].at = q.at
	tq.list[last] = nil
	tq.list = tq.list[:last]
}

// resumeDeferred gives the deferred topics their turns again, once the order of keys is known.
func (tq *topicQueues) resumeDeferred() {
	if !tq.due.caughtUp || len(tq.compaction.queues) > 0 || tq.keys.scanning {
		return
	}
	for n := 0; tq.deferred.Len() > 0; n++ {
		if n == PopBudget {
			tq.env.WakeNext()
			return
		}
		q := tq.deferred.First()
		q.deferred.Leave()
		tq.join(q)
	}
}

// join gives a topic its turns; a pulled topic is marked ready instead.
func (tq *topicQueues) join(q *topicQueue) {
	switch {
	case tq.byID[q.id] != q || q.deferred.In():
	case q.pulled():
		tq.pulls.markReady(q)
	case q.turn.In():
	case q.topic == nil || q.id == table.CanaryTopic:
		tq.turns.join(q, "")
	default:
		tq.turns.join(q, tq.cfg.Dispatcher.Tenant(q.topic))
	}
}

// countQueue counts a queue that was made, which takes time of the turn.
func (tq *topicQueues) countQueue() { tq.made++ }

// forgetIdle drops destination queues that had nothing in the last two sweeps.
func (tq *topicQueues) forgetIdle() {
	tq.sweeps++
	for n := 0; n < sweepBudget && tq.idle.Len() > 0 && tq.idle.First().idleSince < tq.sweeps-1 && !tq.env.Spent(1); n++ {
		tq.forgetDest(tq.idle.First())
	}
}

// nextToSweep returns the topics in turn; nil if there is none. It goes down the list, as
// changedTopics does.
func (tq *topicQueues) nextToSweep() *topicQueue {
	if tq.sweepAt--; tq.sweepAt < 0 || tq.sweepAt >= len(tq.list) {
		tq.sweepAt = len(tq.list) - 1
	}
	if tq.sweepAt < 0 {
		return nil
	}
	return tq.list[tq.sweepAt]
}

// takeMade returns how many queues were made since it was last called.
func (tq *topicQueues) takeMade() int {
	n := tq.made
	tq.made = 0
	return n
}

// askAgain gives a topic its turn again after a while, unless it has one before that.
func (tq *topicQueues) askAgain(q *topicQueue, after time.Duration) {
	at := tq.now.Mono + max(after, time.Millisecond)
	if q.askAt == 0 || at < q.askAt {
		if q.askAt == 0 {
			tq.asking++
		}
		q.askAt = at
		tq.shut.push(shutKey{until: at, topic: q})
	}
}

// leave takes a topic's turns away, until it joins again.
func (tq *topicQueues) leave(q *topicQueue) { tq.turns.leave(q) }

// reopen has what was refused ask again when its time has come.
func (tq *topicQueues) reopen() {
	for n := 0; tq.shut.len() > 0 && tq.shut.top().until <= tq.now.Mono; n++ {
		if n == PopBudget || tq.env.Spent(1) {
			tq.env.WakeNext()
			return
		}
		k := tq.shut.pop()
		switch {
		case k.topic != nil:
			if q := k.topic; q.askAt == k.until {
				q.askAt = 0
				tq.asking--
				tq.join(q)
			}
			continue
		case k.key != nil:
			tq.keys.reopen(k.key, k.until)
			continue
		}
		if d := k.dest; d.shutUntil == k.until && tq.keeps(d) {
			d.shutUntil, d.shutMs = 0, tq.now.WallMs
			tq.update(d)
			tq.join(d.queue)
		}
	}
}

// ordered reports that the order of the topic's timers is known: in a serial topic no earlier one
// of a key is missing, and all leases that count at its limits are found.
func (tq *topicQueues) ordered(q *topicQueue) bool {
	if q.mode.serial && (!tq.due.caughtUp || len(q.moving) > 0 || len(tq.compaction.queues) > 0) {
		return false
	}
	return !tq.keys.scanning || q.mode.most == 0 && q.limiterUse == nil // scanBlockers finds leases that count at its limits
}

// creditGranted handles a slot that a topic waited for.
func (tq *topicQueues) creditGranted(q *topicQueue, class int, c delivery.Credit) {
	q.asks[class] = false
	if !tq.active || tq.byID[q.id] != q || q.pulled() || q.credits[class] != nil {
		c.Cancel()
		return
	}
	q.credits[class] = c
	tq.withSlot.Push(&q.withSlot)
	tq.join(q)
	tq.env.Wake()
}

// returnCredits gives the slots that a topic cannot use now to others.
func (tq *topicQueues) returnCredits(q *topicQueue) {
	q.withSlot.Leave()
	for class, c := range q.credits {
		if c != nil {
			q.credits[class] = nil
			c.Cancel()
		}
	}
}

// returnSpares gives the permits of a topic to others.
func (tq *topicQueues) returnSpares(q *topicQueue) {
	for q.ready[0].Len() > 0 {
		tq.returnPermits(q.ready[0].First())
	}
}

// topicQueue holds the destination queues of one topic in one shard, by what they wait for.
type topicQueue struct {
	queues *topicQueues
	id     timer.TopicID
	topic  *timer.Topic // as this node knows it; nil: not known (yet)
	at     int          // in topicQueues.list

	destinations
	dueOrder table.DueOrder // its due timers that wait in it, and stand
	leases   order.Ring[*activeLease]
	unseen   int // of leases: clients see these timers as scheduled

	asks    [delivery.Classes]bool            // it waits for a slot of the node
	credits [delivery.Classes]delivery.Credit // a slot of the node that it was given
	tenant  *tenantTurns                      // nil: it has had no turn
	turn    order.Turn[*topicQueue]
	share   order.Share // of the turns of its tenant
	// deferred is its place among the topics that wait until all that is due has left the wheel.
	deferred order.Spot[*topicQueue]
	withSlot order.Spot[*topicQueue] // in topicQueues.withSlot: it has credits
	limited  order.Spot[*topicQueue] // in topicLimits.queues

	// resumedMs is when the topic was last resumed, wall clock; 0: never. Occurrences due before
	// may have been missed.
	resumedMs int64
	// limitedMs is when its limit or its window last refused a lease, or let one go again, or a
	// client let one of its timers go, wall clock.
	limitedMs int64
	gate      shutGate
	askAt     time.Duration // when it asks its limit again, in topicQueues.shut; monotonic, 0: never

	window   topicWindow
	windowMs int64 // when it is looked at again, in topicWindows.shut; 0: it is not there

	limiterUse *limiterUse // nil: the topic has no limit
	keyless    *limiterUse // nil: its timers without a key have no limit of their own …
	keylessAs  *timer.Topic

	topicKeys
	rerouting

	listed     bool // it is in pulledTopics.list
	newlyReady bool // timers became ready in this turn
	// fullUntil is until when the topic is taken to be at its limit, unless a lease ends here. No
	// pull need come before. Monotonic.
	fullUntil time.Duration
}

// shutGate is the limit that refused a topic a lease last. A free place lasts until the next turn,
// so a backlog waits for the limit all the time.
type shutGate struct {
	cause timer.WaitCause
	atMs  int64 // wall clock
}

// of is the limit for which the topic's backlog waits: it has refused a lease within unexplainedMs.
func (g shutGate) of(nowMs int64) timer.WaitCause {
	if g.cause != timer.NoWait && nowMs-g.atMs < unexplainedMs {
		return g.cause
	}
	return timer.NoWait
}

// destinations are the destination queues of a topic.
type destinations struct {
	routes map[table.Target]*destQueue
	byDest map[any]*destQueue // by Destination, or groupKey
	groups map[groupRoute]*destQueue
	dests  []*destQueue
	// ready are those that may have a permit: granted, and by class of calls. held are the others
	// with timers.
	ready    [1 + delivery.Classes]order.Heap[*destQueue]
	held     order.Heap[*destQueue]
	entries  int         // in them, outdated ones included
	standing [states]int // their timers that stand, by what they wait for
}

func newDestinations() destinations {
	return destinations{routes: map[table.Target]*destQueue{}, byDest: map[any]*destQueue{}}
}

// rerouting is a topic's part of changedTopics.
type rerouting struct {
	// moving are destination queues from before the topic changed. Their timers are queued again in
	// slices.
	moving [][]*destQueue
	moved  map[timer.Handle]bool // set while outdated entries are dropped: a timer may be queued twice
}

// heapOf is where destination queues of a state are; nil for idle ones.
func (d *destinations) heapOf(state queueState) *order.Heap[*destQueue] {
	switch {
	case state == idle:
		return nil
	case state < waiting:
		return &d.ready[state-granted]
	}
	return &d.held
}

// next returns the destination queue that comes first of those that may have a permit; nil if all
// wait. Cost: O(1).
func (q *topicQueue) next() (best *destQueue) {
	for i := range q.ready {
		if q.ready[i].Len() == 0 || i > 0 && q.asks[i-1] && q.credits[i-1] == nil {
			continue
		}
		if n := q.ready[i].First(); best == nil || n.Before(best) {
			best = n
		}
	}
	return best
}

// activeLeases are the topic's leases for calls, the earliest first.
func (q *topicQueue) activeLeases() iter.Seq[*activeLease] {
	return func(yield func(*activeLease) bool) {
		for n := q.leases.Len(); n > 0; n-- {
			if !yield(q.leases.Rotate()) {
				return
			}
		}
	}
}

// queued counts the entries of destination queues, outdated ones included.
func (d *destinations) queued() int { return d.entries }

// GrantedSlot implements delivery.NodeWaiter; called from any goroutine.
func (q *topicQueue) GrantedSlot(class int, c delivery.Credit) {
	q.queues.env.Post(func(stopped bool) {
		if stopped {
			c.Cancel()
			return
		}
		q.queues.creditGranted(q, class, c)
	})
}

// turns are the topics that may have a timer to lease: tenants have their turns, and in each its
// topics. Who has leased many timers in one turn, for a call of many, is behind the others until
// they have leased as many. Cost of all methods: O(log n).
type turns struct {
	tenants map[string]*tenantTurns // of the topics that have had a turn
	line    order.Line[*tenantTurns]
}

type tenantTurns struct {
	name   string
	topics order.Line[*topicQueue]
	queues int // topics whose tenant it is
	turn   order.Turn[*tenantTurns]
	share  order.Share
}

func (t *turns) join(q *topicQueue, tenant string) {
	if q.turn.In() {
		return
	}
	if q.tenant == nil || q.tenant.name != tenant {
		t.forget(q)
		t.enter(q, tenant)
	}
	q.tenant.topics.Push(&q.turn)
	if x := q.tenant; !x.turn.In() {
		t.line.Push(&x.turn)
	}
}

func (t *turns) enter(q *topicQueue, tenant string) {
	x := t.tenants[tenant]
	if x == nil {
		x = &tenantTurns{name: tenant, share: order.Share{Weight: 1}}
		x.turn.Of, x.turn.Share = x, &x.share
		t.tenants[tenant] = x
	}
	x.queues++
	q.tenant = x
	q.turn.Of, q.turn.Share, q.share.Weight = q, &q.share, 1
}

func (t *turns) leave(q *topicQueue) {
	if !q.turn.In() {
		return
	}
	x := q.tenant
	x.topics.Leave(&q.turn)
	if x.topics.Len() == 0 {
		t.line.Leave(&x.turn)
	}
}

// forget drops what is known of a topic.
func (t *turns) forget(q *topicQueue) {
	x := q.tenant
	if x == nil {
		return
	}
	t.leave(q)
	q.tenant = nil
	if x.queues--; x.queues == 0 {
		delete(t.tenants, x.name)
	}
}

// next returns the topic whose turn it is; nil if there is none. Call took then.
func (t *turns) next() *topicQueue {
	if t.line.Len() == 0 {
		return nil
	}
	return t.line.First().topics.First()
}

// took ends the turn of a topic, in which it leased so many timers or had a refusal, which counts
// as one. It may have left meanwhile.
func (t *turns) took(q *topicQueue, leases int) {
	x := q.tenant
	x.topics.Took(&q.turn, leases)
	t.line.Took(&x.turn, leases)
}
