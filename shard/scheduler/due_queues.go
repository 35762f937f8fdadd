package scheduler

import (
	"time"

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
	judgeBudget = 1024 // attempts judged, once their calls have ended
	leastMoves  = 1024 // in the wheel
	popChunk    = 64
	leastPops   = 16
	leastLeases = 16
)

// queueSteps is what it costs to make a queue, of a topic, a receiver or a key, in steps of
// Env.Spent, in addition to the timer that comes into it.
const queueSteps = 2

// spentOn counts timers that were queued, and the queues that were made for them. It returns what
// they cost.
func (dq *dueQueues) spentOn(timers int) (steps int, over bool) {
	steps = timers + queueSteps*dq.topics.takeMade()
	return steps, dq.env.Spent(steps)
}

// Look-ahead: a lease is proposed this long before the due time, so that it is committed in time.
const (
	minLookAhead = 20 * time.Millisecond
	MaxLookAhead = 250 * time.Millisecond
)

func (l *leader) leastLookAhead() time.Duration {
	if l.cfg.ManualClock {
		return 0
	}
	return minLookAhead
}

// learn adapts the look-ahead to two of the longest commits, or confirmations, of this second and
// the one before: a lease that is proposed while many others are takes as long as theirs. By a
// manual clock they take none.
func (dq *dueQueues) learn(commit, now time.Duration) {
	if window := now / time.Second; window != dq.window {
		last := dq.longest[1]
		if window > dq.window+1 {
			last = 0
		}
		dq.longest, dq.window = [2]time.Duration{last, 0}, window
	}
	dq.longest[1] = max(dq.longest[1], commit)
	dq.lookAhead = min(max(2*dq.longest[0], 2*dq.longest[1], dq.leastLookAhead()), MaxLookAhead)
}

// dueQueues takes timers from the wheel as they become due, and finds the queue of each.
type dueQueues struct {
	later heap[entry] // popped, but further off than the look-ahead (the clock stepped back)
	exact heap[entry] // of pulled or rate-limited topics: not leased before they are due

	caughtUp  bool // every due timer has left the wheel in this turn
	lookAhead time.Duration
	longest   [2]time.Duration // commits of the second before window, and of window
	window    time.Duration    // in seconds
	popped    [popChunk]wheel.Handle
	least     bool // see Env.Least

	rearming  bool // rearm walks the table: until it is done due timers may be missing
	rearmFrom timer.Handle

	*leader
	inherited *inheritedLeases
	keys      *keyQueues
	out       *outcomes
	series    *seriesTimes
	topics    *topicQueues
	windows   *topicWindows
	zones     *unknownZones
}

func newDueQueues(s *Scheduler) dueQueues {
	return dueQueues{
		lookAhead: s.leastLookAhead(), leader: &s.leader,
		inherited: &s.inherited, keys: &s.Keys, out: &s.Outcomes, series: &s.series, topics: &s.topics, windows: &s.windows, zones: &s.zones,
	}
}

// take advances the wheel and queues the timers that are due within the look-ahead.
func (dq *dueQueues) take() {
	if dq.table.ClockMs()-dq.now.WallMs <= table.ClockAheadMs && dq.table.Rewind(dq.now.WallMs) {
		dq.later, dq.exact = heap[entry]{}, heap[entry]{} // the walk finds these, too
		dq.rearmAll()
		dq.env.WakeNext()
	}
	horizon := dq.now.WallMs + dq.lookAhead.Milliseconds()
	dq.least = dq.env.Least()
	dq.advance(horizon)
	taken := dq.takeWaiting(&dq.later, horizon, 0, horizon)
	taken = dq.takeWaiting(&dq.exact, dq.now.WallMs, taken, horizon)
	for over := !dq.least; taken < PopBudget && !over; {
		chunk := dq.popped[:]
		if dq.env.Spent(0) {
			chunk = chunk[:leastPops]
		}
		n := dq.table.Pop(chunk)
		for _, h := range chunk[:n] {
			dq.sort(timer.Handle(h), horizon)
		}
		steps, late := dq.spentOn(n)
		taken, over = taken+steps, late
		if n == len(chunk) {
			continue
		}
		if !dq.waiting(horizon) {
			return
		}
		break
	}
	dq.caughtUp = false
	dq.env.WakeNext()
}

