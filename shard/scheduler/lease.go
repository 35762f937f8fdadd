package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// Lease proposes leases for timers that may go now: tenants have their turns, in each its topics,
// and in each the destinations by their first timers. It ends with the budget, or with the time of
// the turn, or when the pipeline is full; a refusal costs as much as a lease.
func (s *Scheduler) Lease(b *table.Batch) {
	s.due.declare(b)
	if !s.mayStart() || s.env.HandingOver() {
		return
	}
	for n, over := 0, false; n < LeaseBudget && (!over || s.due.least && n < leastLeases) && !s.leases.full(); n++ {
		q := s.topics.turns.next()
		if q == nil {
			return
		}
		before := s.leases.proposed
		keeps := s.leaseOne(b, q)
		more := max(s.leases.proposed-before-1, 0) // in a call of many
		n += more
		over = s.env.Spent(leaseSteps * (1 + more))
		if keeps {
			continue
		}
		s.limits.restKeyless(q)
		s.topics.leave(q)
		s.topics.returnCredits(q)
	}
	if s.topics.turns.ring.Len() > 0 && !s.leases.full() { // else leased wakes it
		s.env.WakeNext()
	}
}

// leaseSteps is what a lease costs, in steps of Env.Spent.
const leaseSteps = 4

// leaseOne proposes a lease for the first timer of a topic. It reports whether the topic keeps its
// turn.
func (s *Scheduler) leaseOne(b *table.Batch, q *topicQueue) bool {
	if t := s.topic(q.id); t != q.topic {
		s.changed.refresh(q, t)
	}
	n := s.choose(q)
	if n == nil {
		s.limits.rest(q)
		return false
	}
	e := n.head()
	if !s.mayGo(q, e) {
		s.topics.pop(n)
		s.keys.passOver(e)
		return true
	}
	if q.resumedMs-e.dueMs > missedAfterMs && s.series.missed(e, false) {
		s.topics.pop(n)
		s.env.WakeNext()
		return true
	}
	if q.limiterUse != nil && !s.limits.admit(q) {
		if cause := s.limits.refusal(q); cause != timer.NoWait {
			q.gate = shutGate{cause, s.now.WallMs}
		}
		return false
	}
	permit := s.topics.acquire(n)
	if permit == nil {
		if q.limiterUse != nil {
			q.limiterUse.keep()
		}
		s.limits.restKeyless(q)
		return true // another destination of the topic may have a permit
	}
	if n.group != nil {
		return s.leaseMany(b, n, permit)
	}
	s.leases.propose(b, n, e, permit)
	s.topics.pop(n)
	if q.keys != nil && !q.mode.serial {
		s.keys.moveUp(s.leases.byTimer[e.handle].key)
	}
	return true
}

// choose returns the destination queue of a topic whose first timer goes next; nil if none may go.
func (s *Scheduler) choose(q *topicQueue) *destQueue {
	if q.topic == nil || q.topic.Paused || q.pulled() || !s.table.Delivers(q.id, false) {
		return nil
	}
	if open, untilMs := s.windows.inWindow(q); !open {
		s.windows.await(q, untilMs)
		return nil
	}
	if !s.topics.ordered(q) {
		s.topics.deferred.Push(&q.deferred)
		return nil
	}
	return q.next()
}

// mayGo reports that a timer in a destination queue stands, and that its key lets it go.
func (s *Scheduler) mayGo(q *topicQueue, e entry) bool {
	return s.leases.stands(e) && (q.keys == nil || s.keys.mayGo(q, e))
}

const (
	// leastProposed is how many leases of a shard may wait for their commit, however fast it is.
	leastProposed = 192
	// leasesInMs is how many more may wait for each millisecond that a commit takes at least.
	leasesInMs = 8
	// commitWindow is how long a commit time counts; until twice as long, if none is shorter.
	commitWindow = 10 * time.Second
)

// pipeline bounds the leases that wait for their commit. More would not be committed sooner, but
// all that comes after them later, another topic's leases, too. Where commits take long by nature,
// as between distant nodes, more may wait. The shortest commit time says so, since a busy node does
// not make it longer.
type pipeline struct {
	proposed         int           // leases
	lastStart        time.Duration // when one of them was applied last; monotonic
	shortest, before time.Duration // the shortest commit time of this window, and of the one before; 0: none
	window           time.Duration // when this one began; monotonic
}

