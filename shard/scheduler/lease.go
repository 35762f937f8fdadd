package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// proposer proposes leases for timers that may go now.
type proposer struct {
	*leader
	changed    *changedTopics
	compaction *compaction
	due        *dueQueues
	keys       *keyQueues
	leases     *activeLeases
	limits     *topicLimits
	pulls      *pulledTopics
	series     *seriesTimes
	topics     *topicQueues
	windows    *topicWindows
}

func newProposer(s *Scheduler) proposer {
	return proposer{
		leader: &s.leader, changed: &s.changed, compaction: &s.compaction, due: &s.due, keys: &s.Keys, leases: &s.Leases,
		limits: &s.limits, pulls: &s.Pulls, series: &s.series, topics: &s.topics, windows: &s.windows,
	}
}

// propose has tenants in turn propose leases, in each its topics, and in each the destinations by
// their first timers. It ends with the budget, or with the time of the turn, or when the pipeline
// is full; a refusal costs as much as a lease.
func (p *proposer) propose(b *table.Batch) {
	for n, over := 0, false; n < LeaseBudget && (!over || p.due.least && n < leastLeases) && !p.leases.pipeline.full(); n++ {
		q := p.topics.turns.next()
		if q == nil {
			return
		}
		before := p.leases.pipeline.proposed
		keeps := p.leaseOne(b, q)
		took := max(p.leases.pipeline.proposed-before, 1) // more in a call of many
		p.topics.turns.took(q, took)
		n += took - 1
		over = p.env.Spent(leaseSteps * took)
		if keeps {
			continue
		}
		p.limits.restKeyless(q)
		p.topics.leave(q)
		p.topics.returnCredits(q)
		if !p.limits.inSight(q) { // its limit or its window may be shut for long
			p.topics.returnSpares(q)
		}
	}
	if p.topics.turns.line.Len() > 0 && !p.leases.pipeline.full() { // else leased wakes it
		p.env.WakeNext()
	}
}

// notDueAfter is how far ahead a queued timer must be to wait in the wheel again, in ms: nothing is
// queued so early. It would be leased, hold its receiver's place and its key, and be given back
// unstarted; and the later timers of its key after it.
const notDueAfter = int64(2 * MaxLookAhead / time.Millisecond)

// backToWheel takes a timer back that has left its destination queue. A head that was attempted
// goes on to block its key.
func (p *proposer) backToWheel(e entry) {
	if l := p.keys.laneOf(e); l != nil {
		if l.blocking {
			l.countUnqueued(false)
			l.ready = false
		} else {
			p.keys.clearHead(l)
		}
		p.keys.rest(l)
		p.keys.moveUp(l.key)
	}
	p.table.WaitIn(e.handle, nil, 0)
	p.table.Rearm(e.handle, e.seq)
}

// leaseSteps is what a lease costs, in steps of Env.Spent.
const leaseSteps = 4

// leaseOne proposes a lease for the first timer of a topic. It reports whether the topic keeps its
// turn.
func (p *proposer) leaseOne(b *table.Batch, q *topicQueue) bool {
	if t := p.topic(q.id); t != q.topic {
		p.changed.refresh(q, t)
	}
	n := p.choose(q)
	if n == nil {
		p.limits.rest(q)
		return false
	}
	e := n.head()
	if !p.mayGo(q, e) {
		p.topics.pop(n)
		p.keys.passOver(e)
		return true
	}
	if e.dueMs-p.now.WallMs > notDueAfter { // the clock was set back since
		p.topics.pop(n)
		p.backToWheel(e)
		return true
	}
	if p.series.missedInPause(q, e) {
		p.topics.pop(n)
		p.env.WakeNext()
		return true
	}
	if q.limiterUse != nil && !p.limits.admit(q) {
		if cause := p.limits.refusal(q); cause != timer.NoWait {
			q.gate = shutGate{cause, p.now.WallMs}
		}
		return false
	}
	permit := p.topics.acquire(n)
	if permit == nil {
		if q.limiterUse != nil {
			q.limiterUse.keep()
		}
		p.limits.restKeyless(q)
		return true // another destination of the topic may have a permit
	}
	if n.group != nil {
		return p.leaseMany(b, n, permit)
	}
	p.leases.propose(b, n, e, permit)
	p.topics.pop(n)
	if q.keys != nil && !q.mode.serial {
		p.keys.moveUp(p.leases.byTimer[e.handle].key)
	}
	return true
}

// choose returns the destination queue of a topic whose first timer goes next; nil if none may go.
func (p *proposer) choose(q *topicQueue) *destQueue {
	if q.topic == nil || q.topic.Paused || q.pulled() || !p.table.Delivers(q.id, false) {
		return nil
	}
	if open, untilMs := p.windows.inWindow(q); !open {
		p.windows.await(q, untilMs)
		return nil
	}
	if !p.topics.ordered(q) {
		p.topics.deferred.Push(&q.deferred)
		return nil
	}
	return q.next()
}

// mayGo reports that a timer in a destination queue stands, and that its key lets it go.
func (p *proposer) mayGo(q *topicQueue, e entry) bool {
	return p.leases.stands(e) && (q.keys == nil || p.keys.mayGo(q, e))
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
// as between distant nodes, more may wait. The shortest commit time shows it, since a busy node
// does not make it longer.
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
		al.forget(old)
		al.topics.landed(old.queue)
		al.keys.freed(old)
		al.limits.uncount(old)
		al.releaseOps(old)
	}
	f.spot.Of, f.limits = f, al.limits.of(n.queue, e.handle)
	al.keep(f)
	al.table.WaitIn(e.handle, nil, 0)
	if n.queue.keys != nil {
		al.keys.take(f)
	}
	n.flying++
	al.pipeline.proposed++
	b.Lease(last.Milliseconds(), e.handle, e.seq, e.rev)
	al.env.Proposed(Item{leaseProposed, f})
	return f
}

// leased handles the applied result of a proposed lease.
func (al *activeLeases) leased(f *activeLease, r timer.Result) {
	if f.call != nil {
		defer al.applied(f.call)
	}
	if f.phase == proposed { // in this leadership
		al.provenAt = max(al.provenAt, f.provenAt)
	}
	al.leaves(f)
	al.pipeline.committed(al.now.Mono-f.askedAt, al.now.Mono)
	al.due.learn(al.now.Mono-f.askedAt, al.now.Mono)
	if r.Code != timer.OK { // the timer changed before the lease was applied
		f.permit.Cancel()
		al.over(f)
		// It may have been popped again and skipped because of this lease.
		al.table.Rearm(f.handle, f.seq)
		return
	}
	f.fence, f.slow = r.Fence, al.table.SlowStart(r.Fence)
	if f.revoked {
		al.revoke(f)
		al.releaseOps(f)
		return
	}
	if al.unseen.enter(f, held); f.call == nil {
		al.held.push(f)
	}
}

// leaves counts a lease out of the pipeline, in which others may go then.
func (al *activeLeases) leaves(f *activeLease) {
	if f.phase != proposed { // of an earlier leadership
		return
	}
	if al.pipeline.full() {
		al.env.WakeNext()
	}
	al.pipeline.proposed--
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
		s.Leases.leased(i.lease, *r)
	case outcomeProposed:
		s.Leases.outcomeApplied(i.lease, r)
	case boundDeclared:
		s.declared()
	}
}

// ItemDropped handles an item of this scheduler that raft did not take.
func (s *Scheduler) ItemDropped(i Item) {
	switch i.kind {
	case leaseProposed:
		s.Leases.leaseDropped(i.lease)
	case outcomeProposed:
		s.Leases.outcomeDropped(i.lease)
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
