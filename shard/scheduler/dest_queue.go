package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// Destination is the receiver of a timer's calls, as the dispatcher names it. It is comparable, and
// equal for all timers that share a connection pool and a breaker.
type Destination any

// backlogAfterMs is how late a timer must be to go to the backlog. The backlog and the fresh timers
// take turns, so that the backlog of an outage does not starve timers that are due now.
const backlogAfterMs = 1000

// destQueue queues the ready timers of one topic for one destination. Where the topic's keys take
// turns, all are in fresh, in order of their tags.
type destQueue struct {
	table.QueuePlace
	queue *topicQueue
	dest  Destination

	fresh, backlog heap[entry]
	backlogTurn    bool
	first          entry // a copy of the head, if there is one, as of the last update

	spares     []delivery.Permit // granted and not used yet
	flying     int               // leases of this queue that have not ended
	part       order.Share       // of the turns at its receiver, by keys
	atReceiver int               // how often it waits in the dispatcher for a call of the destination to end
	shutUntil  time.Duration     // monotonic; 0: the breaker has not refused
	class      int               // of calls; the dispatcher names it
	// shutMs is when the queue was last found shut, or opened again, wall clock: timers due by then
	// were delayed.
	shutMs int64

	state   queueState
	place   int // in the heap of its state
	counted int // entries that queue.entries has of it
	timers  int // of its entries that stand
	targets []table.Target
	at      int    // in queue.dests
	group   *group // nil: each timer has its own call

	spareSpot order.Spot[*destQueue] // in topicQueues.spares
	idleSpot  order.Spot[*destQueue] // in topicQueues.idle
	idleSince int64                  // number of the sweep
}

// queueState is what a destination queue waits for.
type queueState uint8

const (
	idle      queueState = iota // it is empty
	granted                     // it has a permit
	open                        // open+class: it may ask for a permit, or for a slot of the node
	_                           // the other class
	waiting                     // for its receiver
	shut                        // for its breaker
	stuck                       // for its topic: there is no URL
	gathering                   // for more timers of its call
	states
)

// Before orders the destination queues of a topic by their first timers.
func (d *destQueue) Before(o *destQueue) bool { return d.first.before(o.first) }

// Place implements order.Ranked.
func (d *destQueue) Place() *int { return &d.place }

func (d *destQueue) len() int { return d.fresh.len() + d.backlog.len() }

// idle reports that nothing depends on the queue being kept.
func (d *destQueue) idle() bool {
	return d.len() == 0 && d.flying == 0 && len(d.spares) == 0 && d.atReceiver == 0
}

// half returns the heap whose turn it is; nil when both are empty.
func (d *destQueue) half() *heap[entry] {
	switch {
	case d.len() == 0:
		return nil
	case d.fresh.len() == 0 || d.backlogTurn && d.backlog.len() > 0:
		return &d.backlog
	}
	return &d.fresh
}

func (d *destQueue) head() entry { return d.half().top() }

// want is the state that the queue belongs in.
func (d *destQueue) want() queueState {
	switch {
	case d.len() == 0:
		return idle
	case len(d.spares) > 0:
		return granted
	case d.dest == nil && !d.queue.pulled():
		return stuck
	case d.atReceiver > 0:
		return waiting
	case d.shutUntil != 0:
		return shut
	case d.gathers():
		return gathering
	}
	return open + queueState(d.class)
}

// Granted implements delivery.Waiter; called from any goroutine.
func (d *destQueue) Granted(p delivery.Permit) {
	tq := d.queue.queues
	tq.env.Post(func(stopped bool) {
		if stopped {
			p.Cancel() // no scheduler is left to use it
			return
		}
		tq.slotGranted(d, p)
	})
}

// Refused implements delivery.Waiter; called from any goroutine.
func (d *destQueue) Refused(retryIn time.Duration) {
	tq := d.queue.queues
	tq.env.Post(func(stopped bool) {
		if !stopped {
			d.atReceiver--
			tq.shutFor(d, retryIn)
		}
	})
}

// maxTargets is how many overrides lead to one destination queue before they are looked up again.
const maxTargets = 256

func (d *destQueue) forgetTargets() {
	for _, target := range d.targets {
		if d.group != nil {
			delete(d.queue.groups, groupRoute{target, d.group.key})
		} else {
			delete(d.queue.routes, target)
		}
	}
	d.targets = d.targets[:0]
}

// canaryDest is the destination of canaries: each call succeeds at once.
type canaryDest struct{ *leader }

func (d canaryDest) start(done func(delivery.Outcome)) {
	now := d.now.WallMs
	d.env.CanaryPassed()
	done(delivery.Outcome{Status: 200, StartedMs: now, EndedMs: now})
}

// Cancel implements delivery.Permit.
func (d canaryDest) Cancel() {}

