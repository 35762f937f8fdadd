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
	fence uint64 // … and its fence: a table that has not come to it knows nothing of the lease
}

// topicLimits are the counted leases that are not active leases of this scheduler.
type topicLimits struct {
	queues        order.Ring[*topicQueue] // topics with a limit
	carried       map[timer.Handle]carriedLease
	carriedOver   map[timer.Handle]carriedLease // consumers' leases at the end of the last leadership
	carriedOverAt time.Duration                 // when to check carriedOver again; monotonic

	*leader
	consumers *consumerLeases
	leases    *activeLeases
	topics    *topicQueues
}

func newTopicLimits(s *Scheduler) topicLimits {
	return topicLimits{
		carriedOver: map[timer.Handle]carriedLease{}, leader: &s.leader,
		consumers: &s.consumers, leases: &s.leases, topics: &s.topics,
	}
}

// begin starts a leadership. It keeps carriedOver.
func (tl *topicLimits) begin() { tl.carried = map[timer.Handle]carriedLease{} }

// set starts or stops counting for a topic, by its policy.
func (tl *topicLimits) set(q *topicQueue) {
	want := q.topic != nil && q.topic.Policy.Limited()
	switch {
	case want == (q.limiterUse != nil):
	case want:
		q.limiterUse = tl.cfg.Limiters.join(q.id, func() { tl.env.Post(func(stopped bool) { tl.lent(q, stopped) }) })
		tl.queues.Push(&q.limited)
		q.shareTurns()
		for _, f := range tl.leases.byTimer {
			if f.queue.queue == q && f.limit == nil && f.phase != reporting {
				f.limit = q.limiterUse.limit
				f.limit.lend()
			}
		}
	default:
		tl.leave(q)
	}
}

// leave stops counting for a topic.
func (tl *topicLimits) leave(q *topicQueue) {
	q.limited.Leave()
	q.limiterUse.leave(tl.now.Mono)
	q.limiterUse = nil
}

// lent handles a lease that the limit granted to a waiting topic.
func (tl *topicLimits) lent(q *topicQueue, stopped bool) {
	if stopped || !tl.active || tl.topics.byID[q.id] != q || q.limiterUse == nil {
		return // leave has returned the granted lease
	}
	q.limitedMs = tl.now.WallMs
	tl.topics.join(q)
	tl.env.Wake()
}

// Where keys take turns, a shard is granted this many leases in advance for each weight, and waits
// for so many calls at a receiver: about what ends between two of its turns.
const turnsAhead, mostAhead = 8, 64

// admit asks the topic's limit for a lease. If refused, the topic waits until it
// is granted one, or asks again.
func (tl *topicLimits) admit(q *topicQueue) bool {
	turns := q.turnsOf()
	ok, wait := q.limiterUse.acquire(q.topic, turns, min(max(turnsAhead*turns, 1), mostAhead), tl.now.Mono)
	if !ok {
		q.limitedMs = tl.now.WallMs
		if wait < untilNotified {
			tl.topics.askAgain(q, wait)
		}
	}
	return ok
}

// rest returns a granted lease that the topic cannot use now.
func (tl *topicLimits) rest(q *topicQueue) {
	if q.limiterUse != nil {
		q.limiterUse.release(tl.now.Mono)
	}
}

// uncount stops counting an active lease at its topic's limit.
func (tl *topicLimits) uncount(f *activeLease) {
	if f.limit != nil {
		f.limit.end(tl.now.Mono, f.called)
		f.limit = nil
	}
}

// countCarried counts a lease that a walk or an applied entry found, unless it is counted already.
func (tl *topicLimits) countCarried(q *topicQueue, h timer.Handle, d *table.Due) {
	if _, counted := tl.carried[h]; counted || q.limiterUse == nil || d.State != timer.Leased {
		return
	}
	if f := tl.leases.byTimer[h]; f != nil && f.limit != nil && f.seq == d.Seq {
		return
	}
	if c, ok := tl.carriedOver[h]; ok && c.seq == d.Seq && c.limit == q.limiterUse.limit {
		delete(tl.carriedOver, h)
		tl.carried[h] = c
		return
	}
	tl.carry(h, d.Seq, q.limiterUse.limit)
	q.limiterUse.limit.lend()
}

// carry counts a lease that its limit has counted already, and that is no active lease.
func (tl *topicLimits) carry(h timer.Handle, seq uint64, b *limit) {
	tl.carried[h] = carriedLease{seq: seq, limit: b}
}

// uncountCarried stops counting a lease that an entry has ended.
func (tl *topicLimits) uncountCarried(h timer.Handle) {
	c, ok := tl.carried[h]
	if !ok {
		return
	}
	if d := tl.table.Due(h); d.Seq != c.seq || d.State != timer.Leased {
		delete(tl.carried, h)
		c.limit.end(tl.now.Mono, true)
	}
}

// end ends the counting of a leadership; the next leader counts again. Active leases whose
// calls run still count. So do consumers' leases: it is not known when the next leader begins to
// count them, and others must not use their places meanwhile.
func (tl *topicLimits) end() {
	for tl.queues.Len() > 0 {
		tl.leave(tl.queues.First())
	}
	for _, h := range slices.Sorted(maps.Keys(tl.carried)) {
		c, d := tl.carried[h], tl.table.Due(h)
		if d.Seq == c.seq && d.State == timer.Leased && d.Holder != table.ByCall {
			c.until, c.fence = tl.consumers.holdsUntil(h, &d), d.Fence
			tl.carriedOver[h] = c
			continue
		}
		c.limit.end(tl.now.Mono, true)
	}
	tl.carried = nil
}

// LeftGrace is how long past its end a lease of carriedOver counts if this replica has not seen its
// end: there may be no leader yet, and the next one may extend the lease.
const LeftGrace = 5 * time.Second

// endCarriedOver stops counting the leases of carriedOver that have ended or are past their time;
// all: every one.
func (tl *topicLimits) endCarriedOver(all bool) {
	if len(tl.carriedOver) == 0 || !all && tl.now.Mono < tl.carriedOverAt {
		return
	}
	tl.carriedOverAt = tl.now.Mono + LimitPoll
	for _, h := range slices.Sorted(maps.Keys(tl.carriedOver)) {
		c := tl.carriedOver[h]
		over, until := all, c.until
		if !over && tl.env.Present() && tl.table.LastFence() >= c.fence {
			d := tl.table.Due(h)
			over = d.Seq != c.seq || d.State != timer.Leased
			until += LeftGrace
		}
		if !over && tl.now.Mono < until {
			continue
		}
		if !over { // the current leader may have extended it
			tl.cfg.Limiters.shares.Abandoned(c.limit.id)
		}
		delete(tl.carriedOver, h)
		c.limit.end(tl.now.Mono, true)
	}
}

// refusal returns the limit that refuses a topic one more lease.
func (tl *topicLimits) refusal(q *topicQueue) timer.WaitCause {
	if q.limiterUse == nil {
		return timer.NoWait
	}
	return q.limiterUse.shut(tl.now.Mono)
}
