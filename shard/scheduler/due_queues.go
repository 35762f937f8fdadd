package scheduler

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
	"carillon/wheel"
)

// Budgets per turn and group. They bound a turn however many timers are due.
const (
	WheelBudget = 4096 // timers moved between levels of the wheel
	PopBudget   = 4096 // due timers taken from the wheel
	LeaseBudget = 512  // leases proposed
)

// Look-ahead: a lease is proposed this long before the due time, so that it is committed in time.
const (
	minLookAhead = 20 * time.Millisecond
	MaxLookAhead = 250 * time.Millisecond
)

// dueQueues are the timers that have left the wheel and have no lease yet.
type dueQueues struct {
	topics   map[timer.TopicID]*topicQueue
	runnable []*topicQueue // topics that may have a timer to lease; served in turn
	routes   map[routeKey]*destQueue
	later    heap[entry]    // popped, but further off than the look-ahead (the clock stepped back)
	exact    heap[entry]    // of pulled or rate-limited topics: not leased before they are due
	shut     heap[queueKey] // destination queues that a breaker or a limit refused, by when to ask again

	caughtUp   bool          // every due timer has left the wheel in this turn
	deferred   []*topicQueue // topics that wait for caughtUp or for scanBlockers
	rerouting  []*topicQueue // topics whose timers are being queued again
	compacting []staleQueue  // see compact
	compacted  map[timer.Handle]bool

	lookAhead time.Duration
	popped    [512]wheel.Handle

	rearming  bool // rearm walks the table
	rearmFrom timer.Handle
}

type routeKey struct {
	topic  timer.TopicID
	target table.Target
}

// queueKey orders shut destination queues.
type queueKey struct {
	until time.Duration // monotonic
	queue *destQueue
}

func (k queueKey) before(o queueKey) bool { return k.until < o.until }

// takeDue advances the wheel and queues the timers that are due within the look-ahead.
func (l *Scheduler) takeDue() {
	horizon := l.now.WallMs + l.due.lookAhead.Milliseconds()
	l.due.caughtUp = l.table.Advance(horizon, WheelBudget)
	if !l.due.caughtUp {
		l.env.WakeNext()
	}
	for l.due.later.len() > 0 && l.due.later.top().dueMs <= horizon {
		l.classify(l.due.later.pop(), horizon)
	}
	for l.due.exact.len() > 0 && l.due.exact.top().dueMs <= l.now.WallMs {
		l.classify(l.due.exact.pop(), horizon)
	}
	for taken := 0; taken < PopBudget; {
		n := l.table.Pop(l.due.popped[:])
		for _, h := range l.due.popped[:n] {
			l.sort(timer.Handle(h), horizon)
		}
		taken += n
		if n < len(l.due.popped) {
			return
		}
	}
	l.due.caughtUp = false
	l.env.WakeNext()
}

// unpark makes the deferred topics runnable again.
func (l *Scheduler) unpark() {
	for _, q := range l.due.deferred {
		l.join(q)
	}
	l.due.deferred = l.due.deferred[:0]
}

// sort queues a timer that left the wheel, or prepares its expiry, skip, or forgetting.
func (l *Scheduler) sort(h timer.Handle, horizon int64) {
	d := l.table.Due(h)
	if d.State != timer.Dead && !l.HasZone(h, &d) {
		l.table.Arm(h, horizon+zoneWait.Milliseconds())
		return
	}
	e := entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev, priority: d.Priority}
	switch d.State {
	case timer.Scheduled:
		if d.ExpiresMs != 0 && l.now.WallMs > d.ExpiresMs {
			l.out.expires = append(l.out.expires, e)
			return
		}
		if d.ExpiresMs != 0 && d.NextMs > d.ExpiresMs { // popped for its expiry, early by the look-ahead
			l.table.Arm(h, horizon+d.ExpiresMs+1-l.now.WallMs)
			return
		}
		if l.missed(e) {
			return
		}
		l.classify(e, horizon)
	case timer.Leased:
		l.leaseEnded(h, &d)
	case timer.Dead:
		if d.RetainMs > l.now.WallMs {
			l.table.Arm(h, horizon+d.RetainMs-l.now.WallMs)
			return
		}
		l.out.forgets = append(l.out.forgets, e)
	}
}

