package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// LeaseExpired is the last error of a timer whose consumer let the lease expire.
const LeaseExpired = "the lease ran out before an ack or a nack"

// consumerLease is a consumer's lease as this leader counts it.
type consumerLease struct {
	seq   uint64
	fence uint64
	end   time.Duration // monotonic
}

// consumerLeases are the leases that end by an ack or a nack, or expire.
type consumerLeases struct {
	leases   map[timer.Handle]consumerLease // applied leases
	reserved map[timer.Handle]uint64        // leases in the log's pipeline; the value is the timer's Seq
	ends     heap[leaseEnd]
	acked    acked
	pullable []*topicQueue // pulled topics that may have timers ready
	renotify int           // index in pullable of the one announced last
	fresh    []*topicQueue // of these, those whose timers became ready in this turn
}

// leaseEnd is when a lease expires. It is stale once consumerLeases.leases has another end.
type leaseEnd struct {
	end    time.Duration
	fence  uint64
	handle timer.Handle
}

func (e leaseEnd) before(o leaseEnd) bool {
	if e.end != o.end {
		return e.end < o.end
	}
	return e.fence < o.fence
}

func msOf(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// hold counts a lease until end, which replaces an earlier end.
func (l *Scheduler) hold(h timer.Handle, d *table.Due, end time.Duration) {
	if l.consumers.leases[h] == (consumerLease{d.Seq, d.Fence, end}) {
		return
	}
	l.consumers.leases[h] = consumerLease{d.Seq, d.Fence, end}
	l.consumers.ends.push(leaseEnd{end, d.Fence, h})
	if l.consumers.ends.len() > 2*len(l.consumers.leases)+512 { // most are stale
		l.consumers.ends.filter(func(e leaseEnd) bool {
			v, ok := l.consumers.leases[e.handle]
			return ok && v.fence == e.fence && v.end == e.end
		})
	}
}

// handOn keeps a lease counted at its topic's limit when its receiver has accepted the timer: the
// active lease ends, the receiver's goes on.
func (l *Scheduler) handOn(f *activeLease) {
	if d := l.table.Due(f.handle); f.limit != nil && d.Seq == f.seq && d.State == timer.Leased && d.Holder != table.ByCall {
		l.limits.carried[f.handle] = carriedLease{seq: f.seq, limit: f.limit}
		f.limit = nil
	}
}

// holdsUntil returns the monotonic end of a lease. One that this leader did not see begin counts in
// full from the takeover.
func (l *Scheduler) holdsUntil(h timer.Handle, d *table.Due) time.Duration {
	if v, ok := l.consumers.leases[h]; ok && v.seq == d.Seq && v.fence == d.Fence {
		return v.end
	}
	return l.since + msOf(d.LeaseMs)
}

// applied handles a lease that was just given, extended or ended. A consumer's lease counts from
// now.
func (l *Scheduler) applied(h timer.Handle) {
	if !l.active {
		return
	}
	d := l.table.Due(h)
	q := l.due.topics[d.Topic]
	if d.State == timer.Leased && d.Holder != table.ByCall {
		l.hold(h, &d, l.now.Mono+msOf(d.LeaseMs))
		if q != nil {
			l.countCarried(q, h, &d)
		}
		return
	}
	delete(l.consumers.leases, h)
	if q != nil && q.fullUntil > 0 {
		q.fullUntil = 0
		l.markReady(q)
		l.env.WakeNext()
	}
}

// expireLeases expires consumers' leases, at most LeaseBudget a turn.
func (l *Scheduler) expireLeases() {
	mono := l.now.Mono
	for n := 0; l.consumers.ends.len() > 0 && l.consumers.ends.top().end <= mono; n++ {
		if n == LeaseBudget {
			l.env.WakeNext()
			return
		}
		e := l.consumers.ends.pop()
		if v, ok := l.consumers.leases[e.handle]; !ok || v.fence != e.fence || v.end != e.end {
			continue
		}
		d := l.table.Due(e.handle)
		if d.State != timer.Leased || d.Fence != e.fence || d.Holder == table.ByCall {
			delete(l.consumers.leases, e.handle)
			continue
		}
		l.expireConsumerLease(e.handle, &d)
	}
}

// expireConsumerLease ends the attempt of an expired lease. If the log does not take the outcome,
// scanInherited finds the lease again.
func (l *Scheduler) expireConsumerLease(h timer.Handle, d *table.Due) {
	delete(l.consumers.leases, h)
	now := l.now.WallMs
	out := l.judge(h, d, &delivery.Outcome{Err: LeaseExpired, StartedMs: d.FiredMs, EndedMs: now}, l.random.Float64())
	if out.Kind == table.RetryLater && d.Holder == table.ByPuller {
		out.NextMs = l.notBeforeDue(h, now) // no backoff: the next pull may take it
	}
	out.Status, out.ByConsumer = d.Status, true
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, nil})
}

// endWakeMs returns when the first consumer's lease expires, in wall-clock ms.
func (l *Scheduler) endWakeMs() int64 {
	if l.consumers.ends.len() == 0 {
		return 1<<63 - 1
	}
	return l.now.WallMs + (l.consumers.ends.top().end - l.now.Mono + time.Millisecond - 1).Milliseconds()
}

