package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
)

// slotGranted handles a permit that a destination queue waited for.
func (tq *topicQueues) slotGranted(n *destQueue, p delivery.Permit) {
	n.atReceiver, n.shutMs = false, tq.now.WallMs
	if t := n.queue.topic; !tq.keeps(n) || n.len() == 0 || n.spare != nil || t == nil || t.Paused {
		p.Cancel()
		tq.update(n)
		return
	}
	n.spare = p
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
	tq.shut.push(shutKey{n.shutUntil, n, nil})
	tq.update(n)
}

// keeps reports that a destination queue is one of this leadership, and its topic has not changed.
func (tq *topicQueues) keeps(n *destQueue) bool {
	q := n.queue
	return tq.active && tq.byID[q.id] == q && n.at >= 0 && n.at < len(q.dests) && q.dests[n.at] == n
}

// update puts a destination queue where it belongs after any change of it. Cost: O(log n) in the
// destination queues of its topic.
func (tq *topicQueues) update(n *destQueue) {
	q := n.queue
	if !tq.keeps(n) {
		return
	}
	want := n.want()
	q.entries[n.state] -= n.counted
	if n.counted = n.len(); n.counted > 0 {
		n.first = n.head()
	}
	q.entries[want] += n.counted
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
	if n.spare != nil && n.len() == 0 {
		tq.returnSpare(n) // others wait for it
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

// returnSpare gives a permit to others that wait for one.
func (tq *topicQueues) returnSpare(n *destQueue) {
	p := n.spare
	n.spare = nil
	n.spareSpot.Leave()
	p.Cancel()
	tq.update(n)
}

// queueIn puts a timer into a destination queue.
func (tq *topicQueues) queueIn(n *destQueue, e entry) {
	if !n.queue.pulled() && tq.now.WallMs-e.dueMs > backlogAfterMs {
		n.backlog.push(e)
	} else {
		n.fresh.push(e)
	}
	tq.update(n)
	tq.join(n.queue)
}

// pop takes the first timer out of a destination queue.
func (tq *topicQueues) pop(n *destQueue) entry {
	h := n.half()
	n.backlogTurn = h == &n.fresh
	e := h.pop()
	tq.update(n)
	return e
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
		n = &destQueue{queue: q, dest: dest, at: len(q.dests)}
		n.spareSpot.Of, n.idleSpot.Of = n, n
		q.byDest[dest] = n
		q.dests = append(q.dests, n)
		tq.made++
	}
	if len(n.targets) == maxTargets {
		n.forgetTargets()
	}
	q.routes[target] = n
	n.targets = append(n.targets, target)
	return n
}

// forgetDest drops a destination queue that has nothing.
func (tq *topicQueues) forgetDest(n *destQueue) {
	q := n.queue
	n.idleSpot.Leave()
	if !tq.keeps(n) {
		return // its topic has changed since
	}
	n.forgetTargets()
	delete(q.byDest, n.dest)
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
	if p := n.spare; p != nil {
		n.spare = nil
		n.spareSpot.Leave()
		return p
	}
	if p, ok := n.dest.(canaryDest); ok {
		return p
	}
	q := n.queue
	p, v := tq.cfg.Dispatcher.Acquire(n.dest, q.topic, delivery.Ask{Receiver: n, Node: q, Credit: q.credits[n.class]})
	switch {
	case p != nil:
		q.credits[n.class] = nil // it is used up
		return p
	case v.Kind == delivery.ReceiverFull:
		n.atReceiver, n.shutMs = true, tq.now.WallMs
	case v.Kind == delivery.NodeFull:
		n.class, n.shutMs, q.asks[v.Class] = v.Class, tq.now.WallMs, true
	default:
		tq.shutFor(n, v.RetryIn)
		return nil
	}
	tq.update(n)
	return nil
}

// landed ends one of a destination queue's leases.
func (tq *topicQueues) landed(n *destQueue) {
	n.flying--
	tq.update(n)
}