// advance moves the wheel forward in time. A step pays for 16 moves.
func (dq *dueQueues) advance(horizon int64) {
	dq.caughtUp = false
	for moved, over := 0, !dq.least; moved < WheelBudget && !over; moved += leastMoves {
		if dq.table.Advance(horizon, leastMoves) {
			dq.caughtUp = !dq.rearming && !dq.table.Restamping()
			return
		}
		over = dq.env.Spent(leastMoves / 16)
	}
	dq.env.WakeNext()
}

// takeWaiting queues the timers of a heap that are due by then, within the budget.
func (dq *dueQueues) takeWaiting(h *heap[entry], until int64, taken int, horizon int64) int {
	for over := false; h.len() > 0 && h.top().dueMs <= until && taken < PopBudget && !over; {
		dq.classify(h.pop(), horizon)
		var steps int
		steps, over = dq.spentOn(1)
		taken += steps
	}
	return taken
}

// waiting reports whether timers that are due have left the wheel, and are in no queue yet.
func (dq *dueQueues) waiting(horizon int64) bool {
	return dq.later.len() > 0 && dq.later.top().dueMs <= horizon || dq.exact.len() > 0 && dq.exact.top().dueMs <= dq.now.WallMs
}

// sort queues a timer that left the wheel, or prepares its expiry, skip, or forgetting.
func (dq *dueQueues) sort(h timer.Handle, horizon int64) {
	d := dq.table.Due(h)
	e := entry{dueMs: d.NextMs, seq: d.Seq, handle: h, rev: d.Rev, rank: rankOf(d.Priority)}
	if d.State != timer.Dead && !dq.HasZone(h, &d) {
		if d.State == timer.Scheduled {
			dq.zones.await(e, d.Topic)
		} else {
			dq.table.Arm(h, horizon+zoneRetry.Milliseconds())
		}
		return
	}
	switch d.State {
	case timer.Scheduled:
		if d.ExpiresMs != 0 && dq.now.WallMs > d.ExpiresMs {
			if dq.topic(d.Topic) == nil && !dq.cfg.Topics.Given(d.Topic) { // it may have an outcome
				dq.table.Arm(h, horizon+unknownWait.Milliseconds())
				return
			}
			dq.out.expire(e)
			return
		}
		if d.ExpiresMs != 0 && d.NextMs > d.ExpiresMs { // popped for its expiry, early by the look-ahead
			dq.table.Arm(h, horizon+d.ExpiresMs+1-dq.now.WallMs)
			return
		}
		if d.Paused || d.Behind {
			if d.ExpiresMs != 0 {
				d.ExpiresMs = horizon + d.ExpiresMs + 1 - dq.now.WallMs
			}
			dq.table.Hold(h, d.ExpiresMs)
			return
		}
		if dq.missed(e, &d, horizon) {
			return
		}
		dq.classifyAs(e, &d, horizon)
	case timer.Leased:
		dq.inherited.leaseEnded(h, &d)
	case timer.Dead:
		if d.RetainMs > dq.now.WallMs {
			dq.table.Arm(h, horizon+d.RetainMs-dq.now.WallMs)
			return
		}
		dq.out.forget(e)
	}
}

// missed has an occurrence skipped that is late, if its series asks for it, and reports whether it
// did. While its topic's policy keeps it (spread, window, wait of a batch), it is not late.
func (dq *dueQueues) missed(e entry, d *table.Due, horizon int64) bool {
	if !dq.series.missed(e, d.Missed) {
		return false
	}
	if !d.Missed {
		q := dq.topics.queue(d.Topic)
		if q.topic == nil && !dq.cfg.Topics.Given(d.Topic) {
			dq.table.Arm(e.handle, horizon+unknownWait.Milliseconds())
			return true
		}
		at := dq.windows.opening(q, e.dueMs+dq.spread(q, d, e.handle))
		if b := q.batch(); b != nil {
			at += b.WaitMs
		}
		if dq.now.WallMs-at <= missedAfterMs {
			return false
		}
	}
	dq.series.skip(e)
	return true
}

