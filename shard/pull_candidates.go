package shard

import (
	"context"
	"slices"
	"sync"

	"carillon/timer"
)

// What a topic that is pulled has ready. Its timers wait in one destination queue of each shard until somebody takes them (see pull.go). Who pulls
// first looks at the heads of all shards, here and on other nodes, so that what comes first is taken first; then takes.

// Candidate is a timer that is ready, as far as it matters for who pulls.
type Candidate struct {
	Shard    timer.ShardID
	Priority uint8
	DueMs    int64
	Bytes    int // about, of its payload and the rest
}

// Before is the order in which timers are taken: priority, then due time. Arrival is known only within a shard.
func (o *Candidate) Before(p *Candidate) bool {
	if o.Priority != p.Priority {
		return o.Priority > p.Priority
	}
	return o.DueMs < p.DueMs
}

// SortCandidates brings offers into order; equal ones stay as they are.
func SortCandidates(list []Candidate) {
	slices.SortStableFunc(list, func(a, b Candidate) int {
		switch {
		case a.Before(&b):
			return -1
		case b.Before(&a):
			return 1
		}
		return 0
	})
}

// pulled reports that consumers fetch the topic's timers.
func (q *topicQueue) pulled() bool { return q.topic != nil && q.topic.Policy.Pull }

// markReady notes that timers of a pulled topic may be ready.
func (l *scheduler) markReady(q *topicQueue) {
	q.newlyReady = true
	if !q.listed {
		q.listed = true
		l.consumers.pullable = append(l.consumers.pullable, q)
	}
}

// notifyReady tells who waits of what has become ready in this turn.
func (l *scheduler) notifyReady() {
	for _, q := range l.consumers.pullable {
		if q.newlyReady {
			q.newlyReady = false
			l.call(q)
		}
	}
}

// renotifyReady tells again of all that is ready: whoever was told may have gone.
func (l *scheduler) renotifyReady() {
	if !l.active {
		return
	}
	keep := l.consumers.pullable[:0]
	for _, q := range l.consumers.pullable {
		if q.listed = q.pulled() && q.ready() > 0; q.listed {
			keep = append(keep, q)
			l.call(q)
		}
	}
	clear(l.consumers.pullable[len(keep):])
	l.consumers.pullable = keep
}

func (l *scheduler) call(q *topicQueue) {
	if n := q.ready(); n > 0 && l.mayPull(q) {
		l.group.w.host.cfg.Ready(q.id, n)
	}
}

// mayPull reports that nothing but a taker is missing.
func (l *scheduler) mayPull(q *topicQueue) bool {
	g := l.group
	return l.active && l.mayStart() && g.transferee == 0 && !g.w.host.draining.Load() && q.pulled() && !q.topic.Paused && q.fullUntil <= g.w.mono &&
		g.table.delivers(q.id, true)
}

// ready is how many timers wait, those counted in that have changed meanwhile.
func (q *topicQueue) ready() (n int) {
	for _, l := range q.lanes {
		n += l.len()
	}
	return n
}

// spot is a place in a destination queue's heap: after it come those below it.
type spot struct {
	entry
	group *group
	heap  *heap[entry]
	at    int
}

func (p spot) before(o spot) bool { return p.entry.before(o.entry) }

// topCandidates finds the first of what is ready in the given groups, in order, and changes nothing. It walks the heaps from their tops, so it
// looks at little more than it returns.
func topCandidates(groups []*group, topic timer.TopicID, most int) []Candidate {
	var front heap[spot]
	for _, g := range groups {
		if g.scheduler == nil || g.scheduler.due.topics[topic] == nil || !g.scheduler.mayPull(g.scheduler.due.topics[topic]) {
			continue
		}
		for _, n := range g.scheduler.due.topics[topic].lanes {
			for _, h := range []*heap[entry]{&n.fresh, &n.backlog} {
				for h.len() > 0 && !g.scheduler.stands(h.top()) {
					h.pop() // for good
				}
				if h.len() > 0 {
					front.push(spot{h.top(), g, h, 0})
				}
			}
		}
	}
	var out []Candidate
	for looks := 4*most + 64; front.len() > 0 && len(out) < most && looks > 0; looks-- {
		p := front.pop()
		for _, below := range [...]int{2*p.at + 1, 2*p.at + 2} {
			if below < p.heap.len() {
				front.push(spot{p.heap.items[below], p.group, p.heap, below})
			}
		}
		if p.group.scheduler.stands(p.entry) {
			out = append(out, Candidate{p.group.id, p.priority, p.dueMs, p.group.table.copySize(p.handle, true)})
		}
	}
	return out
}

// Candidates are the first of what is ready of a topic in the shards that this node leads, in order.
func (h *Host) Candidates(_ context.Context, topic timer.TopicID, most int) ([]Candidate, error) {
	var mu sync.Mutex
	var out []Candidate
	h.onWorkers(func(w *worker) {
		list := topCandidates(w.groups, topic, most)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, list...)
	})
	SortCandidates(out)
	return out[:min(len(out), most)], nil
}
