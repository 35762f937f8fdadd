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
	if !s.mayStart() || s.env.HandingOver() {
		return
	}
	for n, over := 0, false; n < LeaseBudget && (!over || s.due.least && n < leastLeases) && !s.leases.full(); n++ {
		q := s.topics.turns.next()
		if q == nil {
			return
		}
		over = s.env.Spent(leaseSteps)
		if s.leaseOne(b, q) {
			continue
		}
		s.topics.turns.leave(q)
		s.topics.returnCredits(q)
	}
	if s.topics.turns.ring.Len() > 0 && !s.leases.full() { // else leased goes on
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
	if !s.leases.stands(e) || q.keys != nil && !s.keys.mayGo(q, e) {
		s.topics.pop(n)
		s.keys.review(e.handle)
		return true
	}
	if q.resumedMs-e.dueMs > missedAfterMs && s.series.missed(e) {
		s.topics.pop(n)
		s.env.WakeNext()
		return true
	}
	if q.limiterUse != nil && !s.limits.admit(q) {
		return false
	}
	permit := s.topics.acquire(n)
	if permit == nil {
		if q.limiterUse != nil {
			q.limiterUse.keep()
		}
		return true // another destination of the topic may have a permit
	}
	s.leases.propose(b, n, e, permit)
	s.topics.pop(n)
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

// stands reports whether the timer is unchanged since it was queued, is not being leased, and has
// not expired.
func (al *activeLeases) stands(e entry) bool {
	t := al.table
	if !t.Live(e.handle, e.seq) {
		return false
	}
	d := t.Due(e.handle)
	f := al.byTimer[e.handle]
	return d.Rev == e.rev && d.State == timer.Scheduled && (f == nil || f.seq != e.seq || f.phase != proposed) && al.pulls.reserved[e.handle] != e.seq &&
		(d.ExpiresMs == 0 || al.now.WallMs <= d.ExpiresMs)
}

// kept reports that a gate has delayed a timer past its due time: a pause, a breaker, a limit, or
// spread. takeKey adds the delay by its key.
func (n *destQueue) kept(e entry, d *table.Due) bool {
	return e.dueMs <= max(n.shutMs, n.queue.resumedMs, n.queue.limitedMs) || e.dueMs > d.NextMs
}

// propose adds a lease to the batch and records it as active.
func (al *activeLeases) propose(b *table.Batch, n *destQueue, e entry, permit delivery.Permit) {
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
		leaseEnd: al.now.Lease + last, timeout: timeout, provenAt: al.now.Lease, askedAt: al.now.Mono,
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
	if n.queue.limiterUse != nil {
		f.limit = n.queue.limiterUse.limit
	}
	al.byTimer[e.handle] = f
	if n.queue.keys != nil {
		al.keys.take(f)
	}
	n.flying++
	al.proposed++
	b.Lease(last.Milliseconds(), e.handle, e.seq, e.rev)
	al.env.Proposed(Item{leaseProposed, f})
}

// leased handles the applied result of a proposed lease.
func (al *activeLeases) leased(f *activeLease, r timer.Result) {
	al.leaves(f)
	al.committed(al.now.Mono-f.askedAt, al.now.Mono)
	al.due.learn(al.now.Mono - f.askedAt)
	if r.Code != timer.OK { // the timer changed before the lease was applied
		f.permit.Cancel()
		al.over(f)
		// It may have been popped again and skipped because of this lease.
		al.table.Rearm(f.handle, f.seq)
		return
	}
	f.fence = r.Fence
	if f.revoked {
		al.revoke(f)
		al.releaseOps(f)
		return
	}
	f.phase = held
	al.held.push(f)
}

// leaves counts a lease out of the pipeline, in which others may go then.
func (al *activeLeases) leaves(f *activeLease) {
	if f.phase != proposed { // of an earlier leadership
		return
	}
	if al.full() {
		al.env.WakeNext()
	}
	al.proposed--
}

// learn adapts the look-ahead to about two commit times.
func (dq *dueQueues) learn(commit time.Duration) {
	want := min(max(2*commit, minLookAhead), MaxLookAhead)
	if want > dq.lookAhead {
		dq.lookAhead = want
	} else {
		dq.lookAhead -= (dq.lookAhead - want) / 64
	}
}

// revoke returns a lease whose call has not started.
func (al *activeLeases) revoke(f *activeLease) {
	f.permit.Cancel()
	f.phase = returned
	al.out.outcomes = append(al.out.outcomes, outcomeItem{table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release}, f})
}

// releaseOps continues the client changes that waited for an active lease.
func (al *activeLeases) releaseOps(f *activeLease) {
	if len(f.waiting) == 0 {
		return
	}
	al.env.Resume(f.waiting)
	f.waiting = nil
	al.env.WakeNext()
}

// await makes a client's change wait for an active lease.
func (al *activeLeases) await(f *activeLease, o ClientChange) {
	if len(f.waiting) == 0 {
		al.blocked = append(al.blocked, f)
	}
	f.waiting = append(f.waiting, o)
}

// Expire answers ErrOverloaded to client changes that have waited too long for a lease to be
// applied or a call to end.
func (al *activeLeases) expire(now time.Duration) {
	keep := al.blocked[:0]
	for _, f := range al.blocked {
		for len(f.waiting) > 0 && f.waiting[0].WaitsUntil() <= now {
			f.waiting[0].Answer(timer.Result{}, timer.ErrOverloaded)
			f.waiting = f.waiting[1:]
		}
		if len(f.waiting) > 0 {
			keep = append(keep, f)
		}
	}
	clear(al.blocked[len(keep):])
	al.blocked = keep
}