// Updated handles an applied lease update.
func (l *Scheduler) Updated(cmd *timer.Command) {
	l.applied(cmd.Claim.Handle)
	if cmd.Kind == timer.AckLease {
		l.consumers.acked.add(cmd.Claim.Fence)
	}
}

// Updatable reports that a lease update names the lease that the table has, and that its holder may
// make it: a consumer, or a receiver that reports.
func (l *Scheduler) Updatable(cmd *timer.Command, d *table.Due) bool {
	c := cmd.Claim
	return l.table.Live(c.Handle, c.Seq) && d.State == timer.Leased && d.Fence == c.Fence && d.Topic == cmd.Topic &&
		(cmd.Kind != timer.ReturnLease || d.Holder == table.ByPuller) && (d.Holder != table.ByCall || l.reports(c.Handle, d))
}

// reports tells whether the receiver of a call without an outcome may have a receipt: its 202 may
// be on its way, or was lost with a former leader.
func (l *Scheduler) reports(h timer.Handle, d *table.Due) bool {
	if t := l.topic(d.Topic); t == nil || !t.Policy.Report {
		return false
	}
	f := l.calling(h, d)
	return f == nil || f.called
}

// calling returns this leader's active lease behind the table's lease; nil if a former leader took
// it.
func (l *Scheduler) calling(h timer.Handle, d *table.Due) *activeLease {
	if f := l.leases.byTimer[h]; f != nil && f.seq == d.Seq && f.fence == d.Fence {
		return f
	}
	return nil
}

// AwaitAnswer makes a lease update wait until its call has an outcome. An ack need not wait: the
// work is done, however the call ends.
func (l *Scheduler) AwaitAnswer(o ClientChange, h timer.Handle, d *table.Due) bool {
	f := l.calling(h, d)
	if f == nil {
		return false
	}
	l.await(f, o)
	return true
}

// DecideLeaseUpdate returns the outcome of a lease update.
func (l *Scheduler) DecideLeaseUpdate(cmd *timer.Command, d *table.Due) table.Outcome {
	c, now := cmd.Claim, l.now.WallMs
	fired, status := d.FiredMs, d.Status
	if d.Holder == table.ByCall { // d's values are the previous attempt's
		fired, status = now, 0
		if f := l.calling(c.Handle, d); f != nil {
			fired = f.firedMs
		}
	}
	a := delivery.Outcome{StartedMs: fired, EndedMs: now}
	out := table.Outcome{Handle: c.Handle, Seq: c.Seq, Fence: c.Fence, StartedMs: fired, EndedMs: now}
	switch cmd.Kind {
	case timer.AckLease:
		out.Kind, out.AgainMs = table.Ack, l.again(c.Handle, fired)
	case timer.ExtendLease:
		if out.Kind, out.LeaseMs = table.Extended, c.LeaseMs; d.Holder == table.ByCall {
			out.Kind = table.Accepted // stands for the 202 that was lost with a former leader
		}
		if out.LeaseMs == 0 {
			out.LeaseMs = l.LeaseMs(d.Topic)
		}
	case timer.ReturnLease:
		out.Kind = table.Release
	default:
		a.Err = c.Reason
		if a.Err == "" {
			a.Err = "nack"
		}
		out = l.judge(c.Handle, d, &a, l.random.Float64())
		if out.Kind == table.RetryLater && c.HasDelay {
			out.NextMs = l.notBeforeDue(c.Handle, now+c.DelayMs)
		}
	}
	out.Status, out.ByConsumer = status, true
	if out.Kind == table.Extended { // it must not expire before the extension is applied
		l.hold(c.Handle, d, max(l.holdsUntil(c.Handle, d), l.now.Mono+msOf(out.LeaseMs)))
	}
	return out
}

// LeaseMs returns how long a consumer's lease lasts unless it asks for another length.
func (l *Scheduler) LeaseMs(id timer.TopicID) int64 {
	if t := l.topic(id); t != nil {
		return t.Policy.LeaseFor()
	}
	return timer.DefaultLeaseMs
}

// LeaseOver returns the answer to an update of a lease that is over. A repeated ack of the same
// lease is OK. The table knows that of timers that ended lately. If the id has a newer timer, as in
// a series, only the leader that took the first ack knows.
func (l *Scheduler) LeaseOver(cmd *timer.Command, r timer.Result) timer.Result {
	c := cmd.Claim
	if r.Code == timer.Skipped && cmd.Kind == timer.AckLease {
		d := l.table.Due(c.Handle)
		if l.table.Live(c.Handle, c.Seq) && d.State == timer.Done && d.Fence == c.Fence || l.consumers.acked.has(c.Fence) {
			r.Code = timer.OK
		}
	}
	return timer.Result{Code: r.Code, Handle: c.Handle}
}

// acked are the last maxAcked leases of a shard that were acked.
type acked struct {
	last []uint64 // fences, a ring buffer
	next int
	set  map[uint64]struct{}
}

const maxAcked = 1024

func (a *acked) add(fence uint64) {
	if a.set == nil {
		a.set = map[uint64]struct{}{}
	}
	if len(a.last) < maxAcked {
		a.last = append(a.last, fence)
	} else {
		delete(a.set, a.last[a.next])
		a.last[a.next] = fence
		a.next = (a.next + 1) % maxAcked
	}
	a.set[fence] = struct{}{}
}

func (a *acked) has(fence uint64) bool {
	_, ok := a.set[fence]
	return ok
}