// slotGranted handles a permit that a destination queue waited for.
func (tq *topicQueues) slotGranted(n *destQueue, p delivery.Permit) {
	n.atReceiver, n.shutMs = n.atReceiver-1, tq.now.WallMs
	if t := n.queue.topic; !tq.keeps(n) || n.len() == 0 || t == nil || t.Paused {
		p.Cancel()
		tq.update(n)
		return
	}
	n.spares = append(n.spares, p)
	tq.spares.Push(&n.spareSpot)
	tq.update(n)
	tq.join(n.queue)
	tq.env.Wake()
}

// shutFor has a destination queue ask again after a while.
func (tq *topicQueues) shutFor(n *destQueue, retryIn time.Duration) {
	n.shutMs = tq.now.WallMs
	if !tq.keeps(n) {
		return
	}
	n.shutUntil = tq.now.Mono + max(retryIn, time.Millisecond)
	tq.shut.push(shutKey{until: n.shutUntil, dest: n})
	tq.update(n)
}

// keeps reports that a destination queue is one of this leadership, and its topic has not changed.
func (tq *topicQueues) keeps(n *destQueue) bool {
	return tq.active && tq.byID[n.queue.id] == n.queue && n.belongs()
}

// belongs reports that a queue was not forgotten, and its topic has not changed since.
func (d *destQueue) belongs() bool {
	return d.at >= 0 && d.at < len(d.queue.dests) && d.queue.dests[d.at] == d
}

// update puts a destination queue where it belongs after any change of it. Cost: O(log n) in the
// destination queues of its topic.
func (tq *topicQueues) update(n *destQueue) {
	q := n.queue
	if !tq.keeps(n) {
		return
	}
	want := n.want()
	q.entries -= n.counted
	if n.counted = n.len(); n.counted > 0 {
		n.first = n.head()
	}
	q.entries += n.counted
	q.standing[n.state] -= n.timers
	q.standing[want] += n.timers
	if heap := q.heapOf(n.state); want == n.state && heap != nil {
		heap.Fix(n)
	} else if want != n.state {
		if heap != nil {
			heap.Remove(n)
		}
		if n.state = want; q.heapOf(want) != nil {
			q.heapOf(want).Push(n)
		}
	}
	if n.group != nil {
		tq.gather(n.group)
	}
	if len(n.spares) > 0 && n.len() == 0 {
		tq.returnPermits(n) // others wait for them
	}
	switch {
	case !n.idle():
		n.idleSpot.Leave()
	case !n.idleSpot.In():
		n.idleSince = tq.sweeps
		tq.idle.Push(&n.idleSpot)
		if tq.idle.Len() > keptIdle {
			tq.forgetDest(tq.idle.First())
		}
	}
}

// keptIdle is how many destination queues are kept that have nothing.
const keptIdle = 1024

// returnPermits gives the permits of a destination queue to others that wait.
func (tq *topicQueues) returnPermits(n *destQueue) {
	list := n.spares
	n.spares = nil
	n.spareSpot.Leave()
	for _, p := range list {
		p.Cancel()
	}
	tq.update(n)
}

// queueIn puts a timer into a destination queue.
func (tq *topicQueues) queueIn(n *destQueue, e entry) {
	n.put(e, tq.now.WallMs)
	if tq.current(e) {
		tq.table.WaitIn(e.handle, n, e.dueMs)
	}
	tq.update(n)
	tq.join(n.queue)
}

func (tq *topicQueues) pop(n *destQueue) {
	n.take()
	tq.update(n)
}

// Count implements table.Queue. Cost: O(1).
func (d *destQueue) Count(by int) {
	d.timers += by
	if d.belongs() {
		d.queue.standing[d.state] += by
	}
}

// DueOrder implements table.Queue.
func (d *destQueue) DueOrder() *table.DueOrder { return &d.queue.dueOrder }

// put and take are queueIn and pop for several timers, after which the queue is updated.
func (d *destQueue) put(e entry, nowMs int64) {
	if q := d.queue; !q.pulled() && !q.mode.fair && nowMs-e.dueMs > backlogAfterMs {
		d.backlog.push(e)
	} else {
		d.fresh.push(e)
	}
	if d.group != nil {
		d.group.entered(e, d.queue.queues.batchBytes(d.queue, e.handle))
	}
}

func (d *destQueue) take() {
	h := d.half()
	d.backlogTurn = h == &d.fresh
	h.pop()
	if d.group != nil {
		d.group.left()
	}
}

// destQueue finds or makes the queue of a topic's timers with the given callback override.
func (tq *topicQueues) destQueue(q *topicQueue, target table.Target) *destQueue {
	if n := q.routes[target]; n != nil {
		return n
	}
	var dest Destination // nil: cannot be delivered as the topic stands
	switch {
	case q.id == table.CanaryTopic:
		dest = canaryDest{tq.leader}
	case q.pulled(): // one destination queue for all
	case q.topic != nil:
		own := tq.table.Callback(target)
		if d, err := tq.cfg.Dispatcher.Route(q.topic, &own); err == nil {
			dest = d
		}
	}
	n := q.byDest[dest]
	if n == nil {
		n = tq.makeQueue(q, dest, dest)
	}
	tq.remember(n, target)
	q.routes[target] = n
	return n
}

