package shard

import (
	"encoding/binary"

	"carillon/timer"
)

const leaseUpdateHasDelay = 1 // a flag of a claim

func appendLeaseUpdate(dst []byte, c *timer.LeaseUpdate) []byte {
	var flags byte
	if c.HasDelay {
		flags |= leaseUpdateHasDelay
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(c.Handle))
	dst = binary.AppendUvarint(dst, c.Seq)
	dst = binary.AppendUvarint(dst, c.Fence)
	dst = binary.AppendVarint(dst, c.LeaseMs)
	dst = binary.AppendVarint(dst, c.DelayMs)
	return appendBlock(dst, cut(c.Reason, maxErr))
}

func decodeLeaseUpdate(b []byte) (*timer.LeaseUpdate, error) {
	r := reader{b: b}
	c := new(timer.LeaseUpdate)
	flags := r.byte()
	if flags&^leaseUpdateHasDelay != 0 {
		r.fail("unknown flags of a claim")
	}
	c.HasDelay = flags&leaseUpdateHasDelay != 0
	c.Handle = timer.Handle(r.number(1<<32-1, "handle"))
	c.Seq, c.Fence = r.uvarint(), r.uvarint()
	if c.LeaseMs, c.DelayMs = r.varint(), r.varint(); min(c.LeaseMs, c.DelayMs) < 0 || max(c.LeaseMs, c.DelayMs) > timer.MaxMs {
		r.fail("span of a claim out of range")
	}
	c.Reason = string(r.block(maxErr, "reason"))
	return c, r.close()
}

// proposeLeaseUpdate decides what a claim comes to, and has it logged. A claim on a lease that is over is answered at once: what is
// applied is committed, so that can change no more. But one on a lease that this replica has not seen yet may be good: who was stopped
// for a while may not know that another leads, and has given it.
func (g *group) proposeLeaseUpdate(o *op) {
	c := o.cmd.Claim
	d := g.table.Due(c.Handle)
	early := d.Holder == byCall
	if !g.scheduler.updatable(o.cmd, &d) {
		if c.Fence > g.table.fence {
			g.confirmLeaseUpdate(o)
			return
		}
		o.answer(g.scheduler.leaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		return
	}
	if early && o.cmd.Kind != timer.AckLease && g.scheduler.awaitAnswer(o, &d) {
		return
	}
	if !g.scheduler.hasZone(c.Handle, &d) {
		o.answer(timer.Result{}, timer.ErrOverloaded) // it is good, and can be decided in a moment
		return
	}
	out := g.scheduler.decideLeaseUpdate(o.cmd, &d)
	o.proposed, o.outcome = true, &out
	g.batch.Outcome(&out)
	g.items = append(g.items, item{kind: commandItem, op: o})
}

// updatable reports that a claim is about the lease that the table has, and that it is a consumer's or a receiver's that reports.
func (l *scheduler) updatable(cmd *timer.Command, d *Due) bool {
	c := cmd.Claim
	return l.table.Live(c.Handle, c.Seq) && d.State == timer.Leased && d.Fence == c.Fence && d.Topic == cmd.Topic &&
		(cmd.Kind != timer.ReturnLease || d.Holder == byPuller) && (d.Holder != byCall || l.reports(c.Handle, d))
}

// reports says whether the receiver of a call that has no outcome yet may have a receipt: its 202 may be on its way, or was lost with
// a former leader.
func (l *scheduler) reports(h timer.Handle, d *Due) bool {
	if t := l.topic(d.Topic); t == nil || !t.Policy.Report {
		return false
	}
	f := l.calling(h, d)
	return f == nil || f.called
}

// calling is this leader's active lease of the lease that the table has; nil: another led when it was taken.
func (l *scheduler) calling(h timer.Handle, d *Due) *activeLease {
	if f := l.leases.byTimer[h]; f != nil && f.seq == d.Seq && f.fence == d.Fence {
		return f
	}
	return nil
}

// awaitAnswer has a claim wait until the call that it is about has its outcome. An ack needs none: the work is done, whatever comes.
func (l *scheduler) awaitAnswer(o *op, d *Due) bool {
	f := l.calling(o.cmd.Claim.Handle, d)
	if f == nil {
		return false
	}
	l.await(f, o)
	return true
}

// confirmLeaseUpdate answers a claim once a majority has said that this node leads, and it has all that was committed until then.
func (g *group) confirmLeaseUpdate(o *op) {
	g.confirm(o.deadline, func(err error) {
		d := g.table.Due(o.cmd.Claim.Handle)
		switch {
		case err != nil:
			o.answer(timer.Result{}, err)
		case g.scheduler.updatable(o.cmd, &d):
			g.waiting = append(g.waiting, o)
			g.w.touchNext(g)
		default:
			o.answer(g.scheduler.leaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		}
	})
	g.w.touch(g)
}

// decideLeaseUpdate makes the outcome of a claim.
func (l *scheduler) decideLeaseUpdate(cmd *timer.Command, d *Due) Outcome {
	c, now := cmd.Claim, l.now.WallMs
	fired, status := d.FiredMs, d.Status
	if d.Holder == byCall { // those are of the attempt before
		fired, status = now, 0
		if f := l.calling(c.Handle, d); f != nil {
			fired = f.firedMs
		}
	}
	a := Attempt{StartedMs: fired, EndedMs: now}
	out := Outcome{Handle: c.Handle, Seq: c.Seq, Fence: c.Fence, StartedMs: fired, EndedMs: now}
	switch cmd.Kind {
	case timer.AckLease:
		out.Kind, out.AgainMs = Ack, l.again(c.Handle, fired)
	case timer.ExtendLease:
		if out.Kind, out.LeaseMs = Extended, c.LeaseMs; d.Holder == byCall {
			out.Kind = Accepted // that leader heard no answer any more
		}
		if out.LeaseMs == 0 {
			out.LeaseMs = l.leaseMs(d.Topic)
		}
	case timer.ReturnLease:
		out.Kind = Release
	default:
		a.Err = c.Reason
		if a.Err == "" {
			a.Err = "nack"
		}
		out = l.judge(c.Handle, d, &a, l.random.Float64())
		if out.Kind == RetryLater && c.HasDelay {
			out.NextMs = l.notBeforeDue(c.Handle, now+c.DelayMs)
		}
	}
	out.Status, out.ByConsumer = status, true
	if out.Kind == Extended { // it is not to expire while this is on its way
		l.hold(c.Handle, d, max(l.holdsUntil(c.Handle, d), l.now.Mono+msOf(out.LeaseMs)))
	}
	return out
}

// leaseMs is how long a consumer holds a timer of the topic that does not ask for something else.
func (l *scheduler) leaseMs(id timer.TopicID) int64 {
	if t := l.topic(id); t != nil {
		return t.Policy.LeaseFor()
	}
	return timer.DefaultLeaseMs
}

// settleLeaseUpdate answers a claim whose outcome was applied.
func (g *group) settleLeaseUpdate(o *op, r *timer.Result) {
	if r.Code == timer.OK {
		g.scheduler.updated(o.cmd)
		g.w.fired(o.cmd.Topic, o.outcome)
	}
	o.answer(g.scheduler.leaseOver(o.cmd, *r), nil)
}

// leaseOver is what a claim is answered: an ack of a timer that this very lease delivered is as good as the first. The table says so of timers
// that ended lately; of those whose id has another timer since, as one that repeats has, only the leader that took the first ack can.
func (l *scheduler) leaseOver(cmd *timer.Command, r timer.Result) timer.Result {
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
