package shard

import (
	"context"
	"slices"
	"sync"

	"carillon/timer"
)

// What a topic that is pulled has ready. Its timers wait in one lane of each shard until somebody takes them (see take.go). Who pulls
// first looks at the heads of all shards, here and on other nodes, so that what comes first is taken first; then takes.

// Offer is a timer that is ready, as far as it matters for who pulls.
type Offer struct {
	Shard    timer.ShardID
	Priority uint8
	DueMs    int64
	Bytes    int // about, of its payload and the rest
}

// Before is the order in which timers are taken: priority, then due time. Arrival is known only within a shard.
func (o *Offer) Before(p *Offer) bool {
	if o.Priority != p.Priority {
		return o.Priority > p.Priority
	}
	return o.DueMs < p.DueMs
}

// SortOffers brings offers into order; equal ones stay as they are.
func SortOffers(list []Offer) {
	slices.SortStableFunc(list, func(a, b Offer) int {
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

// stir notes that timers of a pulled topic may be ready.
func (l *lead) stir(q *topicQueue) {
	q.stirred = true
	if !q.offered {
		q.offered = true
		l.offered = append(l.offered, q)
	}
}

// announce tells who waits of what has become ready in this turn.
func (l *lead) announce() {
	for _, q := range l.offered {
		if q.stirred {
			q.stirred = false
			l.call(q)
		}
	}
}

// remind tells again of all that is ready: whoever was told may have gone.
func (l *lead) remind() {
	if !l.active {
		return
	}
	keep := l.offered[:0]
	for _, q := range l.offered {
		if q.offered = q.pulled() && q.ready() > 0; q.offered {
			keep = append(keep, q)
			l.call(q)
		}
	}
	clear(l.offered[len(keep):])
	l.offered = keep
}

func (l *lead) call(q *topicQueue) {
	if n := q.ready(); n > 0 && l.mayOffer(q) {
		l.group.w.host.cfg.Ready(q.id, n)
	}
}

// mayOffer reports that nothing but a taker is missing.
func (l *lead) mayOffer(q *topicQueue) bool {
	g := l.group
	return l.active && l.mayStart() && g.heir == 0 && !g.w.host.draining.Load() && q.pulled() && !q.topic.Paused && q.fullUntil <= g.w.mono &&
		g.table.delivers(q.id, true)
}

// ready is how many timers wait, those counted in that have changed meanwhile.
func (q *topicQueue) ready() (n int) {
	for _, l := range q.lanes {
		n += l.len()
	}
	return n
}

// spot is a place in a lane's heap: after it come those below it.
type spot struct {
	entry
	group *group
	heap  *heap[entry]
	at    int
}

func (p spot) before(o spot) bool { return p.entry.before(o.entry) }

// heads finds the first of what is ready in the given groups, in order, and changes nothing. It walks the heaps from their tops, so it
// looks at little more than it returns.
func heads(groups []*group, topic timer.TopicID, most int) []Offer {
	var front heap[spot]
	for _, g := range groups {
		if g.lead == nil || g.lead.topics[topic] == nil || !g.lead.mayOffer(g.lead.topics[topic]) {
			continue
		}
		for _, n := range g.lead.topics[topic].lanes {
			for _, h := range []*heap[entry]{&n.fresh, &n.backlog} {
				for h.len() > 0 && !g.lead.stands(h.top()) {
					h.pop() // for good
				}
				if h.len() > 0 {
					front.push(spot{h.top(), g, h, 0})
				}
			}
		}
	}
	var out []Offer
	for looks := 4*most + 64; front.len() > 0 && len(out) < most && looks > 0; looks-- {
		p := front.pop()
		for _, below := range [...]int{2*p.at + 1, 2*p.at + 2} {
			if below < p.heap.len() {
				front.push(spot{p.heap.items[below], p.group, p.heap, below})
			}
		}
		if p.group.lead.stands(p.entry) {
			out = append(out, Offer{p.group.id, p.priority, p.dueMs, p.group.table.copySize(p.handle, true)})
		}
	}
	return out
}

// Offers are the first of what is ready of a topic in the shards that this node leads, in order.
func (h *Host) Offers(_ context.Context, topic timer.TopicID, most int) ([]Offer, error) {
	var mu sync.Mutex
	var out []Offer
	h.onWorkers(func(w *worker) {
		list := heads(w.groups, topic, most)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, list...)
	})
	SortOffers(out)
	return out[:min(len(out), most)], nil
}