// startDue starts every held call that is due.
func (al *activeLeases) startDue() {
	if al.held.len() > 0 && al.held.top().dueMs-al.now.WallMs > 2*MaxLookAhead.Milliseconds() {
		al.returnHeld()
	}
	for n := 0; al.held.len() > 0 && (al.held.top().phase != held || al.held.top().dueMs <= al.now.WallMs); n++ {
		if n == startBudget {
			al.env.WakeNext()
			return
		}
		if f := al.held.top(); f.phase == held && al.now.Lease-al.proven(f) > provenFor {
			al.Doubt()
			return
		}
		if f := al.held.pop(); f.phase == held {
			al.start(f)
		}
	}
}

// returnHeld revokes every held lease: the wall clock stepped back, and other timers could not use
// their permits meanwhile.
func (al *activeLeases) returnHeld() {
	for _, f := range al.held.items {
		if f.phase == held {
			al.revoke(f)
		}
	}
	al.held = heap[*activeLease]{}
}

func (al *activeLeases) start(f *activeLease) {
	if !al.table.Live(f.handle, f.seq) { // its topic was dropped by force
		al.drop(f)
		return
	}
	d := al.table.Due(f.handle)
	if d.State != timer.Leased || d.Fence != f.fence {
		al.drop(f)
		return
	}
	topic := f.queue.queue.topic
	if open, _ := al.windows.inWindow(f.queue.queue); !open || topic == nil || topic.Paused || f.expireMs != 0 && al.now.WallMs > f.expireMs {
		al.revoke(f)
		return
	}
	f.phase, f.called, f.firedMs = started, true, al.now.WallMs
	al.series.overlap(f.handle, f.seq, f.fence)
	job := al.table.Job(f.handle)
	if job.Attempts == 1 && d.Topic != table.CanaryTopic {
		f.fromMs = job.LateFromMs
	}
	done := func(a delivery.Outcome) { al.env.Post(func(stopped bool) { al.callEnded(f, a, stopped) }) }
	if c, own := f.permit.(canaryDest); own {
		c.start(done)
		return
	}
	al.cfg.Dispatcher.Start(f.permit, &Delivery{Topic: topic, Shard: al.cfg.Shard, Job: job, Own: al.table.Callback(d.Target), Deadline: al.deadline(f)}, done)
}

func (al *activeLeases) drop(f *activeLease) {
	f.permit.Cancel()
	al.over(f)
}

// callEnded handles the end of a call, on the worker.
func (al *activeLeases) callEnded(f *activeLease, a delivery.Outcome, stopped bool) {
	if stopped {
		return // the next process finds the lease in the log
	}
	al.ended(f, &a)
	al.env.Wake()
}

// ended judges a call that has ended, or reports it if this node leads no more.
func (al *activeLeases) ended(f *activeLease, a *delivery.Outcome) {
	if al.byTimer[f.handle] != f {
		return // its timer was dropped, or has another lease
	}
	if !al.active {
		al.reports.begin(f, *a)
		return
	}
	endBy(a, al.now.WallMs, true)
	f.phase, f.attempt = ended, *a
	d := al.table.Due(f.handle)
	if !al.table.Live(f.handle, f.seq) || d.State != timer.Leased || d.Holder != table.ByCall || !al.granted(f, &d) {
		al.over(f)
		return
	}
	if f.fromMs > 0 && !a.NotSent {
		al.cfg.Observer.Lateness(a.StartedMs-f.fromMs, f.kept)
	}
	out := al.out.judge(f.handle, &d, a, al.random.Float64())
	al.out.outcomes = append(al.out.outcomes, outcomeItem{out, f})
	if d.Topic != table.CanaryTopic {
		al.env.Fired(d.Topic, &out)
	}
}

// granted reports whether the table's lease is this active lease. An active lease without a fence
// was not seen applied in its own leadership; another leader may have leased the timer instead.
func (al *activeLeases) granted(f *activeLease, d *table.Due) bool {
	if f.fence != 0 {
		return d.Fence == f.fence
	}
	return d.Rev == f.rev+1 && al.table.LeaseOwner(d.Fence) == al.cfg.Owner
}

// settled ends an active lease: its outcome was applied, or the lease itself never was.
func (al *activeLeases) over(f *activeLease) {
	f.phase = ended
	if al.byTimer[f.handle] == f {
		delete(al.byTimer, f.handle)
		al.topics.landed(f.queue)
		al.keys.freed(f)
	}
	al.limits.uncount(f)
	al.releaseOps(f)
}

// outcomeApplied handles the applied result of an outcome; f is the active lease that it ends, nil
// if there is none.
func (al *activeLeases) outcomeApplied(f *activeLease, r *timer.Result) {
	if f != nil {
		al.handOn(f)
		al.over(f)
	}
	if r.Code == timer.OK {
		al.consumers.applied(r.Handle)
	}
}

// Drain returns leases whose calls have not started. Its result is the number of leases that have
// not ended or, after the leadership, whose end the new leader has not confirmed.
func (al *activeLeases) drain() int {
	if !al.active {
		return len(al.byTimer)
	}
	for _, h := range al.handles() {
		switch f := al.byTimer[h]; f.phase {
		case proposed:
			f.revoked = true
		case held:
			al.revoke(f)
		}
	}
	if len(al.byTimer) > 0 {
		al.env.Wake()
	}
	return len(al.byTimer)
}
