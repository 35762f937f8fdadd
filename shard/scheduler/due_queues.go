package scheduler

import (
	"time"

	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wheel"
)

// Budgets per turn and group. They bound a turn however many timers are due. A turn whose time is
// over takes the least that keeps every topic going.
const (
	WheelBudget = 4096 // timers moved between levels of the wheel
	PopBudget   = 1024 // due timers taken from the wheel, or queued again; see queueSteps
	LeaseBudget = 512  // leases proposed
	startBudget = 512  // calls started
	leastMoves  = 1024 // in the wheel
	leastPops   = 64
	leastLeases = 16
)

// queueSteps is what it costs to make a queue, of a topic, a receiver or a key, in steps of
// Env.Spent beside the timer that comes into it.
const queueSteps = 2

// spentOn counts timers that were queued, and the queues that were made for them. It returns what
// they cost.
func (l *Scheduler) spentOn(timers int) (steps int, over bool) {
	steps = timers + queueSteps*l.due.made
	l.due.made = 0
	return steps, l.env.Spent(steps)
}

// Look-ahead: a lease is proposed this long before the due time, so that it is committed in time.
const (
	minLookAhead = 20 * time.Millisecond
	MaxLookAhead = 250 * time.Millisecond
)

// dueQueues are the timers that have left the wheel and have no lease yet.
//
// Cost: a timer that becomes due, a permit, a credit or a refusal costs O(log n) in the destination
// queues of its topic. Whatever is done for all topics or destinations is done in slices.
type dueQueues struct {
	topics   map[timer.TopicID]*topicQueue
	list     []*topicQueue // all of them, in no order
	turns    turns
	deferred order.Ring[*topicQueue] // topics that wait until the order of their keys is known
	withSlot order.Ring[*topicQueue]
	spares   order.Ring[*destQueue] // with a permit that is not used yet
	idle     order.Ring[*destQueue] // the longest first

	later heap[entry]   // popped, but further off than the look-ahead (the clock stepped back)
	exact heap[entry]   // of pulled or rate-limited topics: not leased before they are due
	shut  heap[shutKey] // what a breaker or a limit refused, by when to ask again
	// windows are topics outside their windows, by when these may open, wall clock.
	windows heap[windowKey]

	unknownZones unknownZones

	caughtUp   bool          // every due timer has left the wheel in this turn
	rerouting  []*topicQueue // topics whose timers are being queued again
	compacting []staleQueue  // see compact
	compacted  map[timer.Handle]bool
	refreshAt  int // topics in list below it are to be looked at; see Refresh
	sweepAt    int
	sweeps     int64

	lookAhead time.Duration
	popped    [leastPops]wheel.Handle
	least     bool // see Env.Least
	made      int  // queues, since spentOn

	rearming  bool // rearm walks the table
	rearmFrom timer.Handle
}

func newDueQueues() dueQueues {
	return dueQueues{topics: map[timer.TopicID]*topicQueue{}, turns: turns{tenants: map[string]*tenantTurns{}}, lookAhead: minLookAhead}
}

// shutKey orders what was refused: a destination queue, or else a topic.
type shutKey struct {
	until time.Duration // monotonic
	dest  *destQueue
	topic *topicQueue
}

func (k shutKey) before(o shutKey) bool { return k.until < o.until }

// takeDue advances the wheel and queues the timers that are due within the look-ahead.
func (l *Scheduler) takeDue() {
	horizon := l.now.WallMs + l.due.lookAhead.Milliseconds()
	l.due.least = l.env.Least()
	l.advance(horizon)
	taken := l.takeWaiting(&l.due.later, horizon, 0, horizon)
	taken = l.takeWaiting(&l.due.exact, l.now.WallMs, taken, horizon)
	for over := !l.due.least; taken < PopBudget && !over; {
		n := l.table.Pop(l.due.popped[:])
		for _, h := range l.due.popped[:n] {
			l.sort(timer.Handle(h), horizon)
		}
		steps, late := l.spentOn(n)
		taken, over = taken+steps, late
		if n < len(l.due.popped) {
			return
		}
	}
	l.due.caughtUp = false
	l.env.WakeNext()
}

