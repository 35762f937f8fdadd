package scheduler

import (
	"maps"
	"slices"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// A scheduler's side of its topics' limits. Concurrency counts a lease from its proposal to its
// end; a rate counts it when it is proposed, which in such a topic is not before the timer is due,
// so that no burst gathers ahead of its time.

// carriedLease is one that a former leader took and that has not ended, of a topic with a limit.
type carriedLease struct {
	seq   uint64
	limit *limit
	until time.Duration // of one that is left over from a leadership: until then it counts at most; monotonic
}

// topicLimits are leases that count at a limit and are no active ones of this scheduler.
type topicLimits struct {
	carried       map[timer.Handle]carriedLease
	carriedOver   map[timer.Handle]carriedLease // of the leadership before: what consumers had at its end
	carriedOverAt time.Duration                 // when to look at these again; monotonic
}

// setLimit begins or ends counting for a topic, as its policy says.
func (l *Scheduler) setLimit(q *topicQueue) {
	want := q.topic != nil && q.topic.Policy.Limited()
	switch {
	case want == (q.limiterUse != nil):
	case want:
		q.limiterUse = l.cfg.Limiters.join(q.id, func() { l.env.Post(func(stopped bool) { l.lent(q, stopped) }) })
		for _, f := range l.leases.byTimer {
			if f.queue.queue == q && f.limit == nil && f.phase != reporting {
				f.limit = q.limiterUse.limit
				f.limit.lend()
			}
		}
	default:
		q.limiterUse.leave(l.now.Mono)
		q.limiterUse = nil
	}
}

// lent is told that a topic may lease one more.
func (l *Scheduler) lent(q *topicQueue, stopped bool) {
	if stopped || !l.active || l.due.topics[q.id] != q || q.limiterUse == nil {
		return // what was lent went back when the place was given up
	}
	for _, n := range q.lanes {
		n.shutMs = l.now.WallMs
	}
	l.join(q)
	l.env.Wake()
}

// admit asks for leave to lease the head of a destination queue. Without it the topic waits to be
// told, or to ask again.
func (l *Scheduler) admit(n *destQueue) bool {
	ok, wait := n.queue.limiterUse.acquire(n.queue.topic, l.now.Mono)
	if !ok {
		n.shutMs = l.now.WallMs
		l.due.shut.push(queueKey{l.now.Mono + wait, n})
	}
	return ok
}

// rest gives back what a topic was lent and cannot use now.
func (l *Scheduler) rest(q *topicQueue) {
	if q.limiterUse != nil {
		q.limiterUse.release(l.now.Mono)
	}
}

// uncount ends what an active lease counts towards its topic's limit.
func (l *Scheduler) uncount(f *activeLease) {
	if f.limit != nil {
		f.limit.end(l.now.Mono, f.called)
		f.limit = nil
	}
}

// countCarried counts a lease that the walk has found, unless it is counted already.
func (l *Scheduler) countCarried(q *topicQueue, h timer.Handle, d *table.Due) {
	if _, counted := l.limits.carried[h]; counted || q.limiterUse == nil || d.State != timer.Leased {
		return
	}
	if f := l.leases.byTimer[h]; f != nil && f.limit != nil && f.seq == d.Seq {
		return
	}
	if c, ok := l.limits.carriedOver[h]; ok && c.seq == d.Seq && c.limit == q.limiterUse.limit {
		delete(l.limits.carriedOver, h)
		l.limits.carried[h] = c
		return
	}
	l.limits.carried[h] = carriedLease{seq: d.Seq, limit: q.limiterUse.limit}
	q.limiterUse.limit.lend()
}

// uncountCarried looks again at a lease that an entry may have ended.
func (l *Scheduler) uncountCarried(h timer.Handle) {
	c, ok := l.limits.carried[h]
	if !ok {
		return
	}
	if d := l.table.Due(h); d.Seq != c.seq || d.State != timer.Leased {
		delete(l.limits.carried, h)
		c.limit.end(l.now.Mono, true)
	}
}

// endLimits is for the end of a leadership: who leads next counts anew. Calls that run count on
// with their active leases. What consumers have counts on too, for as long as it lasts: nobody
// knows when the next one has begun to count it, and others must not take it for free meanwhile.
func (l *Scheduler) endLimits() {
	for _, id := range slices.Sorted(maps.Keys(l.due.topics)) { // who is lent what is given back here must not depend on chance
		if q := l.due.topics[id]; q.limiterUse != nil {
			q.limiterUse.leave(l.now.Mono)
			q.limiterUse = nil
		}
	}
	for _, h := range slices.Sorted(maps.Keys(l.limits.carried)) {
		c, d := l.limits.carried[h], l.table.Due(h)
		if d.Seq == c.seq && d.State == timer.Leased && d.Holder != table.ByCall {
			c.until = l.holdsUntil(h, &d)
			l.limits.carriedOver[h] = c
			continue
		}
		c.limit.end(l.now.Mono, true)
	}
	l.limits.carried = nil
}

// LeftGrace is for how long after its end a lease counts that a former leadership left and that has
// not ended for all that this replica knows: there may be no leader yet, and the next one may
// prolong it as soon as there is.
const LeftGrace = 5 * time.Second

// endCarriedOver ends the counting of what consumers had when the last leadership ended, and have
// no more; all: whatever it is.
func (l *Scheduler) endCarriedOver(all bool) {
	if len(l.limits.carriedOver) == 0 || !all && l.now.Mono < l.limits.carriedOverAt {
		return
	}
	l.limits.carriedOverAt = l.now.Mono + LimitPoll
	for _, h := range slices.Sorted(maps.Keys(l.limits.carriedOver)) {
		c := l.limits.carriedOver[h]
		over, until := all, c.until
		if !over && l.env.Present() {
			d := l.table.Due(h)
			over = d.Seq != c.seq || d.State != timer.Leased
			until += LeftGrace
		}
		if !over && l.now.Mono < until {
			continue
		}
		if !over { // whoever leads now may have prolonged it
			l.cfg.Limiters.shares.Abandoned(c.limit.id)
		}
		delete(l.limits.carriedOver, h)
		c.limit.end(l.now.Mono, true)
	}
}
