package scheduler

import (
	"time"

	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// A scheduler's use of its topics' limits. Concurrency counts a lease from its proposal to its end.
// A rate counts it when it is proposed; in a topic with a rate that is not before the timer is due,
// so that no burst gathers ahead of time.

// counted are the limits at which a lease counts: its topic's, and, if its timer has no key, that
// of such timers. nil: there is none.
type counted [2]*limit

// lend counts the lease at those of the limits at which it does not count yet, and reports whether
// there are any.
func (c *counted) lend(limits counted) (some bool) {
	for i, b := range limits {
		if b != nil && c[i] == nil {
			c[i], some = b, true
			b.lend()
		}
	}
	return some
}

func (c *counted) end(now, takenAt time.Duration, delivered bool) {
	for _, b := range c {
		if b != nil {
			b.end(now, takenAt, delivered)
		}
	}
}

// carriedLease is a counted lease of a consumer or a former leader, in a topic with a limit.
type carriedLease struct {
	handle timer.Handle
	seq    uint64
	limits counted
	// Of a consumer's: until when it counts at the latest, see LeftGrace, by what its leader knew;
	// monotonic. 0: it is a call's, or is not applied yet.
	until time.Duration
	fence uint64 // … and its fence: a table that has not come to it knows nothing of the lease
	spot  order.Spot[*carriedLease]
}

// carriedLeases finds carried leases by their timers. Cost of all methods: O(1).
type carriedLeases struct {
	byTimer map[timer.Handle]*carriedLease
	ring    order.Ring[*carriedLease] // the same
}

func newCarriedLeases() *carriedLeases {
	return &carriedLeases{byTimer: map[timer.Handle]*carriedLease{}}
}

// put adds a lease, unless there is one of its timer.
func (l *carriedLeases) put(c *carriedLease) bool {
	if l.byTimer[c.handle] != nil {
		return false
	}
	c.spot.Of = c
	l.byTimer[c.handle] = c
	l.ring.Push(&c.spot)
	return true
}

func (l *carriedLeases) drop(c *carriedLease) {
	delete(l.byTimer, c.handle)
	c.spot.Leave()
}

// topicLimits are the counted leases that are not active leases of this scheduler.
type topicLimits struct {
	queues        order.Ring[*topicQueue] // topics with a limit …
	leaving       int                     // … of which the first so many are of former leaderships
	carried       *carriedLeases
	carriedOver   *carriedLeases // at the end of the last leadership
	carriedOverAt time.Duration  // when to check carriedOver again; monotonic
	recounted     bool           // scanBlockers has counted those of carriedOver that still hold
	// found are the topics whose leases scanBlockers has found for their limits, or will.
	found map[timer.TopicID]bool

	*leader
	consumers *consumerLeases
	keys      *keyQueues
	leases    *activeLeases
	topics    *topicQueues
}

func newTopicLimits(s *Scheduler) topicLimits {
	return topicLimits{
		carried: newCarriedLeases(), carriedOver: newCarriedLeases(), leader: &s.leader,
		consumers: &s.Consumers, keys: &s.Keys, leases: &s.Leases, topics: &s.topics,
	}
}

// begin starts a leadership. It keeps carriedOver.
func (tl *topicLimits) begin() {
	tl.found = map[timer.TopicID]bool{}
}

// set starts or stops counting for a topic, by its policy.
func (tl *topicLimits) set(q *topicQueue) {
	var own, keyless *timer.Topic
	if t := q.topic; t != nil {
		if keyless = t.Keyless(); t.Policy.Limited() {
			own = t
		}
	}
	tl.use(q, &q.limiterUse, own, tl.lent)
	tl.use(q, &q.keyless, keyless, tl.lentKeyless)
	if q.keylessAs = keyless; keyless != nil {
		q.keyless.limit.beginEmpty(keyless, tl.keys.since[q.id])
	}
	q.shareTurns()
	tl.find(q)
	if q.limiterUse == nil && q.keyless == nil {
		q.limited.Leave()
		return
	}
	tl.queues.Push(&q.limited)
	for f := range q.activeLeases() {
		if f.phase != reporting && f.limits.lend(tl.of(q, f.handle)) {
			f.takenAt = noToken
		}
	}
}

// find has scanBlockers find the leases that a topic had before this leader knew of its limit:
// those of consumers and former leaders are known to the table alone. Until then nothing of it is
// leased.
func (tl *topicLimits) find(q *topicQueue) {
	switch {
	case q.topic == nil || q.topic.Policy.Concurrency == 0:
		delete(tl.found, q.id)
	case !tl.found[q.id]:
		if tl.found[q.id] = true; tl.table.Counts(q.id).Leased > 0 {
			tl.keys.findBlockers()
		}
	}
}

// use joins a limit, or leaves it; t: the topic that has it, nil: there is none.
func (tl *topicLimits) use(q *topicQueue, u **limiterUse, t *timer.Topic, lent func(*topicQueue)) {
	switch {
	case (t != nil) == (*u != nil):
	case t == nil:
		(*u).leave(tl.now.Mono)
		*u = nil
	default:
		var joined *limiterUse
		joined = tl.cfg.Limiters.join(t.ID, func() {
			tl.env.Post(func(stopped bool) {
				if !stopped && tl.active && tl.topics.byID[q.id] == q && *u == joined { // else leave has returned what was granted
					lent(q)
				}
			})
		})
		*u = joined
	}
}

// leave stops counting for a topic.
func (tl *topicLimits) leave(q *topicQueue) {
	q.limited.Leave()
	tl.use(q, &q.limiterUse, nil, nil)
	tl.use(q, &q.keyless, nil, nil)
}

// of returns the limits at which a lease of a timer counts.
func (tl *topicLimits) of(q *topicQueue, h timer.Handle) (c counted) {
	if q.limiterUse != nil {
		c[0] = q.limiterUse.limit
	}
	if q.keyless != nil && !tl.table.Keyed(h) {
		c[1] = q.keyless.limit
	}
	return c
}

// lent handles a lease that the limit granted to a waiting topic.
func (tl *topicLimits) lent(q *topicQueue) {
	q.limitedMs = tl.now.WallMs
	tl.topics.join(q)
	tl.env.Wake()
}

// lentKeyless handles a lease that was granted to timers without a key.
func (tl *topicLimits) lentKeyless(q *topicQueue) {
	k := q.keys[0]
	if k == nil {
		tl.restKeyless(q)
		return
	}
	k.freeMs = tl.now.WallMs
	tl.keys.askAgain(k, LimitPoll)
	tl.keys.moveUp(k)
	tl.topics.join(q)
	tl.env.Wake()
}

// Where keys take turns, a shard is granted turnsAhead leases in advance for each weight, and waits
// for at most mostAhead calls at a receiver: about as many as end between two of its turns.
const turnsAhead, mostAhead = 8, 64

// A shard asks for places that other nodes may have left each pollEach, for all its topics
// together: where more than a thousand wait, each asks less often than each LimitPoll. But each
// asks twice in a turn of its node, where a limit is smaller than the number of nodes.
const (
	pollEach = 100 * time.Microsecond
	mostPoll = 500 * time.Millisecond
)

// admit asks the topic's limit for a lease. If refused, the topic waits until it
// is granted one, or asks again.
func (tl *topicLimits) admit(q *topicQueue) bool {
	turns := q.turnsOf()
	ok, wait := q.limiterUse.acquire(q.topic, turns, min(max(turnsAhead*turns, 1), mostAhead), tl.now.Mono)
	if !ok {
		q.limitedMs = tl.now.WallMs
		if wait < untilNotified {
			if tl.refusal(q) == timer.WaitConcurrency { // a lease that ends here notifies it
				wait = max(wait, min(time.Duration(tl.topics.asking)*pollEach, mostPoll))
			}
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

// inSight reports that the topic may soon be granted a lease: it waits for one, and other shards
// have some that they do not use yet. These are returned if they get no permit. If the topic gave
// its permits up meanwhile, permits and leases could go round for ever, and never meet.
func (tl *topicLimits) inSight(q *topicQueue) bool {
	return q.limiterUse != nil && q.limiterUse.inSight()
}

// restKeyless returns a granted lease that timers without a key cannot use now. They keep their
// place in line if they have none.
func (tl *topicLimits) restKeyless(q *topicQueue) {
	if u := q.keyless; u != nil && (u.granted() || q.keys[0] == nil) {
		u.release(tl.now.Mono)
	}
}

// uncount stops counting an active lease at its topic's limit.
func (tl *topicLimits) uncount(f *activeLease) {
	f.limits.end(tl.now.Mono, f.takenAt, f.called)
	f.limits = counted{}
}

// countCarried counts a lease that a walk or an applied entry found, where it is not counted
// already.
func (tl *topicLimits) countCarried(q *topicQueue, h timer.Handle, d *table.Due) {
	limits := tl.of(q, h)
	if limits == (counted{}) || d.State != timer.Leased {
		return
	}
	c := tl.carried.byTimer[h]
	if f := tl.leases.byTimer[h]; c == nil && f != nil && f.limits != (counted{}) && f.seq == d.Seq {
		if f.limits.lend(limits) {
			f.takenAt = noToken
		}
		return
	}
	if c == nil {
		if c = tl.carriedOver.byTimer[h]; c != nil && c.seq == d.Seq && c.limits == limits {
			tl.carriedOver.drop(c)
		} else {
			c = &carriedLease{handle: h, seq: d.Seq}
		}
		tl.carried.put(c)
	}
	c.limits.lend(limits)
	if d.Holder != table.ByCall {
		c.until, c.fence = tl.consumers.holdsUntil(h, d), d.Fence
	}
}

// carry counts a lease, and no longer another one of its timer.
func (tl *topicLimits) carry(c *carriedLease) {
	if old := tl.carried.byTimer[c.handle]; old != nil {
		tl.carried.drop(old)
		old.limits.end(tl.now.Mono, 0, true)
	}
	tl.carried.put(c)
}

// uncountCarried stops counting a lease that an entry has ended.
func (tl *topicLimits) uncountCarried(h timer.Handle) {
	c := tl.carried.byTimer[h]
	if c == nil {
		return
	}
	if d := tl.table.Due(h); d.Seq != c.seq || d.State != timer.Leased {
		tl.carried.drop(c)
		c.limits.end(tl.now.Mono, 0, true)
	}
}

// end ends the counting of a leadership; the next leader counts again. Active leases whose
// calls run still count. So do consumers' leases: it is not known when the next leader begins to
// count them, and others must not use their places meanwhile.
func (tl *topicLimits) end() {
	tl.leaving = tl.queues.Len()
	tl.leaveSome()
	left := tl.carriedOver // of a leadership before, that the last one has not counted again
	tl.carriedOver, tl.carried, tl.recounted = tl.carried, newCarriedLeases(), false
	for left.ring.Len() > 0 {
		c := left.ring.First()
		left.drop(c)
		tl.carryOver(c)
	}
}

// carryOver goes on counting a lease, unless another one of its timer counts.
func (tl *topicLimits) carryOver(c *carriedLease) {
	if !tl.carriedOver.put(c) {
		c.limits.end(tl.now.Mono, 0, true)
	}
}

// leaveSome has topics of former leaderships leave their limits, sweepBudget at most, if the turn has
// time for them. It runs in each tick.
func (tl *topicLimits) leaveSome() {
	for n, over := 1, false; tl.leaving > 0 && n <= sweepBudget && !over; n++ {
		tl.leave(tl.queues.First())
		tl.leaving--
		over = n%scanStep == 0 && tl.env.Spent(scanStep)
	}
}

// LeftGrace is how long past its end a lease of carriedOver counts if this replica has not seen its
// end: there may be no leader yet, and the next one may extend the lease.
const LeftGrace = 5 * time.Second

// endCarriedOver stops counting the leases of carriedOver that have ended or are past their time,
// and all of them once they are recounted. It looks at some of them, as leaveSome does.
func (tl *topicLimits) endCarriedOver() {
	left := tl.carriedOver.ring.Len()
	if left == 0 || !tl.recounted && tl.now.Mono < tl.carriedOverAt {
		return
	}
	tl.carriedOverAt = tl.now.Mono + LimitPoll
	for n, over := 1, false; n <= min(left, sweepBudget) && !over; n++ {
		if c := tl.carriedOver.ring.Rotate(); tl.recounted || tl.isOver(c) {
			tl.carriedOver.drop(c)
			c.limits.end(tl.now.Mono, 0, true)
		}
		over = n%scanStep == 0 && tl.env.Spent(scanStep)
	}
}

// isOver reports that a lease of carriedOver counts here no more.
func (tl *topicLimits) isOver(c *carriedLease) bool {
	until := c.until
	if tl.env.Present() && tl.table.LastFence() >= c.fence {
		if d := tl.table.Due(c.handle); until == 0 || d.Seq != c.seq || d.State != timer.Leased {
			return true
		}
		until += LeftGrace
	}
	if tl.now.Mono < until {
		return false
	}
	if until > 0 { // the current leader may have extended it
		for _, b := range c.limits {
			if b != nil {
				tl.cfg.Limiters.shares.Abandoned(b.id)
			}
		}
	}
	return true
}

// refusal returns the limit that refuses a topic one more lease.
func (tl *topicLimits) refusal(q *topicQueue) timer.WaitCause {
	if q.limiterUse == nil {
		return timer.NoWait
	}
	cause, _ := q.limiterUse.shut(tl.now.Mono)
	return cause
}