// classify puts a scheduled timer into its destination queue, or into the queue of its key. A timer
// with an expiry is also armed for that moment, in case its gates stay shut.
func (dq *dueQueues) classify(e entry, horizon int64) {
	d := dq.table.Due(e.handle)
	dq.classifyAs(e, &d, horizon)
}

// classifyAs is classify; d is what the table has of the timer now.
func (dq *dueQueues) classifyAs(e entry, d *table.Due, horizon int64) {
	if e.dueMs > horizon {
		e.rank = 0 // later is ordered by time alone
		dq.later.push(e)
		return
	}
	if d.Seq != e.seq || d.Rev != e.rev || d.State != timer.Scheduled {
		return
	}
	e.rank = rankOf(d.Priority)
	q := dq.topics.queue(d.Topic)
	if e.dueMs = d.NextMs + dq.spread(q, d, e.handle); e.dueMs > horizon {
		at := e.dueMs
		if d.ExpiresMs != 0 {
			at = min(at, horizon+d.ExpiresMs+1-dq.now.WallMs)
		}
		dq.table.Delay(e.handle, at)
		return
	}
	switch {
	case q.topic != nil && (q.topic.Policy.Rate.PerSecond > 0 || q.mode.rated() || q.pulled() || q.batch() != nil) && e.dueMs > dq.now.WallMs:
		e.rank = 0
		dq.awaitInstant(e)
	case q.keys != nil:
		dq.keys.enter(q, e)
	default:
		dq.topics.place(q, d, e)
	}
	if d.ExpiresMs != 0 {
		dq.table.Arm(e.handle, horizon+d.ExpiresMs+1-dq.now.WallMs)
	}
}

// awaitInstant keeps a timer that must not be leased before it is due.
func (dq *dueQueues) awaitInstant(e entry) {
	dq.exact.push(e)
	dq.table.WaitIn(e.handle, nil, 0)
}

// queueUp puts a timer into its destination queue.
func (dq *dueQueues) queueUp(e entry) {
	d := dq.table.Due(e.handle)
	dq.topics.place(dq.topics.queue(d.Topic), &d, e)
}

// spread returns how long after its due time a timer's first attempt starts, in ms, so that timers
// of one instant do not all start at once. It depends on the timer's id alone; in a serial topic on
// its key, which keeps the order. A timer that somebody asked for by hand is not spread.
func (dq *dueQueues) spread(q *topicQueue, d *table.Due, h timer.Handle) int64 {
	if q.topic == nil || q.topic.Policy.SpreadMs <= 0 || d.Attempts > 0 || d.AskedMs != 0 {
		return 0
	}
	hash := dq.table.IDHash(h)
	if q.topic.Policy.Serial {
		hash = dq.table.KeyHash(h)
	}
	return int64(hash % uint64(q.topic.Policy.SpreadMs))
}

// rearm walks the table once, in slices, and puts popped timers back into the wheel, as after a
// former leadership.
func (dq *dueQueues) rearm() {
	if !dq.rearming {
		return
	}
	var done bool
	dq.rearmFrom, done = dq.inSlices(dq.rearmFrom, func(from timer.Handle, slots int) (timer.Handle, bool) {
		next, done := dq.table.RearmRange(from, slots)
		for h := from + 1; h <= next && len(dq.keys.refs) > 0; h++ {
			dq.keys.refOf(h) // drops refs of keys that are not kept any more
		}
		return next, done
	})
	dq.rearming = !done
}

// rearmAll puts all timers that have left the wheel back, in slices: queued timers were dropped, or
// the log did not take an item.
func (dq *dueQueues) rearmAll() { dq.rearming, dq.rearmFrom = true, 0 }
