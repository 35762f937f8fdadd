package scheduler

import (
	"maps"
	"slices"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// LeaseExpired is the last error of a timer whose consumer let the lease expire.
const LeaseExpired = "the lease ran out before an ack or a nack"

// consumerLease is a consumer's lease as this leader counts it.
type consumerLease struct {
	handle timer.Handle
	seq    uint64
	fence  uint64
	end    time.Duration // monotonic
	place  int           // in consumerLeases.ends
}

// Before orders leases by their ends.
func (l *consumerLease) Before(o *consumerLease) bool {
	if l.end != o.end {
		return l.end < o.end
	}
	return l.fence < o.fence
}

// Place implements order.Ranked.
func (l *consumerLease) Place() *int { return &l.place }

// consumerLeases are the leases that end by an ack or a nack, or expire. Cost: O(log n) in them for
// each that begins, is extended or ends.
type consumerLeases struct {
	byTimer map[timer.Handle]*consumerLease // applied leases
	ends    order.Heap[*consumerLease]      // the same
	acked   acked

	*leader
	leases *activeLeases
	limits *topicLimits
	out    *outcomes
	pulls  *pulledTopics
	series *seriesTimes
	topics *topicQueues
}

func newConsumerLeases(s *Scheduler, last acked) consumerLeases {
	return consumerLeases{
		byTimer: map[timer.Handle]*consumerLease{}, acked: last, leader: &s.leader,
		leases: &s.Leases, limits: &s.limits, out: &s.Outcomes, pulls: &s.Pulls, series: &s.series, topics: &s.topics,
	}
}

func msOf(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// hold counts a lease until end, which replaces an earlier end.
func (cl *consumerLeases) hold(h timer.Handle, d *table.Due, end time.Duration) {
	if c := cl.limits.carried.byTimer[h]; c != nil && c.seq == d.Seq {
		c.until, c.fence = end, d.Fence
	}
	v := cl.byTimer[h]
	if v == nil {
		v = &consumerLease{handle: h, seq: d.Seq, fence: d.Fence, end: end}
		cl.byTimer[h] = v
		cl.ends.Push(v)
		return
	}
	v.seq, v.fence, v.end = d.Seq, d.Fence, end
	cl.ends.Fix(v)
}

// drop stops counting a lease.
func (cl *consumerLeases) drop(h timer.Handle) {
	if v := cl.byTimer[h]; v != nil {
		delete(cl.byTimer, h)
		cl.ends.Remove(v)
	}
}

// handOn keeps a lease counted at its limits when its receiver has accepted the timer: the
// active lease ends, the receiver's lasts.
func (al *activeLeases) handOn(f *activeLease) {
	if d := al.table.Due(f.handle); f.limits != (counted{}) && d.Seq == f.seq && d.State == timer.Leased && d.Holder != table.ByCall {
		al.limits.carry(&carriedLease{handle: f.handle, seq: f.seq, limits: f.limits})
		f.limits = counted{}
	}
}

// holdsUntil returns the monotonic end of a lease. One that this leader did not see begin counts in
// full from the takeover.
func (cl *consumerLeases) holdsUntil(h timer.Handle, d *table.Due) time.Duration {
	if v := cl.byTimer[h]; v != nil && v.seq == d.Seq && v.fence == d.Fence {
		return v.end
	}
	return cl.since + msOf(d.LeaseMs)
}

// applied handles a lease that was just given, extended or ended. A consumer's lease counts from
// now.
func (cl *consumerLeases) applied(h timer.Handle) {
	if !cl.active {
		return
	}
	d := cl.table.Due(h)
	q := cl.topics.byID[d.Topic]
	if d.State == timer.Leased && d.Holder != table.ByCall {
		cl.hold(h, &d, cl.now.Mono+msOf(d.LeaseMs))
		if q != nil {
			cl.limits.countCarried(q, h, &d)
		}
		return
	}
	cl.drop(h)
	if q != nil && q.fullUntil > 0 {
		q.fullUntil = 0
		cl.pulls.markReady(q)
		cl.env.WakeNext()
	}
}

// expire expires consumers' leases, at most LeaseBudget a turn.
func (cl *consumerLeases) expire() {
	mono := cl.now.Mono
	for n := 0; cl.ends.Len() > 0 && cl.ends.First().end <= mono; n++ {
		if n == LeaseBudget {
			cl.env.WakeNext()
			return
		}
		v := cl.ends.First()
		d := cl.table.Due(v.handle)
		if d.State != timer.Leased || d.Fence != v.fence || d.Holder == table.ByCall {
			cl.drop(v.handle)
			continue
		}
		cl.expireOne(v.handle, &d)
	}
}

// expireOne ends the attempt of an expired lease. If the log does not take the outcome,
// inheritedLeases.scan finds the lease again.
func (cl *consumerLeases) expireOne(h timer.Handle, d *table.Due) {
	if !cl.out.CanJudge(h, d) {
		cl.hold(h, d, cl.now.Mono+unknownWait)
		return
	}
	cl.drop(h)
	now := cl.now.WallMs
	out := cl.out.judge(h, d, &delivery.Outcome{Err: LeaseExpired, StartedMs: d.FiredMs, EndedMs: now}, cl.random.Float64())
	if out.Kind == table.RetryLater && d.Holder == table.ByPuller {
		out.NextMs = cl.out.notBeforeDue(h, now) // no backoff: the next pull may take it
	}
	out.Status, out.ByConsumer = d.Status, true
	cl.out.add(out, nil)
}

// endWakeMs returns when the first consumer's lease expires, in wall-clock ms.
func (cl *consumerLeases) endWakeMs() int64 {
	if cl.ends.Len() == 0 {
		return 1<<63 - 1
	}
	return cl.now.WallMs + (cl.ends.First().end - cl.now.Mono + time.Millisecond - 1).Milliseconds()
}

// Updated handles an applied lease update.
func (cl *consumerLeases) Updated(cmd *timer.Command) {
	cl.applied(cmd.Claim.Handle)
	if cmd.Kind == timer.AckLease {
		cl.acked.add(cmd.Claim.Fence)
	}
}

// Updatable reports that a lease update names the lease that the table has, and that its holder may
// make it: a consumer, or a receiver that reports.
func (cl *consumerLeases) Updatable(cmd *timer.Command, d *table.Due) bool {
	c := cmd.Claim
	return cl.table.Live(c.Handle, c.Seq) && d.State == timer.Leased && d.Fence == c.Fence && d.Topic == cmd.Topic &&
		(cmd.Kind != timer.ReturnLease || d.Holder == table.ByPuller) && (d.Holder != table.ByCall || cl.mayReport(c.Handle, d))
}

// mayReport reports whether the receiver of a call without an outcome may have a receipt. Its 202
// may be on its way, or was lost with a former leader.
func (cl *consumerLeases) mayReport(h timer.Handle, d *table.Due) bool {
	if t := cl.topic(d.Topic); t == nil || !t.Policy.Report {
		return false
	}
	f := cl.leases.calling(h, d)
	return f == nil || f.called
}

// calling returns this leader's active lease behind the table's lease; nil if a former leader took
// it.
func (al *activeLeases) calling(h timer.Handle, d *table.Due) *activeLease {
	if f := al.byTimer[h]; f != nil && f.seq == d.Seq && f.fence == d.Fence {
		return f
	}
	return nil
}

// AwaitAnswer makes a lease update wait until its call has an outcome, and reports false if no call
// of this leader runs. An ack need not wait: the work is done, however the call ends.
func (cl *consumerLeases) AwaitAnswer(o ClientChange, h timer.Handle, d *table.Due) bool {
	f := cl.leases.calling(h, d)
	if f == nil {
		return false
	}
	cl.leases.await(f, o)
	return true
}

// Decide returns the outcome of a lease update.
func (cl *consumerLeases) Decide(cmd *timer.Command, d *table.Due) table.Outcome {
	c, now := cmd.Claim, cl.now.WallMs
	fired, status := d.FiredMs, d.Status
	if d.Holder == table.ByCall { // d's values are the previous attempt's
		fired, status = now, 0
		if f := cl.leases.calling(c.Handle, d); f != nil {
			fired = f.firedMs
		}
	}
	a := delivery.Outcome{StartedMs: fired, EndedMs: now}
	out := table.Outcome{Handle: c.Handle, Seq: c.Seq, Fence: c.Fence, StartedMs: fired, EndedMs: now}
	switch cmd.Kind {
	case timer.AckLease:
		out.Kind, out.AgainMs = table.Ack, cl.series.again(c.Handle, fired)
	case timer.ExtendLease:
		if out.Kind, out.LeaseMs = table.Extended, c.LeaseMs; d.Holder == table.ByCall {
			out.Kind = table.Accepted // stands for the 202 that was lost with a former leader
		}
		if out.LeaseMs == 0 {
			out.LeaseMs = cl.LeaseMs(d.Topic)
		}
	case timer.ReturnLease:
		out.Kind = table.Release
	default:
		a.Err = c.Reason
		if a.Err == "" {
			a.Err = "nack"
		}
		out = cl.out.judge(c.Handle, d, &a, cl.random.Float64())
		if out.Kind == table.RetryLater && c.HasDelay {
			out.NextMs = cl.out.notBeforeDue(c.Handle, now+c.DelayMs)
		}
	}
	out.Status, out.ByConsumer = status, true
	if out.Kind == table.Extended { // it must not expire before the extension is applied
		cl.hold(c.Handle, d, max(cl.holdsUntil(c.Handle, d), cl.now.Mono+msOf(out.LeaseMs)))
	}
	return out
}

// LeaseOver returns the answer to an update of a lease that is over. A repeated ack of the same
// lease is OK. The table knows that of timers that ended lately. If the id has a newer timer, as in
// a series, only the leader that took the first ack knows.
func (cl *consumerLeases) LeaseOver(cmd *timer.Command, r timer.Result) timer.Result {
	c := cmd.Claim
	if r.Code == timer.Skipped && cmd.Kind == timer.AckLease {
		d := cl.table.Due(c.Handle)
		if cl.table.Live(c.Handle, c.Seq) && d.State == timer.Done && d.Fence == c.Fence || cl.acked.has(c.Fence) {
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

func (a *acked) clone() acked {
	return acked{last: slices.Clone(a.last), next: a.next, set: maps.Clone(a.set)}
}

func (a *acked) has(fence uint64) bool {
	_, ok := a.set[fence]
	return ok
}
