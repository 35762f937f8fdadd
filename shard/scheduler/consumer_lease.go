package scheduler

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// Why a lease of a consumer ended without a word: the timer's last error.
const LeaseExpired = "the lease ran out before an ack or a nack"

// consumerLease is a consumer's lease as this leader counts it.
type consumerLease struct {
	seq   uint64
	fence uint64
	end   time.Duration // monotonic
}

// consumerLeases are the leases that end by a consumer's word or by their time.
type consumerLeases struct {
	leases   map[timer.Handle]consumerLease // what consumers have
	reserved map[timer.Handle]uint64        // what they are to have, by its number: the lease is in the pipeline
	ends     heap[leaseEnd]
	acked    acked
	pullable []*topicQueue // topics that are pulled, and of which something may be ready
}

// leaseEnd orders the ends. One whose holding has another end meanwhile is stale.
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

// hold counts a lease until end, which replaces what was counted before.
func (l *Scheduler) hold(h timer.Handle, d *table.Due, end time.Duration) {
	if l.consumers.leases[h] == (consumerLease{d.Seq, d.Fence, end}) {
		return
	}
	l.consumers.leases[h] = consumerLease{d.Seq, d.Fence, end}
	l.consumers.ends.push(leaseEnd{end, d.Fence, h})
	if l.consumers.ends.len() > 2*len(l.consumers.leases)+512 { // those that ended early are most of them
		l.consumers.ends.filter(func(e leaseEnd) bool {
			v, ok := l.consumers.leases[e.handle]
			return ok && v.fence == e.fence && v.end == e.end
		})
	}
}

// handOn leaves an active lease's place at its topic's limit with the receiver, if that has
// accepted the timer.
func (l *Scheduler) handOn(f *activeLease) {
	if d := l.table.Due(f.handle); f.limit != nil && d.Seq == f.seq && d.State == timer.Leased && d.Holder != table.ByCall {
		l.limits.carried[f.handle] = carriedLease{seq: f.seq, limit: f.limit}
		f.limit = nil
	}
}

// holdsUntil is the end of a lease as it is counted; one that this leader did not see begin is
// counted from the takeover on, in full.
func (l *Scheduler) holdsUntil(h timer.Handle, d *table.Due) time.Duration {
	if v, ok := l.consumers.leases[h]; ok && v.seq == d.Seq && v.fence == d.Fence {
		return v.end
	}
	return l.since + msOf(d.LeaseMs)
}

// applied is told of a timer whose lease was given, prolonged or ended just now: one that a
// consumer has is counted from here on.
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

// expireLeases ends what consumers have held for long enough.
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

// expireConsumerLease ends a consumer's attempt. Should the log not take that, the scan for
// inherited leases finds it again.
func (l *Scheduler) expireConsumerLease(h timer.Handle, d *table.Due) {
	delete(l.consumers.leases, h)
	now := l.now.WallMs
	out := l.judge(h, d, &Attempt{Err: LeaseExpired, StartedMs: d.FiredMs, EndedMs: now}, l.random.Float64())
	if out.Kind == table.RetryLater && d.Holder == table.ByPuller {
		out.NextMs = l.notBeforeDue(h, now) // whoever pulls next may have it
	}
	out.Status, out.ByConsumer = d.Status, true
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, nil})
}

// endWakeMs is when the first consumer's lease ends, in wall ms.
func (l *Scheduler) endWakeMs() int64 {
	if l.consumers.ends.len() == 0 {
		return 1<<63 - 1
	}
	return l.now.WallMs + (l.consumers.ends.top().end - l.now.Mono + time.Millisecond - 1).Milliseconds()
}

// Updated is told that a consumer's update of its lease was applied.
func (l *Scheduler) Updated(cmd *timer.Command) {
	l.applied(cmd.Claim.Handle)
	if cmd.Kind == timer.AckLease {
		l.consumers.acked.add(cmd.Claim.Fence)
	}
}

// Updatable reports that a claim is about the lease that the table has, and that it is a consumer's
// or a receiver's that reports.
func (l *Scheduler) Updatable(cmd *timer.Command, d *table.Due) bool {
	c := cmd.Claim
	return l.table.Live(c.Handle, c.Seq) && d.State == timer.Leased && d.Fence == c.Fence && d.Topic == cmd.Topic &&
		(cmd.Kind != timer.ReturnLease || d.Holder == table.ByPuller) && (d.Holder != table.ByCall || l.reports(c.Handle, d))
}

// reports says whether the receiver of a call that has no outcome yet may have a receipt: its 202
// may be on its way, or was lost with a former leader.
func (l *Scheduler) reports(h timer.Handle, d *table.Due) bool {
	if t := l.topic(d.Topic); t == nil || !t.Policy.Report {
		return false
	}
	f := l.calling(h, d)
	return f == nil || f.called
}

// calling is this leader's active lease of the lease that the table has; nil: another led when it
// was taken.
func (l *Scheduler) calling(h timer.Handle, d *table.Due) *activeLease {
	if f := l.leases.byTimer[h]; f != nil && f.seq == d.Seq && f.fence == d.Fence {
		return f
	}
	return nil
}

// AwaitAnswer has a claim wait until the call that it is about has its outcome. An ack needs none:
// the work is done, whatever comes.
func (l *Scheduler) AwaitAnswer(o ClientChange, h timer.Handle, d *table.Due) bool {
	f := l.calling(h, d)
	if f == nil {
		return false
	}
	l.await(f, o)
	return true
}

// DecideLeaseUpdate makes the outcome of a claim.
func (l *Scheduler) DecideLeaseUpdate(cmd *timer.Command, d *table.Due) table.Outcome {
	c, now := cmd.Claim, l.now.WallMs
	fired, status := d.FiredMs, d.Status
	if d.Holder == table.ByCall { // those are of the attempt before
		fired, status = now, 0
		if f := l.calling(c.Handle, d); f != nil {
			fired = f.firedMs
		}
	}
	a := Attempt{StartedMs: fired, EndedMs: now}
	out := table.Outcome{Handle: c.Handle, Seq: c.Seq, Fence: c.Fence, StartedMs: fired, EndedMs: now}
	switch cmd.Kind {
	case timer.AckLease:
		out.Kind, out.AgainMs = table.Ack, l.again(c.Handle, fired)
	case timer.ExtendLease:
		if out.Kind, out.LeaseMs = table.Extended, c.LeaseMs; d.Holder == table.ByCall {
			out.Kind = table.Accepted // that leader heard no answer any more
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
	if out.Kind == table.Extended { // it is not to expire while this is on its way
		l.hold(c.Handle, d, max(l.holdsUntil(c.Handle, d), l.now.Mono+msOf(out.LeaseMs)))
	}
	return out
}

// LeaseMs is how long a consumer holds a timer of the topic that does not ask for something else.
func (l *Scheduler) LeaseMs(id timer.TopicID) int64 {
	if t := l.topic(id); t != nil {
		return t.Policy.LeaseFor()
	}
	return timer.DefaultLeaseMs
}

// LeaseOver is what a claim is answered: an ack of a timer that this very lease delivered is as
// good as the first. The table says so of timers that ended lately; of those whose id has another
// timer since, as one that repeats has, only the leader that took the first ack can.
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

// acked are the last leases of a shard that were acked.
type acked struct {
	last []uint64 // fences, in a ring
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
