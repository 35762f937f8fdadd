package route

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/order"
	"carillon/node/task"
	"carillon/timer"
)

// Bounds: consumers that wait beyond them look again every lookAgain.
const (
	maxWaiters = 20_000
	maxWatches = 1_000
)

// pullWaiters are consumers of topics that have no timer ready: this node's clients, and other
// nodes on behalf of theirs. A shard's leader notifies when timers have become ready, and as long
// as they are; the longest waiter is woken first, as many as there is work for. To be woken is no
// promise: another may be quicker, and then the place in the queue is kept.
//
// Cost: O(log n) for one that comes, leaves or is woken.
type pullWaiters struct {
	tasks   task.Env
	count   atomic.Int32
	mu      sync.Mutex
	topics  map[timer.TopicID]*topicWaiters
	watches int
	joined  uint64
}

// topicWaiters wait for one topic, the longest first.
type topicWaiters struct {
	own     order.Heap[*waiter] // this node's clients
	others  order.Heap[*waiter] // other nodes
	wanted  int                 // timers that this node's own clients wait for
	watched map[uint64]bool     // nodes that were asked to notify this one
}

// waiter is a consumer that waits.
type waiter struct {
	topic  timer.TopicID
	want   int           // timers
	since  time.Duration // when its waiting began
	number uint64        // grows with each that joins
	node   uint64        // it waits for clients there; 0: it is this node's own
	wake   task.Signal
	told   int // timers for which it was woken
	place  int // 0: it was woken, or left
}

func (w *waiter) Before(o *waiter) bool {
	return w.since < o.since || w.since == o.since && w.number < o.number
}

func (w *waiter) Place() *int { return &w.place }

func newPullWaiters(tasks task.Env) *pullWaiters {
	return &pullWaiters{tasks: tasks, topics: map[timer.TopicID]*topicWaiters{}}
}

// heapOf is where the waiters of a node are.
func (t *topicWaiters) heapOf(node uint64) *order.Heap[*waiter] {
	if node == 0 {
		return &t.own
	}
	return &t.others
}

// first is the longest waiter; nil if there is none. ownOnly: of this node's own clients.
func (t *topicWaiters) first(ownOnly bool) (first *waiter) {
	if t.own.Len() > 0 {
		first = t.own.First()
	}
	if !ownOnly && t.others.Len() > 0 && (first == nil || t.others.First().Before(first)) {
		first = t.others.First()
	}
	return first
}

// join adds a waiter; nil when there are too many.
func (p *pullWaiters) join(topic timer.TopicID, want int, since time.Duration, node uint64) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count.Load() >= maxWaiters {
		return nil
	}
	t := p.topics[topic]
	if t == nil {
		t = &topicWaiters{watched: map[uint64]bool{}}
		p.topics[topic] = t
	}
	p.joined++
	w := &waiter{topic: topic, want: want, since: since, number: p.joined, node: node, wake: p.tasks.NewSignal()}
	t.heapOf(node).Push(w)
	if node == 0 {
		t.wanted += want
	}
	p.count.Add(1)
	return w
}

// leave takes a waiter away. One that was woken leaves too; the next notice wakes another.
func (p *pullWaiters) leave(w *waiter) (woken bool) {
	if w == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if woken = w.place == 0; !woken {
		p.removeLocked(p.topics[w.topic], w)
	}
	p.dropEmptyLocked(w.topic)
	return woken
}

// passOn removes a waiter that does not look any more. The timer for which it was woken goes to the
// next. wokenBefore: it was woken when it waited before.
func (p *pullWaiters) passOn(w *waiter, wokenBefore bool) {
	if woken := p.leave(w); w != nil && (woken || wokenBefore) {
		p.notify(w.topic, w.want, false)
	}
}

func (p *pullWaiters) removeLocked(t *topicWaiters, w *waiter) {
	t.heapOf(w.node).Remove(w)
	if w.node == 0 {
		t.wanted -= w.want
	}
	p.count.Add(-1)
}

func (p *pullWaiters) dropEmptyLocked(topic timer.TopicID) {
	if t := p.topics[topic]; t != nil && t.own.Len()+t.others.Len()+len(t.watched) == 0 {
		delete(p.topics, topic)
	}
}

// notify wakes the consumers for which there is work. fromPeer: another node has notified this one,
// and notifies the others itself.
func (p *pullWaiters) notify(topic timer.TopicID, timers int, fromPeer bool) {
	if p.count.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[topic]
	for t != nil && timers > 0 {
		w := t.first(fromPeer)
		if w == nil {
			break
		}
		w.told = min(timers, w.want)
		timers -= w.want
		p.removeLocked(t, w)
		w.wake.Set()
	}
	p.dropEmptyLocked(topic)
}

// those are the topics that somebody waits for, and of these some.
func (p *pullWaiters) those(are func(*topicWaiters) bool) (topics []timer.TopicID) {
	if p.count.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	for id, t := range p.topics {
		if are(t) {
			topics = append(topics, id)
		}
	}
	p.mu.Unlock()
	slices.Sort(topics)
	return topics
}

// watch reports whether a node is being asked to notify this one. ask: it is to be asked now.
func (p *pullWaiters) watch(topic timer.TopicID, node uint64) (asked, ask bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[topic]
	if t == nil || t.watched[node] || t.wanted == 0 || p.watches >= maxWatches {
		return t != nil && t.watched[node], false
	}
	t.watched[node] = true
	p.watches++
	return true, true
}

// stillWanted is for how many timers a watched node should notify; with 0 the watch is over.
func (p *pullWaiters) stillWanted(topic timer.TopicID, node uint64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[topic]
	n := t.wanted
	if n == 0 {
		p.unwatchLocked(t, topic, node)
	}
	return n
}

// unwatch ends a watch.
func (p *pullWaiters) unwatch(topic timer.TopicID, node uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwatchLocked(p.topics[topic], topic, node)
}

func (p *pullWaiters) unwatchLocked(t *topicWaiters, topic timer.TopicID, node uint64) {
	delete(t.watched, node)
	p.watches--
	p.dropEmptyLocked(topic)
}
