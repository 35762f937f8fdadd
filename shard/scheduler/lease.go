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
func (l *Scheduler) Lease(b *table.Batch) {
	if !l.mayStart() || l.env.HandingOver() {
		return
	}
	for n, over := 0, false; n < LeaseBudget && (!over || l.due.least && n < leastLeases) && !l.leases.full(); n++ {
		q := l.due.turns.next()
		if q == nil {
			return
		}
		over = l.env.Spent(leaseSteps)
		if l.leaseOne(b, q) {
			continue
		}
		l.due.turns.leave(q)
		l.returnCredits(q)
	}
	if l.due.turns.ring.Len() > 0 && !l.leases.full() { // else leased goes on
		l.env.WakeNext()
	}
}

// leaseSteps is what a lease costs, in steps of Env.Spent.
const leaseSteps = 4

// leaseOne proposes a lease for the first timer of a topic. It reports whether the topic keeps its
// turn.
func (l *Scheduler) leaseOne(b *table.Batch, q *topicQueue) bool {
	if t := l.topic(q.id); t != q.topic {
		l.refresh(q, t)
	}
	n := l.choose(q)
	if n == nil {
		l.rest(q)
		return false
	}
	e := n.head()
	if !l.stands(e) || q.keys != nil && !l.mayGo(q, e) {
		l.pop(n)
		l.Review(e.handle)
		return true
	}
	if q.resumedMs-e.dueMs > missedAfterMs && l.missed(e) {
		l.pop(n)
		l.env.WakeNext()
		return true
	}
	if q.limiterUse != nil && !l.admit(q) {
		return false
	}
	permit := l.acquire(n)
	if permit == nil {
		if q.limiterUse != nil {
			q.limiterUse.keep()
		}
		return true // another destination of the topic may have a permit
	}
	l.propose(b, n, e, permit)
	l.pop(n)
	return true
}

// choose returns the destination queue of a topic whose first timer goes next; nil if none may go.
func (l *Scheduler) choose(q *topicQueue) *destQueue {
	if q.topic == nil || q.topic.Paused || q.pulled() || !l.table.Delivers(q.id, false) {
		return nil
	}
	if open, untilMs := l.inWindow(q); !open {
		l.awaitWindow(q, untilMs)
		return nil
	}
	if !l.ordered(q) {
		l.due.deferred.Push(&q.deferred)
		return nil
	}
	return q.next()
}

// ordered reports that the order of the topic's timers is known: no earlier one of a key is missing,
// and all leases that count at its limit are found.
func (l *Scheduler) ordered(q *topicQueue) bool {
	if q.keys != nil && (!l.due.caughtUp || len(q.moving) > 0 || len(l.due.compacting) > 0) {
		return false
	}
	return !l.keys.scanning || q.keys == nil && q.limiterUse == nil
}

// stands reports whether the timer is unchanged since it was queued, is not being leased, and has
// not expired.
func (l *Scheduler) stands(e entry) bool {
	t := l.table
	if !t.Live(e.handle, e.seq) {
		return false
	}
	d := t.Due(e.handle)
	f := l.leases.byTimer[e.handle]
	return d.Rev == e.rev && d.State == timer.Scheduled && (f == nil || f.seq != e.seq || f.phase != proposed) && l.consumers.reserved[e.handle] != e.seq &&
		(d.ExpiresMs == 0 || l.now.WallMs <= d.ExpiresMs)
}

// acquire asks the dispatcher for a permit. Without one the destination queue waits for its
// receiver, the topic for a slot of the node, or the breaker for its time.
func (l *Scheduler) acquire(n *destQueue) delivery.Permit {
	if p := n.spare; p != nil {
		n.spare = nil
		n.spareSpot.Leave()
		return p
	}
	if p, ok := n.dest.(canaryDest); ok {
		return p
	}
	q := n.queue
	p, v := l.cfg.Dispatcher.Acquire(n.dest, q.topic, delivery.Ask{Receiver: n, Node: q, Credit: q.credits[n.class]})
	switch {
	case p != nil:
		q.credits[n.class] = nil // it is used up
		return p
	case v.Kind == delivery.ReceiverFull:
		n.atReceiver, n.shutMs = true, l.now.WallMs
	case v.Kind == delivery.NodeFull:
		n.class, n.shutMs, q.asks[v.Class] = v.Class, l.now.WallMs, true
	default:
		l.shutFor(n, v.RetryIn)
		return nil
	}
	l.update(n)
	return nil
}

// kept reports that a gate has delayed a timer past its due time: a pause, a breaker, a limit, or
// spread. takeKey adds the delay by its key.
func (n *destQueue) kept(e entry, d *table.Due) bool {
	return e.dueMs <= max(n.shutMs, n.queue.resumedMs, n.queue.limitedMs) || e.dueMs > d.NextMs
}

