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
	scheduler *Scheduler
	id        timer.TopicID
	topic     *timer.Topic // as this node knows it; nil: not known (yet)
	at        int          // in dueQueues.list

	routes map[table.Target]*destQueue
	byDest map[Destination]*destQueue
	dests  []*destQueue
	// ready are those that may have a permit: granted, and by class of calls. held are the others
	// with timers.
	ready   [1 + delivery.Classes]order.Heap[*destQueue]
	held    order.Heap[*destQueue]
	entries [states]int // timers in them, outdated ones included

	asks    [delivery.Classes]bool            // it waits for a slot of the node
	credits [delivery.Classes]delivery.Credit // a slot of the node that it was given
	tenant  *tenantTurns                      // nil: it has no turn
	turn    order.Spot[*topicQueue]
	// deferred is its place among the topics that wait until all that is due has left the wheel.
	deferred order.Spot[*topicQueue]
	withSlot order.Spot[*topicQueue] // in dueQueues.withSlot: it has credits
	limited  order.Spot[*topicQueue] // in topicLimits.queues

	// resumedMs is when the topic was last resumed, wall clock; 0: never. Occurrences due before
	// may have been missed.
	resumedMs int64
	limitedMs int64 // when its limit or its window last refused a lease, or let one go again, wall clock

	window   topicWindow
	windowMs int64 // when it is looked at again, in dueQueues.windows; 0: it is not there

	limiterUse *limiterUse          // nil: the topic has no limit
	keys       map[uint64]*keyQueue // by hash of the key; nil: the topic is not serial
	keyRing    order.Ring[*keyQueue]
	inLine     int    // entries of keys, without heads
	order      uint32 // how often the topic has stopped being serial

	// moving are destination queues from before the topic changed. Their timers are queued again in
	// slices.
	moving        [][]*destQueue
	movingEntries int
	moved         map[timer.Handle]bool // set while outdated entries are dropped: a timer may be queued twice

	listed     bool // it is in consumerLeases.pullable
	newlyReady bool // timers became ready in this turn
	// fullUntil is until when the topic is taken to be at its limit, unless a lease ends here. No
	// pull need come before. Monotonic.
	fullUntil time.Duration
}

// heapOf is where destination queues of a state are; nil for idle ones.
func (q *topicQueue) heapOf(state queueState) *order.Heap[*destQueue] {
	switch {
	case state == idle:
		return nil
	case state < waiting:
		return &q.ready[state-granted]
	}
	return &q.held
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

// queued counts the timers in destination queues, outdated ones included.
func (q *topicQueue) queued() (n int) {
	for _, entries := range q.entries {
		n += entries
	}
	return n
}

// queue finds or makes the queue of a topic.
func (s *Scheduler) queue(id timer.TopicID) *topicQueue {
	q := s.due.topics[id]
	if q != nil {
		return q
	}
	q = &topicQueue{scheduler: s, id: id, topic: s.topic(id), at: len(s.due.list)}
	q.turn.Of, q.deferred.Of, q.withSlot.Of, q.limited.Of = q, q, q, q
	q.clearDests()
	s.due.topics[id] = q
	s.due.list = append(s.due.list, q)
	s.setOrder(q)
	s.setLimit(q)
	s.due.made++
	return q
}

// clearDests gives the topic fresh destination queues.
func (q *topicQueue) clearDests() {
	q.routes, q.byDest, q.dests = map[table.Target]*destQueue{}, map[Destination]*destQueue{}, nil
	q.ready, q.held, q.entries = [1 + delivery.Classes]order.Heap[*destQueue]{}, order.Heap[*destQueue]{}, [states]int{}
}

// forgetTopic drops the queue of a topic that has nothing.
func (s *Scheduler) forgetTopic(q *topicQueue) {
	if q.limiterUse != nil {
		s.leaveLimit(q)
	}
	delete(s.due.topics, q.id)
	if q.topic == nil {
		delete(s.keys.inOrder, q.id)
	}
	last := len(s.due.list) - 1
	s.due.list[q.at] = s.due.list[last]
	s.due.list[q.at].at = q.at
	s.due.list[last] = nil
	s.due.list = s.due.list[:last]
}

// GrantedSlot implements delivery.NodeWaiter; called from any goroutine.
func (q *topicQueue) GrantedSlot(class int, c delivery.Credit) {
	q.scheduler.env.Post(func(stopped bool) {
		if stopped {
			c.Cancel()
			return
		}
		q.scheduler.creditGranted(q, class, c)
	})
}

// creditGranted handles a slot that a topic waited for.
func (s *Scheduler) creditGranted(q *topicQueue, class int, c delivery.Credit) {
	q.asks[class] = false
	if !s.active || s.due.topics[q.id] != q || q.pulled() || q.credits[class] != nil {
		c.Cancel()
		return
	}
	q.credits[class] = c
	s.due.withSlot.Push(&q.withSlot)
	s.join(q)
	s.env.Wake()
}

// returnCredits gives the slots that a topic cannot use now to others.
func (s *Scheduler) returnCredits(q *topicQueue) {
	q.withSlot.Leave()
	for class, c := range q.credits {
		if c != nil {
			q.credits[class] = nil
			c.Cancel()
		}
	}
}

// returnSpares gives the permits of a topic to others.
func (s *Scheduler) returnSpares(q *topicQueue) {
	for q.ready[0].Len() > 0 {
		s.returnSpare(q.ready[0].First())
	}
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
