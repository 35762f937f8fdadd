package shard

import (
	"maps"
	"slices"
	"time"

	"carillon/timer"
)

// A lead's side of its topics' limits. Concurrency counts a lease from its proposal to its end; a rate counts it when it is proposed,
// which in such a topic is not before the timer is due, so that no burst gathers ahead of its time.

// foreignLease is one that a former leader took and that has not ended, of a topic with a limit.
type foreignLease struct {
	seq   uint64
	limit *limit
	until time.Duration // of one that is left over from a reign: until then it counts at most; monotonic
}

// setLimit begins or ends counting for a topic, as its policy says.
func (l *lead) setLimit(q *topicQueue) {
	want := q.topic != nil && q.topic.Policy.Limited()
	switch {
	case want == (q.place != nil):
	case want:
		q.place = l.group.w.host.limits.join(q.id, func() { l.group.w.box.post(&lent{lead: l, queue: q}) })
		for _, f := range l.flights {
			if f.lane.queue == q && f.limit == nil && f.phase != reporting {
				f.limit = q.place.limit
				f.limit.lend()
			}
		}
	default:
		q.place.leave(l.group.w.mono)
		q.place = nil
	}
}

// lent tells a lead that a topic of its may lease one more.
type lent struct {
	lead  *lead
	queue *topicQueue
}

func (e *lent) handle(w *worker) {
	q := e.queue
	if !e.lead.active || e.lead.topics[q.id] != q || q.place == nil {
		return // what was lent went back when the place was given up
	}
	for _, n := range q.lanes {
		n.shutMs = w.nowMs
	}
	e.lead.join(q)
	w.touch(e.lead.group)
}

// admit asks for leave to lease the head of a lane. Without it the topic waits to be told, or to ask again.
func (l *lead) admit(n *lane) bool {
	ok, wait := n.queue.place.take(n.queue.topic, l.group.w.mono)
	if !ok {
		n.shutMs = l.group.w.nowMs
		l.shut.push(laneKey{l.group.w.mono + wait, n})
	}
	return ok
}

// rest gives back what a topic was lent and cannot use now.
func (l *lead) rest(q *topicQueue) {
	if q.place != nil {
		q.place.giveBack(l.group.w.mono)
	}
}

// uncount ends what a flight counts towards its topic's limit.
func (l *lead) uncount(f *flight) {
	if f.limit != nil {
		f.limit.end(l.group.w.mono, f.called)
		f.limit = nil
	}
}

// countForeign counts a lease that the walk has found, unless it is counted already.
func (l *lead) countForeign(q *topicQueue, h timer.Handle, d *Due) {
	if _, counted := l.foreign[h]; counted || q.place == nil || d.State != timer.Leased {
		return
	}
	if f := l.flights[h]; f != nil && f.limit != nil && f.seq == d.Seq {
		return
	}
	if c, ok := l.left[h]; ok && c.seq == d.Seq && c.limit == q.place.limit {
		delete(l.left, h)
		l.foreign[h] = c
		return
	}
	l.foreign[h] = foreignLease{seq: d.Seq, limit: q.place.limit}
	q.place.limit.lend()
}

// uncountForeign looks again at a lease that an entry may have ended.
func (l *lead) uncountForeign(h timer.Handle) {
	c, ok := l.foreign[h]
	if !ok {
		return
	}
	if d := l.group.table.Due(h); d.Seq != c.seq || d.State != timer.Leased {
		delete(l.foreign, h)
		c.limit.end(l.group.w.mono, true)
	}
}

// endLimits is for the end of a reign: who leads next counts anew. Calls that run count on with their flights. What consumers have counts on
// too, for as long as it lasts: nobody knows when the next one has begun to count it, and others must not take it for free meanwhile.
func (l *lead) endLimits() {
	for _, id := range slices.Sorted(maps.Keys(l.topics)) { // who is lent what is given back here must not depend on chance
		if q := l.topics[id]; q.place != nil {
			q.place.leave(l.group.w.mono)
			q.place = nil
		}
	}
	for _, h := range slices.Sorted(maps.Keys(l.foreign)) {
		c, d := l.foreign[h], l.group.table.Due(h)
		if d.Seq == c.seq && d.State == timer.Leased && d.Holder != byCall {
			c.until = l.holdsUntil(h, &d)
			l.left[h] = c
			continue
		}
		c.limit.end(l.group.w.mono, true)
	}
	l.foreign = nil
}

// leftGrace is for how long after its end a lease counts that a former reign left and that has not ended for all that this replica knows: there
// may be no leader yet, and the next one may prolong it as soon as there is.
const leftGrace = 5 * time.Second

// endLeft ends the counting of what consumers had when the last reign ended, and have no more; all: whatever it is.
func (l *lead) endLeft(all bool) {
	if len(l.left) == 0 || !all && l.group.w.mono < l.leftAt {
		return
	}
	l.leftAt = l.group.w.mono + limitPoll
	for _, h := range slices.Sorted(maps.Keys(l.left)) {
		c, g := l.left[h], l.group
		over, until := all, c.until
		if !over && g.raft != nil {
			d := g.table.Due(h)
			over = d.Seq != c.seq || d.State != timer.Leased
			until += leftGrace
		}
		if !over && g.w.mono < until {
			continue
		}
		if !over { // whoever leads now may have prolonged it
			g.w.host.limits.shares.Passed(c.limit.id)
		}
		delete(l.left, h)
		c.limit.end(g.w.mono, true)
	}
}