// propose adds a lease to the batch and records it as active.
func (l *Scheduler) propose(b *table.Batch, n *destQueue, e entry, permit delivery.Permit) {
	d := l.table.Due(e.handle)
	own := l.table.Callback(d.Target)
	timeout := time.Duration(n.queue.topic.Policy.Callback.TimeoutMs) * time.Millisecond
	if own.TimeoutMs > 0 {
		timeout = time.Duration(own.TimeoutMs) * time.Millisecond
	}
	last := timeout + CallMargin + MaxLookAhead
	f := &activeLease{
		handle: e.handle, seq: e.seq, rev: e.rev, queue: n, permit: permit,
		dueMs: e.dueMs, expireMs: d.ExpiresMs,
		leaseEnd: l.now.Lease + last, timeout: timeout, provenAt: l.now.Lease, askedAt: l.now.Mono,
		kept: n.kept(e, &d),
	}
	if old := l.leases.byTimer[e.handle]; old != nil {
		// The old call still runs, but its lease is over: its topic was dropped by force, or
		// another node led meanwhile.
		delete(l.leases.byTimer, e.handle)
		l.landed(old.queue)
		l.freed(old)
		l.uncount(old)
		l.releaseOps(old)
	}
	if n.queue.limiterUse != nil {
		f.limit = n.queue.limiterUse.limit
	}
	l.leases.byTimer[e.handle] = f
	if n.queue.keys != nil {
		l.takeKey(f)
	}
	n.flying++
	l.leases.proposed++
	b.Lease(last.Milliseconds(), e.handle, e.seq, e.rev)
	l.env.Proposed(Item{leaseProposed, f})
}

// leased handles the applied result of a proposed lease.
func (l *Scheduler) leased(f *activeLease, r timer.Result) {
	l.leaves(f)
	l.leases.committed(l.now.Mono-f.askedAt, l.now.Mono)
	l.learn(l.now.Mono - f.askedAt)
	if r.Code != timer.OK { // the timer changed before the lease was applied
		f.permit.Cancel()
		l.settled(f)
		// It may have been popped again and skipped because of this lease.
		l.table.Rearm(f.handle, f.seq)
		return
	}
	f.fence = r.Fence
	if f.revoked {
		l.revoke(f)
		l.releaseOps(f)
		return
	}
	f.phase = held
	l.leases.held.push(f)
}

// leaves counts a lease out of the pipeline, in which others may go then.
func (l *Scheduler) leaves(f *activeLease) {
	if f.phase != proposed { // of an earlier leadership
		return
	}
	if l.leases.full() {
		l.env.WakeNext()
	}
	l.leases.proposed--
}

// learn adapts the look-ahead to about two commit times.
func (l *Scheduler) learn(commit time.Duration) {
	want := min(max(2*commit, minLookAhead), MaxLookAhead)
	if want > l.due.lookAhead {
		l.due.lookAhead = want
	} else {
		l.due.lookAhead -= (l.due.lookAhead - want) / 64
	}
}

// revoke returns a lease whose call has not started.
func (l *Scheduler) revoke(f *activeLease) {
	f.permit.Cancel()
	f.phase = returned
	l.out.outcomes = append(l.out.outcomes, outcomeItem{table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release}, f})
}

// releaseOps continues the client changes that waited for an active lease.
func (l *Scheduler) releaseOps(f *activeLease) {
	if len(f.waiting) == 0 {
		return
	}
	l.env.Resume(f.waiting)
	f.waiting = nil
	l.env.WakeNext()
}

// await makes a client's change wait for an active lease.
func (l *Scheduler) await(f *activeLease, o ClientChange) {
	if len(f.waiting) == 0 {
		l.leases.blocked = append(l.leases.blocked, f)
	}
	f.waiting = append(f.waiting, o)
}

// Expire answers ErrOverloaded to client changes that have waited too long for a lease to be
// applied or a call to end.
func (l *Scheduler) Expire(now time.Duration) {
	keep := l.leases.blocked[:0]
	for _, f := range l.leases.blocked {
		for len(f.waiting) > 0 && f.waiting[0].WaitsUntil() <= now {
			f.waiting[0].Answer(timer.Result{}, timer.ErrOverloaded)
			f.waiting = f.waiting[1:]
		}
		if len(f.waiting) > 0 {
			keep = append(keep, f)
		}
	}
	clear(l.leases.blocked[len(keep):])
	l.leases.blocked = keep
}

// startDue starts every held call that is due.
func (l *Scheduler) startDue() {
	if l.leases.held.len() > 0 && l.leases.held.top().dueMs-l.now.WallMs > 2*MaxLookAhead.Milliseconds() {
		l.returnHeld()
	}
	for n := 0; l.leases.held.len() > 0 && (l.leases.held.top().phase != held || l.leases.held.top().dueMs <= l.now.WallMs); n++ {
		if n == startBudget {
			l.env.WakeNext()
			return
		}
		if f := l.leases.held.top(); f.phase == held && l.now.Lease-l.proven(f) > provenFor {
			l.Doubt()
			return
		}
		if f := l.leases.held.pop(); f.phase == held {
			l.start(f)
		}
	}
}

