package route

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
type pullWaiters struct {
	tasks   task.Env
	count   atomic.Int32
	mu      sync.Mutex
	topics  map[timer.TopicID]*topicWaiters
	watches int
}

// topicWaiters wait for one topic.
type topicWaiters struct {
	queue   []*waiter       // the longest first
	watched map[uint64]bool // nodes that were asked to notify this one
}

// waiter is a consumer that waits.
type waiter struct {
	topic timer.TopicID
	want  int           // timers
	since time.Duration // when its waiting began
	node  uint64        // it waits for clients there; 0: it is this node's own
	wake  task.Signal
	told  int  // timers for which it was woken
	gone  bool // it was woken, or left
}

func newPullWaiters(tasks task.Env) *pullWaiters {
	return &pullWaiters{tasks: tasks, topics: map[timer.TopicID]*topicWaiters{}}
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
	w := &waiter{topic: topic, want: want, since: since, node: node, wake: p.tasks.NewSignal()}
	at := len(t.queue)
	for at > 0 && t.queue[at-1].since > since {
		at--
	}
	t.queue = slices.Insert(t.queue, at, w)
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
	if woken = w.gone; !woken {
		t := p.topics[w.topic]
		t.queue = slices.DeleteFunc(t.queue, func(o *waiter) bool { return o == w })
		p.removed(w)
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

func (p *pullWaiters) removed(w *waiter) {
	w.gone = true
	p.count.Add(-1)
}

func (p *pullWaiters) dropEmptyLocked(topic timer.TopicID) {
	if t := p.topics[topic]; t != nil && len(t.queue) == 0 && len(t.watched) == 0 {
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
	if t == nil {
		return
	}
	keep := t.queue[:0]
	for _, w := range t.queue {
		if timers <= 0 || fromPeer && w.node != 0 {
			keep = append(keep, w)
			continue
		}
		w.told = min(timers, w.want)
		timers -= w.want
		p.removed(w)
		w.wake.Set()
	}
	clear(t.queue[len(keep):])
	t.queue = keep
	p.dropEmptyLocked(topic)
}

// wanted are how many timers this node's own clients wait for.
func (t *topicWaiters) wanted() (n int) {
	for _, w := range t.queue {
		if w.node == 0 {
			n += w.want
		}
	}
	return n
}

// waitedFor are the topics that this node's own clients wait for.
func (p *pullWaiters) waitedFor() (topics []timer.TopicID) {
	if p.count.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, t := range p.topics {
		if t.wanted() > 0 {
			topics = append(topics, id)
		}
	}
	slices.Sort(topics)
	return topics
}

// watch notes that a node is about to be asked to notify this one; begin is false when it has been,
// or nobody waits. full: it cannot be asked.
func (p *pullWaiters) watch(topic timer.TopicID, node uint64) (begin, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[topic]
	switch {
	case t == nil || t.watched[node] || t.wanted() == 0:
		return false, false
	case p.watches >= maxWatches:
		return false, true
	}
	t.watched[node] = true
	p.watches++
	return true, false
}

// stillWanted is for how many timers a watched node should notify; with 0 the watch is over.
func (p *pullWaiters) stillWanted(topic timer.TopicID, node uint64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[topic]
	n := t.wanted()
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
