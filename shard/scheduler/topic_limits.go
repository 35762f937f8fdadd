package scheduler

import (
	"maps"
	"slices"
	"time"

	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// A scheduler's use of its topics' limits. Concurrency counts a lease from its proposal to its end.
// A rate counts it when it is proposed; in a topic with a rate that is not before the timer is due,
// so that no burst gathers ahead of time.

// carriedLease is a counted lease of a consumer or a former leader, in a topic with a limit.
type carriedLease struct {
	seq   uint64
	limit *limit
	// In carriedOver: until when it counts at the latest, see LeftGrace; monotonic.
	until time.Duration
}

// topicLimits are the counted leases that are not active leases of this scheduler.
type topicLimits struct {
	queues        order.Ring[*topicQueue] // topics with a limit
	carried       map[timer.Handle]carriedLease
	carriedOver   map[timer.Handle]carriedLease // consumers' leases at the end of the last leadership
	carriedOverAt time.Duration                 // when to check carriedOver again; monotonic
}

// setLimit starts or stops counting for a topic, as its policy says.
func (l *Scheduler) setLimit(q *topicQueue) {
	want := q.topic != nil && q.topic.Policy.Limited()
	switch {
	case want == (q.limiterUse != nil):
	case want:
		q.limiterUse = l.cfg.Limiters.join(q.id, func() { l.env.Post(func(stopped bool) { l.lent(q, stopped) }) })
		l.limits.queues.Push(&q.limited)
		for _, f := range l.leases.byTimer {
			if f.queue.queue == q && f.limit == nil && f.phase != reporting {
				f.limit = q.limiterUse.limit
				f.limit.lend()
			}
		}
	default:
		l.leaveLimit(q)
	}
}

// leaveLimit stops counting for a topic.
func (l *Scheduler) leaveLimit(q *topicQueue) {
	q.limited.Leave()
	q.limiterUse.leave(l.now.Mono)
	q.limiterUse = nil
}

// lent handles a lease that the limit granted to a waiting topic.
func (l *Scheduler) lent(q *topicQueue, stopped bool) {
	if stopped || !l.active || l.due.topics[q.id] != q || q.limiterUse == nil {
		return // leave has returned the granted lease
	}
	q.limitedMs = l.now.WallMs
	l.join(q)
	l.env.Wake()
}

// admit asks the topic's limit for a lease. If refused, the topic waits until it
// is granted one, or asks again.
func (l *Scheduler) admit(q *topicQueue) bool {
	ok, wait := q.limiterUse.acquire(q.topic, l.now.Mono)
	if !ok {
		q.limitedMs = l.now.WallMs
		l.due.shut.push(shutKey{l.now.Mono + wait, nil, q})
	}
	return ok
}

// rest returns a granted lease that the topic cannot use now.
func (l *Scheduler) rest(q *topicQueue) {
	if q.limiterUse != nil {
		q.limiterUse.release(l.now.Mono)
	}
}

// uncount stops counting an active lease at its topic's limit.
func (l *Scheduler) uncount(f *activeLease) {
	if f.limit != nil {
		f.limit.end(l.now.Mono, f.called)
		f.limit = nil
	}
}

// countCarried counts a lease that a walk or an applied entry found, unless it is counted already.
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

// uncountCarried stops counting a lease that an entry has ended.
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

// endLimits ends the counting of a leadership; the next leader counts anew. Active leases whose
// calls run go on counting. So do consumers' leases: it is not known when the next leader begins to
// count them, and others must not use their places meanwhile.
func (l *Scheduler) endLimits() {
	for l.limits.queues.Len() > 0 {
		l.leaveLimit(l.limits.queues.First())
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

// LeftGrace is how long past its end a lease of carriedOver counts if this replica has not seen its
// end: there may be no leader yet, and the next one may extend the lease.
const LeftGrace = 5 * time.Second

// endCarriedOver stops counting the leases of carriedOver that have ended or are past their time;
// all: every one.
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
		if !over { // the current leader may have extended it
			l.cfg.Limiters.shares.Abandoned(c.limit.id)
		}
		delete(l.limits.carriedOver, h)
		c.limit.end(l.now.Mono, true)
	}
}