// classify puts a scheduled timer into its destination queue, or into the queue of its key. A timer
// with an expiry is also armed for that moment, in case its gates stay shut.
func (l *Scheduler) classify(e entry, horizon int64) {
	if e.dueMs > horizon {
		e.priority = 0 // later is ordered by time alone
		l.due.later.push(e)
		return
	}
	if !l.table.Live(e.handle, e.seq) {
		return
	}
	d := l.table.Due(e.handle)
	if d.Rev != e.rev || d.State != timer.Scheduled {
		return
	}
	e.priority = d.Priority
	q := l.queue(d.Topic)
	if e.dueMs = d.NextMs + l.spread(q, &d, e.handle); e.dueMs > horizon {
		at := e.dueMs
		if d.ExpiresMs != 0 {
			at = min(at, horizon+d.ExpiresMs+1-l.now.WallMs)
		}
		l.table.Arm(e.handle, at)
		return
	}
	switch {
	case q.topic != nil && (q.topic.Policy.Rate.PerSecond > 0 || q.pulled()) && e.dueMs > l.now.WallMs:
		e.priority = 0
		l.due.exact.push(e)
	case q.keys != nil:
		l.enter(q, e)
	default:
		l.queueIn(l.destQueue(d.Topic, d.Target), e)
	}
	if d.ExpiresMs != 0 {
		l.table.Arm(e.handle, horizon+d.ExpiresMs+1-l.now.WallMs)
	}
}

// queueUp puts a timer into its destination queue.
func (l *Scheduler) queueUp(e entry) {
	d := l.table.Due(e.handle)
	l.queueIn(l.destQueue(d.Topic, d.Target), e)
}

func (l *Scheduler) queueIn(n *destQueue, e entry) {
	if !n.queue.pulled() && l.now.WallMs-e.dueMs > backlogAfterMs {
		n.backlog.push(e)
	} else {
		n.fresh.push(e)
	}
	l.join(n.queue)
}

// queue finds or makes the queue of a topic.
func (l *Scheduler) queue(id timer.TopicID) *topicQueue {
	q := l.due.topics[id]
	if q == nil {
		q = &topicQueue{id: id, topic: l.topic(id)}
		l.due.topics[id] = q
		l.setOrder(q)
		l.setLimit(q)
	}
	return q
}

// destQueue finds or makes the queue of a topic's timers with the given callback override.
func (l *Scheduler) destQueue(id timer.TopicID, target table.Target) *destQueue {
	key := routeKey{id, target}
	if n := l.due.routes[key]; n != nil {
		return n
	}
	q := l.queue(id)
	var dest Destination // nil: cannot be delivered as the topic stands
	switch {
	case id == table.CanaryTopic:
		dest = canaryDest{l}
	case q.pulled(): // one destination queue for all
	case q.topic != nil:
		own := l.table.Callback(target)
		if d, err := l.cfg.Dispatcher.Route(q.topic, &own); err == nil {
			dest = d
		}
	}
	for _, n := range q.lanes {
		if n.dest == dest {
			l.due.routes[key] = n
			return n
		}
	}
	n := &destQueue{queue: q, dest: dest}
	q.lanes = append(q.lanes, n)
	l.due.routes[key] = n
	return n
}

// join makes a topic runnable; a pulled topic is marked ready instead.
func (l *Scheduler) join(q *topicQueue) {
	switch {
	case q.pulled():
		l.markReady(q)
	case !q.inRing:
		q.inRing = true
		l.due.runnable = append(l.due.runnable, q)
	}
}

// reopen makes topics runnable when a shut destination queue may ask again.
func (l *Scheduler) reopen() {
	for l.due.shut.len() > 0 && l.due.shut.top().until <= l.now.Mono {
		n := l.due.shut.pop().queue
		n.shutMs = l.now.WallMs
		l.join(n.queue)
	}
}

// spread returns how long after its due time a timer's first attempt starts, in ms, so that timers
// of one instant do not all start at once. It depends on the timer's id alone; in a serial topic on
// its key, which keeps the order.
func (l *Scheduler) spread(q *topicQueue, d *table.Due, h timer.Handle) int64 {
	if q.topic == nil || q.topic.Policy.SpreadMs <= 0 || d.Attempts > 0 {
		return 0
	}
	hash := l.table.IDHash(h)
	if q.topic.Policy.Serial {
		hash = l.table.KeyHash(h)
	}
	return int64(hash % uint64(q.topic.Policy.SpreadMs))
}

// HasZone reports whether the times of a timer can be computed now: it does not repeat by the
// calendar, or its zone is loaded. If not, the zone is loaded in the background.
func (l *Scheduler) HasZone(h timer.Handle, d *table.Due) bool {
	if !d.Series {
		return true
	}
	name, ok := l.table.Zone(h)
	if !ok {
		return true
	}
	zones := l.cfg.Zones
	if zones.Find(name) != nil {
		return true
	}
	if zones.Wanted(name, l.now.Mono) {
		l.env.Background(func() {
			if err := zones.Read(name); err != nil {
				l.env.ZoneUnread(name, err)
			}
		})
	}
	return false
}

// zoneWait is the delay until a timer whose zone is being loaded is looked at again. It is less
// than minLookAhead, so that no timer is late because of it.
const zoneWait = 5 * time.Millisecond