func (p *pipeline) full() bool {
	shortest := p.shortest
	if p.before > 0 {
		shortest = min(shortest, p.before)
	}
	return p.proposed >= leastProposed+int(shortest*leasesInMs/time.Millisecond)
}

// committed records how long a lease took.
func (p *pipeline) committed(took, now time.Duration) {
	took, p.lastStart = max(took, 1), now
	if p.shortest == 0 || now-p.window >= commitWindow {
		p.before, p.shortest, p.window = p.shortest, took, now
	}
	p.shortest = min(p.shortest, took)
}

// propose adds a lease to the batch and records it as active.
func (al *activeLeases) propose(b *table.Batch, n *destQueue, e entry, permit delivery.Permit) *activeLease {
	d := al.table.Due(e.handle)
	own := al.table.Callback(d.Target)
	timeout := time.Duration(n.queue.topic.Policy.Callback.TimeoutMs) * time.Millisecond
	if own.TimeoutMs > 0 {
		timeout = time.Duration(own.TimeoutMs) * time.Millisecond
	}
	last := timeout + CallMargin + MaxLookAhead
	f := &activeLease{
		handle: e.handle, seq: e.seq, rev: e.rev, queue: n, permit: permit,
		dueMs: e.dueMs, expireMs: d.ExpiresMs,
		leaseEnd: al.now.Lease + last, timeout: timeout, provenAt: al.now.Lease, askedAt: al.now.Mono, takenAt: al.now.Mono,
		kept: n.kept(e, &d),
	}
	if old := al.byTimer[e.handle]; old != nil {
		// The old call still runs, but its lease is over: its topic was dropped by force, or
		// another node led meanwhile.
		delete(al.byTimer, e.handle)
		al.topics.landed(old.queue)
		al.keys.freed(old)
		al.limits.uncount(old)
		al.releaseOps(old)
	}
	f.limits = al.limits.of(n.queue, e.handle)
	al.byTimer[e.handle] = f
	al.table.WaitIn(e.handle, nil, 0)
	if n.queue.keys != nil {
		al.keys.take(f)
	}
	n.flying++
	al.proposed++
	b.Lease(last.Milliseconds(), e.handle, e.seq, e.rev)
	al.env.Proposed(Item{leaseProposed, f})
	return f
}

// Item is the scheduler's purpose of one item of an entry. The replica keeps it until the item is
// applied or dropped.
type Item struct {
	kind  itemKind
	lease *activeLease
}

type itemKind uint8

const (
	othersProposed itemKind = iota // nothing waits for it
	leaseProposed
	outcomeProposed // without an active lease: of an inherited or a consumer's one
	boundDeclared
)

// ItemApplied handles the result of one of this scheduler's items.
func (s *Scheduler) ItemApplied(i Item, r *timer.Result) {
	switch i.kind {
	case leaseProposed:
		s.leases.leased(i.lease, *r)
	case outcomeProposed:
		s.leases.outcomeApplied(i.lease, r)
	case boundDeclared:
		s.declared()
	}
}

// ItemDropped handles an item of this scheduler that raft did not take.
func (s *Scheduler) ItemDropped(i Item) {
	switch i.kind {
	case leaseProposed:
		s.leases.leaseDropped(i.lease)
	case outcomeProposed:
		s.leases.outcomeDropped(i.lease)
	case boundDeclared:
		s.declaring = false
	default:
		s.due.rearmAll()
	}
}

// leaseDropped handles a lease that raft did not take.
func (al *activeLeases) leaseDropped(f *activeLease) {
	al.leaves(f)
	f.permit.Cancel()
	al.over(f)
	al.table.Rearm(f.handle, f.seq)
	if f.call != nil {
		al.applied(f.call)
	}
}

// outcomeDropped handles an outcome that raft did not take; f is its active lease, nil if there is
// none.
func (al *activeLeases) outcomeDropped(f *activeLease) {
	switch {
	case f == nil:
		al.inherited.scanAgain()
	case f.phase == returned:
		al.out.release(f)
	default:
		al.ended(f, &f.attempt)
	}
}
