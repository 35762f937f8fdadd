package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// topicQueue holds the destination queues of one topic in one shard, by what they wait for.
type topicQueue struct {
	queues *topicQueues
	id     timer.TopicID
	topic  *timer.Topic // as this node knows it; nil: not known (yet)
	at     int          // in topicQueues.list

	destinations
	dueOrder table.DueOrder // its due timers that wait in it, and stand

	asks    [delivery.Classes]bool            // it waits for a slot of the node
	credits [delivery.Classes]delivery.Credit // a slot of the node that it was given
	tenant  *tenantTurns                      // nil: it has no turn
	turn    order.Spot[*topicQueue]
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

// of is what the topic's backlog waits for: a limit that has refused a lease within
// unexplainedMs.
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
// topics. Cost of all methods: O(1).
type turns struct {
	tenants map[string]*tenantTurns
	ring    order.Ring[*tenantTurns]
}

type tenantTurns struct {
	name   string
	topics order.Ring[*topicQueue]
	spot   order.Spot[*tenantTurns]
}

func (t *turns) join(q *topicQueue, tenant string) {
	x := t.tenants[tenant]
	if x == nil {
		x = &tenantTurns{name: tenant}
		x.spot.Of = x
		t.tenants[tenant] = x
		t.ring.Push(&x.spot)
	}
	q.tenant = x
	x.topics.Push(&q.turn)
}

func (t *turns) leave(q *topicQueue) {
	x := q.tenant
	if x == nil {
		return
	}
	q.tenant = nil
	q.turn.Leave()
	if x.topics.Len() == 0 {
		x.spot.Leave()
		delete(t.tenants, x.name)
	}
}

// next returns the topic whose turn it is; nil if there is none.
func (t *turns) next() *topicQueue {
	if t.ring.Len() == 0 {
		return nil
	}
	return t.ring.Rotate().topics.Rotate()
}
