package scheduler

import (
	"cmp"
	"slices"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// phase is the progress of a lease on its leader.
type phase uint8

const (
	proposed  phase = iota // in the log's pipeline, not applied yet
	held                   // applied; its due time has not come
	started                // the call runs
	ended                  // an outcome is in the pipeline
	returned               // the call never started, and the lease's release is in the pipeline
	reporting              // its outcome is reported to the current leader
)

// activeLease is one lease of this leader, from its proposal to the applied outcome.
type activeLease struct {
	handle   timer.Handle
	rev      uint32 // of the timer, before the lease
	seq      uint64
	fence    uint64 // of the lease; 0 until it is applied
	queue    *destQueue
	permit   delivery.Permit
	key      *keyQueue // of the timer's key; nil if the topic is not serial
	limits   counted   // where it counts
	phase    phase
	firm     bool             // no earlier timer of the key may preempt it
	called   bool             // the call was started
	kept     bool             // a gate delayed its timer
	revoked  bool             // do not start: return the lease when it is applied
	slow     bool             // see within; once it is applied
	dueMs    int64            // wall clock; the call does not start before
	expireMs int64            // … or after; 0: no limit
	leaseEnd time.Duration    // on clocks.Moment.Lease
	timeout  time.Duration    // of the call
	provenAt time.Duration    // when it was proposed, on clocks.Moment.Lease: a majority followed later
	askedAt  time.Duration    // … monotonic, to learn how long a commit takes; reporting: since when
	takenAt  time.Duration    // when its tokens were taken, monotonic; or noToken
	firedMs  int64            // when the call was started, wall clock
	fromMs   int64            // of a first attempt: when the timer was due, or created if that was later; else 0
	attempt  delivery.Outcome // how the call ended
	waiting  []ClientChange   // changes until the lease is applied, lease updates until the call's outcome
	id       string           // of the timer, once the call began or is reported: the table may go
	call     *batchCall       // which it shares with other timers, until that starts; else nil

	spot   order.Spot[*activeLease] // in its topic's leases, while it is in activeLeases.byTimer
	report order.Spot[*activeLease] // in leaseReports, in the phase reporting
	unseen bool                     // it counts in unseenLeases
}

// activeLeases are this process's leases for calls, until it has seen their end.
//
// Cost: O(1) for each change of a lease, O(log n) in those that are held; a change of a topic costs
// O(leases of the topic).
type activeLeases struct {
	byTimer map[timer.Handle]*activeLease // see keep and forget
	unseen  unseenLeases
	held    heap[*activeLease]
	calls   []*batchCall                // whose leases are applied, in order
	blocked []*activeLease              // leases that client changes wait for
	moved   map[*activeLease]*Scheduler // to which those of running calls have left
	toJudge []*activeLease              // whose calls have ended; none if this node does not lead
	// starting is what Dispatcher.Start is given, here so that a call does not allocate it.
	starting Delivery
	pipeline pipeline

	*leader
	consumers *consumerLeases
	due       *dueQueues
	inherited *inheritedLeases
	keys      *keyQueues
	limits    *topicLimits
	out       *outcomes
	pulls     *pulledTopics
	reports   *leaseReports
	series    *seriesTimes
	topics    *topicQueues
	windows   *topicWindows
}

func newActiveLeases(s *Scheduler) activeLeases {
	return activeLeases{
		byTimer: map[timer.Handle]*activeLease{}, moved: map[*activeLease]*Scheduler{}, leader: &s.leader,
		consumers: &s.Consumers, due: &s.due, inherited: &s.inherited, keys: &s.Keys, limits: &s.limits, out: &s.Outcomes,
		pulls: &s.Pulls, reports: &s.Reports, series: &s.series, topics: &s.topics, windows: &s.windows,
	}
}

// keep records a lease; forget drops it.
func (al *activeLeases) keep(f *activeLease) {
	al.byTimer[f.handle] = f
	f.queue.queue.leases.Push(&f.spot)
	al.unseen.count(f)
}

func (al *activeLeases) forget(f *activeLease) {
	delete(al.byTimer, f.handle)
	f.spot.Leave()
	f.report.Leave()
	al.unseen.count(f)
}

// unseenLeases counts the leases of activeLeases that clients do not see, in each topic and in all
// but the canary's.
type unseenLeases struct{ all int }

// enter records the progress of a lease.
func (u *unseenLeases) enter(f *activeLease, p phase) {
	f.phase = p
	u.count(f)
}

// count brings the counts up to date after a change of a lease.
func (u *unseenLeases) count(f *activeLease) {
	unseen := f.spot.In() && f.hidden()
	if unseen == f.unseen {
		return
	}
	by := 1
	if f.unseen = unseen; !unseen {
		by = -1
	}
	f.queue.queue.unseen += by
	if f.queue.queue.id != table.CanaryTopic {
		u.all += by
	}
}

// begin starts a leadership: calls of the last one may still run, but no lease waits to start.
func (al *activeLeases) begin() { al.held, al.calls = heap[*activeLease]{}, nil }

// judgeReported ends the reports of a former leadership: this node leads again, and judges the
// attempts itself.
func (al *activeLeases) judgeReported() {
	al.toJudge = al.reports.stop()
}

// end stops a leadership: what has not started never will, and all leases are reported to the next
// leader. Calls that run are reported when they end.
func (al *activeLeases) end() {
	for _, f := range al.blocked {
		al.env.Refuse(f.waiting)
		f.waiting = nil
	}
	al.blocked, al.pipeline.proposed = nil, 0
	for _, f := range inPhase(al.byTimer, proposed, held, returned, ended) {
		switch f.phase {
		case proposed, held:
			f.permit.Cancel()
			al.reports.begin(f, delivery.Outcome{NotSent: true})
		case returned:
			al.reports.begin(f, delivery.Outcome{NotSent: true})
		case ended:
			al.reports.begin(f, f.attempt)
		}
	}
	for _, f := range al.toJudge {
		al.ended(f, &f.attempt)
	}
	al.toJudge = nil
}

// inPhase returns the leases in some phases, sorted: the order of effects must be deterministic.
// Where many calls run, few leases are in another phase.
func inPhase(all map[timer.Handle]*activeLease, phases ...phase) (list []*activeLease) {
	for _, f := range all {
		if slices.Contains(phases, f.phase) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(f, o *activeLease) int { return cmp.Compare(f.handle, o.handle) })
	return list
}

// before orders held active leases by due time, then arrival.
func (l *activeLease) before(o *activeLease) bool {
	if l.dueMs != o.dueMs {
		return l.dueMs < o.dueMs
	}
	return l.seq < o.seq
}

// unstarted reports that the call can still be prevented: its permit is not used yet.
func (l *activeLease) unstarted() bool { return l.phase == proposed || l.phase == held }

// hidden reports that clients see the timer as scheduled although the table has it leased.
func (l *activeLease) hidden() bool { return l.phase == held || l.phase == returned }

// CallMargin is how much longer a lease lasts than its call's timeout.
const CallMargin = 5 * time.Second

// deadline is when the call must have ended: by the lease, and because it must begin within the
// lease's bound of a moment at which a majority surely followed this leader.
func (al *activeLeases) deadline(f *activeLease) time.Duration {
	return min(f.leaseEnd, al.provenAt+f.within()+f.timeout)
}

// stands reports whether the timer is unchanged since it was queued, is not being leased, and has
// not expired.
func (al *activeLeases) stands(e entry) bool {
	if !al.table.ScheduledAt(e.handle, e.seq, e.rev) {
		return false
	}
	return !al.pulls.leasing(e) && !al.table.PastExpiry(e.handle, al.now.WallMs)
}

// kept reports that a gate has delayed a timer past its due time: a pause, a breaker, a limit, or
// spread. keyQueues.take adds the delay by its key.
func (d *destQueue) kept(e entry, due *table.Due) bool {
	return e.dueMs <= max(d.shutMs, d.queue.resumedMs, d.queue.limitedMs) || e.dueMs > due.NextMs
}

// revoke returns a lease whose call has not started.
func (al *activeLeases) revoke(f *activeLease) {
	f.permit.Cancel()
	al.unseen.enter(f, returned)
	al.out.release(f)
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
func (al *activeLeases) Expire(now time.Duration) {
	al.blocked = slices.DeleteFunc(al.blocked, func(f *activeLease) bool {
		for len(f.waiting) > 0 && f.waiting[0].WaitsUntil() <= now {
			f.waiting[0].Answer(timer.Result{}, timer.ErrOverloaded)
			f.waiting = f.waiting[1:]
		}
		return len(f.waiting) == 0
	})
}

// ended judges a call that has ended, or reports it if this node leads no more.
func (al *activeLeases) ended(f *activeLease, a *delivery.Outcome) {
	if next := al.moved[f]; next != nil {
		delete(al.moved, f)
		f.endedElsewhere(next, a)
		return
	}
	if al.byTimer[f.handle] != f {
		return // its timer was dropped, or has another lease
	}
	if !al.active {
		al.reports.begin(f, *a)
		return
	}
	endBy(a, al.now.WallMs, f.phase == started)
	al.unseen.enter(f, ended)
	f.attempt = *a
	d := al.table.Due(f.handle)
	if !al.table.Live(f.handle, f.seq) || d.State != timer.Leased || d.Holder != table.ByCall || !al.granted(f, &d) {
		al.over(f)
		return
	}
	if f.fromMs > 0 && !a.NotSent {
		al.cfg.Observer.Lateness(max(a.StartedMs-f.fromMs, 0), f.kept, a.TraceID)
	}
	out := al.out.add(al.out.judge(f.handle, &d, a, al.random.Float64()), f)
	if d.Topic != table.CanaryTopic {
		al.env.Fired(d.Topic, out)
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

// over ends an active lease: its outcome was applied, or the lease itself never was.
func (al *activeLeases) over(f *activeLease) {
	al.unseen.enter(f, ended)
	if al.byTimer[f.handle] == f {
		al.forget(f)
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
func (al *activeLeases) Drain() int {
	if !al.active {
		return len(al.byTimer)
	}
	for _, f := range inPhase(al.byTimer, proposed, held) {
		if f.phase == proposed {
			f.revoked = true
		} else {
			al.revoke(f)
		}
	}
	if len(al.byTimer) > 0 {
		al.env.Wake()
	}
	return len(al.byTimer)
}

// GiveWay returns the leases that block a command. It reports false if the command must wait for a
// lease in the log's pipeline.
func (al *activeLeases) GiveWay(b *table.Batch, cmd *timer.Command, o ClientChange) bool {
	if cmd.Kind == timer.Deliver {
		al.releaseHeld(b, cmd.Topic)
	}
	if cmd.Kind == timer.Add && cmd.Merge == timer.MergeReject || cmd.Kind == timer.Redrive || cmd.Kind == timer.Purge {
		return true
	}
	for h, more := al.table.MayBeLeased(cmd); h != 0; h = al.table.NextLive(h) {
		switch f := al.byTimer[h]; {
		case f == nil || !al.table.Live(h, f.seq):
		case cmd.Kind == timer.Add && f.dueMs <= al.now.WallMs:
			// The timer is due, so its attempt goes ahead: a stream of adds could put it off for
			// ever.
		case f.phase == proposed:
			f.revoked = true
			al.await(f, o)
			return false
		case f.phase == held:
			al.release(b, f)
		}
		if !more {
			break
		}
	}
	return true
}

// release returns a lease whose call has not started, in the entry being built.
func (al *activeLeases) release(b *table.Batch, f *activeLease) {
	f.permit.Cancel()
	al.unseen.enter(f, returned)
	b.Outcome(&table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release})
	al.env.Proposed(Item{outcomeProposed, f})
}

// releaseHeld returns a topic's held leases, which clients do not see.
func (al *activeLeases) releaseHeld(b *table.Batch, topic timer.TopicID) {
	q := al.topics.byID[topic]
	if q == nil {
		return
	}
	for f := range q.activeLeases() {
		if f.phase == held && al.table.Live(f.handle, f.seq) {
			al.release(b, f)
		}
	}
}