// returnHeld revokes every held lease: the wall clock stepped back, and other timers could not use
// their permits meanwhile.
func (l *Scheduler) returnHeld() {
	for _, f := range l.leases.held.items {
		if f.phase == held {
			l.revoke(f)
		}
	}
	l.leases.held = heap[*activeLease]{}
}

func (l *Scheduler) start(f *activeLease) {
	if !l.table.Live(f.handle, f.seq) { // its topic was dropped by force
		l.drop(f)
		return
	}
	d := l.table.Due(f.handle)
	if d.State != timer.Leased || d.Fence != f.fence {
		l.drop(f)
		return
	}
	topic := f.queue.queue.topic
	if open, _ := l.inWindow(f.queue.queue); !open || topic == nil || topic.Paused || f.expireMs != 0 && l.now.WallMs > f.expireMs {
		l.revoke(f)
		return
	}
	f.phase, f.called, f.firedMs = started, true, l.now.WallMs
	l.overlap(f.handle, f.seq, f.fence)
	job := l.table.Job(f.handle)
	if job.Attempts == 1 && d.Topic != table.CanaryTopic {
		f.fromMs = job.LateFromMs
	}
	done := func(a delivery.Outcome) { l.env.Post(func(stopped bool) { l.callEnded(f, a, stopped) }) }
	if c, own := f.permit.(canaryDest); own {
		c.start(done)
		return
	}
	l.cfg.Dispatcher.Start(f.permit, &Delivery{Topic: topic, Shard: l.cfg.Shard, Job: job, Own: l.table.Callback(d.Target), Deadline: l.deadline(f)}, done)
}

func (l *Scheduler) drop(f *activeLease) {
	f.permit.Cancel()
	l.settled(f)
}

// callEnded handles the end of a call, on the worker.
func (l *Scheduler) callEnded(f *activeLease, a delivery.Outcome, stopped bool) {
	if stopped {
		return // the next process finds the lease in the log
	}
	l.ended(f, &a)
	l.env.Wake()
}

// ended judges a call that has ended, or reports it if this node leads no more.
func (l *Scheduler) ended(f *activeLease, a *delivery.Outcome) {
	if l.leases.byTimer[f.handle] != f {
		return // its timer was dropped, or has another lease
	}
	if !l.active {
		l.report(f, *a)
		return
	}
	endBy(a, l.now.WallMs, true)
	f.phase, f.attempt = ended, *a
	d := l.table.Due(f.handle)
	if !l.table.Live(f.handle, f.seq) || d.State != timer.Leased || d.Holder != table.ByCall || !l.granted(f, &d) {
		l.settled(f)
		return
	}
	if f.fromMs > 0 && !a.NotSent {
		l.cfg.Observer.Lateness(a.StartedMs-f.fromMs, f.kept)
	}
	out := l.judge(f.handle, &d, a, l.random.Float64())
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, f})
	if d.Topic != table.CanaryTopic {
		l.env.Fired(d.Topic, &out)
	}
}

// granted reports whether the table's lease is this active lease. An active lease without a fence
// was not seen applied in its own leadership; another leader may have leased the timer instead.
func (l *Scheduler) granted(f *activeLease, d *table.Due) bool {
	if f.fence != 0 {
		return d.Fence == f.fence
	}
	return d.Rev == f.rev+1 && l.table.LeaseOwner(d.Fence) == l.cfg.Owner
}

// settled ends an active lease: its outcome was applied, or the lease itself never was.
func (l *Scheduler) settled(f *activeLease) {
	f.phase = ended
	if l.leases.byTimer[f.handle] == f {
		delete(l.leases.byTimer, f.handle)
		l.landed(f.queue)
		l.freed(f)
	}
	l.uncount(f)
	l.releaseOps(f)
}

// landed ends one of a destination queue's leases.
func (l *Scheduler) landed(n *destQueue) {
	n.flying--
	l.update(n)
}

// outcomeApplied handles the applied result of an outcome; f is the active lease that it ends, nil
// if there is none.
func (l *Scheduler) outcomeApplied(f *activeLease, r *timer.Result) {
	if f != nil {
		l.handOn(f)
		l.settled(f)
	}
	if r.Code == timer.OK {
		l.applied(r.Handle)
	}
}

// DeliveryChanged handles a logged change of a topic's delivery, by call or by pull: timers that it
// held back may go now.
func (l *Scheduler) DeliveryChanged(topic timer.TopicID) {
	if q := l.due.topics[topic]; l.active && q != nil {
		l.join(q)
		l.env.WakeNext()
	}
}

// Drain returns leases whose calls have not started. Its result is the number of leases that have
// not ended or, after the leadership, whose end the new leader has not confirmed.
func (l *Scheduler) Drain() int {
	if !l.active {
		return len(l.leases.byTimer)
	}
	for _, h := range l.activeHandles() {
		switch f := l.leases.byTimer[h]; f.phase {
		case proposed:
			f.revoked = true
		case held:
			l.revoke(f)
		}
	}
	if len(l.leases.byTimer) > 0 {
		l.env.Wake()
	}
	return len(l.leases.byTimer)
}