// advance moves the wheel forward in time. A step pays for 16 moves.
func (l *Scheduler) advance(horizon int64) {
	l.due.caughtUp = false
	for moved, over := 0, !l.due.least; moved < WheelBudget && !over; moved += leastMoves {
		if l.table.Advance(horizon, leastMoves) {
			l.due.caughtUp = true
			return
		}
		over = l.env.Spent(leastMoves / 16)
	}
	l.env.WakeNext()
}

// takeWaiting queues the timers of a heap that are due by then, as far as the budget reaches.
func (l *Scheduler) takeWaiting(h *heap[entry], until int64, taken int, horizon int64) int {
	for over := false; h.len() > 0 && h.top().dueMs <= until && taken < PopBudget && !over; {
		l.classify(h.pop(), horizon)
		var steps int
		steps, over = l.spentOn(1)
		taken += steps
	}
	return taken
}

// resumeDeferred gives the deferred topics their turns again, once the order of keys is known.
func (l *Scheduler) resumeDeferred() {
	if !l.due.caughtUp || len(l.due.compacting) > 0 || l.keys.scanning {
		return
	}
	for n := 0; l.due.deferred.Len() > 0; n++ {
		if n == PopBudget {
			l.env.WakeNext()
			return
		}
		q := l.due.deferred.First()
		q.deferred.Leave()
		l.join(q)
	}
}

// sort queues a timer that left the wheel, or prepares its expiry, skip, or forgetting.
func (l *Scheduler) sort(h timer.Handle, horizon int64) {
	d := l.table.Due(h)
	e := entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev, priority: d.Priority}
	if d.State != timer.Dead && !l.HasZone(h, &d) {
		if d.State == timer.Scheduled {
			l.awaitZone(e, d.Topic)
		} else {
			l.table.Arm(h, horizon+zoneRetry.Milliseconds())
		}
		return
	}
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
		l.table.Delay(e.handle, at)
		return
	}
	switch {
	case q.topic != nil && (q.topic.Policy.Rate.PerSecond > 0 || q.pulled()) && e.dueMs > l.now.WallMs:
		e.priority = 0
		l.due.exact.push(e)
	case q.keys != nil:
		l.enter(q, e)
	default:
		l.queueIn(l.destQueue(q, d.Target), e)
	}
	if d.ExpiresMs != 0 {
		l.table.Arm(e.handle, horizon+d.ExpiresMs+1-l.now.WallMs)
	}
}

// queueUp puts a timer into its destination queue.
func (l *Scheduler) queueUp(e entry) {
	d := l.table.Due(e.handle)
	l.queueIn(l.destQueue(l.queue(d.Topic), d.Target), e)
}

// join gives a topic its turns; a pulled topic is marked ready instead.
func (l *Scheduler) join(q *topicQueue) {
	switch {
	case l.due.topics[q.id] != q || q.deferred.In():
	case q.pulled():
		l.markReady(q)
	case q.tenant == nil && (q.topic == nil || q.id == table.CanaryTopic):
		l.due.turns.join(q, "")
	case q.tenant == nil:
		l.due.turns.join(q, l.cfg.Dispatcher.Tenant(q.topic))
	}
}

// reopen has what was refused ask again when its time has come.
func (l *Scheduler) reopen() {
	for n := 0; l.due.shut.len() > 0 && l.due.shut.top().until <= l.now.Mono; n++ {
		if n == PopBudget || l.env.Spent(1) {
			l.env.WakeNext()
			return
		}
		k := l.due.shut.pop()
		if k.topic != nil {
			l.join(k.topic)
			continue
		}
		if d := k.dest; d.shutUntil == k.until && l.keeps(d) {
			d.shutUntil, d.shutMs = 0, l.now.WallMs
			l.update(d)
			l.join(d.queue)
		}
	}
}

// spread returns how long after its due time a timer's first attempt starts, in ms, so that timers
// of one instant do not all start at once. It depends on the timer's id alone; in a serial topic on
// its key, which keeps the order. A timer that somebody asked for by hand is not spread.
func (l *Scheduler) spread(q *topicQueue, d *table.Due, h timer.Handle) int64 {
	if q.topic == nil || q.topic.Policy.SpreadMs <= 0 || d.Attempts > 0 || d.AskedMs != 0 {
		return 0
	}
	hash := l.table.IDHash(h)
	if q.topic.Policy.Serial {
		hash = l.table.KeyHash(h)
	}
	return int64(hash % uint64(q.topic.Policy.SpreadMs))
}