// makeQueue makes the queue for a destination that has the given name in the topic.
func (tq *topicQueues) makeQueue(q *topicQueue, name any, dest Destination) *destQueue {
	n := &destQueue{queue: q, dest: dest, at: len(q.dests)}
	n.spareSpot.Of, n.idleSpot.Of = n, n
	q.byDest[name] = n
	q.dests = append(q.dests, n)
	tq.countQueue()
	return n
}

// remember records an override that leads to a destination queue.
func (tq *topicQueues) remember(n *destQueue, target table.Target) {
	if len(n.targets) == maxTargets {
		n.forgetTargets()
	}
	n.targets = append(n.targets, target)
}

// name is the queue's key in byDest.
func (d *destQueue) name() any {
	if d.group != nil {
		return d.group.groupKey
	}
	return d.dest
}

// forgetDest drops a destination queue that has nothing.
func (tq *topicQueues) forgetDest(n *destQueue) {
	q := n.queue
	n.idleSpot.Leave()
	if !tq.keeps(n) {
		return // its topic has changed since
	}
	n.forgetTargets()
	q.standing[n.state] -= n.timers // they come back
	delete(q.byDest, n.name())
	last := len(q.dests) - 1
	q.dests[n.at] = q.dests[last]
	q.dests[n.at].at = n.at
	q.dests[last] = nil
	q.dests = q.dests[:last]
	n.at = -1
}

// acquire asks the dispatcher for a permit. Without one the destination queue waits for its
// receiver, the topic for a slot of the node, or the breaker for its time.
func (tq *topicQueues) acquire(n *destQueue) delivery.Permit {
	if last := len(n.spares) - 1; last >= 0 {
		p := n.spares[last]
		if n.spares = n.spares[:last]; last == 0 {
			n.spareSpot.Leave()
		}
		return p
	}
	if p, ok := n.dest.(canaryDest); ok {
		return p
	}
	q := n.queue
	ask := delivery.Ask{Receiver: n, Part: q.part(&n.part), Node: q, Credit: q.credits[n.class]}
	p, v := tq.cfg.Dispatcher.Acquire(n.dest, q.topic, ask)
	if p == nil && v.Kind != delivery.Shut {
		q.gate = shutGate{timer.WaitSlots, tq.now.WallMs}
	}
	switch {
	case p != nil:
		q.credits[n.class] = nil // it is used up
		return p
	case v.Kind == delivery.ReceiverFull:
		n.atReceiver, n.shutMs = 1, tq.now.WallMs
		tq.waitAhead(n, ask)
	case v.Kind == delivery.NodeFull:
		n.class, n.shutMs, q.asks[v.Class] = v.Class, tq.now.WallMs, true
	default:
		tq.shutFor(n, v.RetryIn)
		return nil
	}
	tq.update(n)
	return nil
}

// waitAhead has a destination queue that waits at its receiver wait there for more calls. With one
// alone, a queue with many turns would be out of line for most of them. Cost: O(log n) for each, at
// most mostAhead.
func (tq *topicQueues) waitAhead(n *destQueue, ask delivery.Ask) {
	for ask.Credit = nil; n.atReceiver < n.ahead(); n.atReceiver++ {
		p, v := tq.cfg.Dispatcher.Acquire(n.dest, n.queue.topic, ask)
		if p != nil { // a call has just ended
			n.spares = append(n.spares, p)
			tq.spares.Push(&n.spareSpot)
		}
		if v.Kind == delivery.NodeFull {
			n.queue.asks[v.Class] = true
		}
		if v.Kind != delivery.ReceiverFull {
			return
		}
	}
}

// ahead is for how many calls the queue waits at once: about what ends between two of its turns,
// and no more than its timers need.
func (d *destQueue) ahead() int {
	q := d.queue
	need := d.len()
	if len(q.dests) == 1 {
		need += q.waiting[free]
	}
	if d.group != nil {
		need = need/q.topic.Policy.Batch.Max + 1
	}
	return min(turnsAhead*q.turnsOf(), mostAhead, need)
}

// ofAnother stands for a queue of which another scheduler gets a lease: that counts there no more.
func (d *destQueue) ofAnother() *destQueue {
	return &destQueue{queue: &topicQueue{id: d.queue.id, topic: d.queue.topic}, at: -1}
}

// landed ends one of a destination queue's leases.
func (tq *topicQueues) landed(n *destQueue) {
	n.flying--
	tq.update(n)
}
