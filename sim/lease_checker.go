package sim

import (
	"time"

	"carillon/timer"
)

// leaseChecker is what is known of the leases that consumers have: by a pull, or since a receiver said that it reports later. Its rules:
//
//   - fences grow from lease to lease, and what was acked is never handed out again;
//   - what a consumer surely holds, by its lease and by each extension that was answered, nobody else is given;
//   - a receipt of a lease after which another was given is refused; one of the lease that is surely held is not.
type leaseChecker struct {
	timers map[timerKey]*lease
	names  []timerKey // in order
}

// lease is the last one of a timer.
type lease struct {
	id    string
	topic timer.TopicID
	fence uint64
	asked time.Duration   // when a consumer did
	until time.Duration   // it is surely held so long, unless ended
	ended bool            // something that ends it was said
	said  map[uint64]bool // fences of acks that were sent
	acked bool
}

// clockSlack is by how much a lease may be shorter than it seems, as clocks drift.
const clockSlack = 10 * time.Millisecond

func (b *leaseChecker) lease(k timerKey) *lease {
	l := b.timers[k]
	if l == nil {
		l = &lease{said: map[uint64]bool{}}
		b.timers[k] = l
		b.names = append(b.names, k)
	}
	return l
}

// holds says whether a consumer surely has the timer.
func (l *lease) holds(now time.Duration) bool { return !l.ended && now < l.until-clockSlack }

// handed notes that a timer is given to a consumer, surely until then; 0: nobody knows for how long.
func (b *leaseChecker) handed(n *node, k timerKey, fence uint64, id string, until time.Duration) {
	w, l := n.w, b.lease(k)
	w.checker.attempts.begun(n, k, fence, id)
	switch {
	case l.acked:
		w.violate("pull", "node %d hands out %s (number %d of shard %d) under fence %d, which was acked under fence %d", n.id, id, k.seq, k.shard, fence, l.fence)
	case fence <= l.fence:
		w.violate("I3", "node %d hands out %s under fence %d after fence %d", n.id, id, fence, l.fence)
	case l.holds(w.now):
		w.violate("pull", "node %d hands out %s under fence %d, which a consumer has under fence %d for %s more", n.id, id, fence, l.fence, l.until-w.now)
	}
	l.id, l.fence, l.ended, l.until = id, fence, false, until
}

// called notes that something is said of a lease.
func (b *leaseChecker) called(o *operation) {
	l, fence := b.lease(timerKey{o.shard, o.cmd.Claim.Seq}), o.cmd.Claim.Fence
	o.stale = fence < l.fence
	if o.cmd.Kind == timer.ExtendLease {
		return
	}
	if fence == l.fence {
		l.ended = true
	}
	o.again = l.said[fence]
	if o.cmd.Kind == timer.AckLease {
		l.said[fence] = true
		o.client.w.checker.features.acked(idKey{o.topic, o.id})
	}
}

// answered notes what came of it.
func (b *leaseChecker) answered(w *World, o *operation, r timer.Result) {
	c := o.cmd.Claim
	l := b.lease(timerKey{o.shard, c.Seq})
	w.counts.Claims++
	if r.Code != timer.OK {
		if o.cmd.Kind == timer.ExtendLease && c.Fence == l.fence && l.holds(w.now) {
			w.violate("pull", "a consumer has %s under fence %d for %s more, and its lease is not prolonged", l.id, c.Fence, l.until-w.now)
		}
		if o.cmd.Kind != timer.ExtendLease && o.sure && !o.again && w.now < l.until-clockSlack && c.Fence == l.fence {
			w.violate("pull", "a consumer has %s under fence %d for %s more, and its receipt is refused", l.id, c.Fence, l.until-w.now)
		}
		return
	}
	if o.stale && !(o.cmd.Kind == timer.AckLease && o.again) {
		w.violate("pull", "a receipt of %s under fence %d is taken (kind %d), fence %d was given before", l.id, c.Fence, o.cmd.Kind, l.fence)
	}
	switch o.cmd.Kind {
	case timer.AckLease:
		l.acked = true
	case timer.ExtendLease:
		if c.Fence == l.fence {
			l.until = max(l.until, o.began+msOf(c.LeaseMs))
		}
	}
}

func msOf(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// held is how many timers of a topic consumers surely have, and when the first of these was asked for.
func (b *leaseChecker) held(topic timer.TopicID, now time.Duration) (n int, first time.Duration) {
	first = now
	for _, k := range b.names {
		if l := b.timers[k]; l.topic == topic && l.holds(now) {
			n++
			first = min(first, l.asked)
		}
	}
	return n, first
}

// checkEnd holds what is over against what was acked: a timer that is pulled is done only by an ack.
func (b *leaseChecker) checkEnd(w *World) {
	for _, k := range b.names {
		l := b.timers[k]
		leader := w.leader(k.shard)
		table := leader.host.Table(k.shard)
		now := table.Read(l.topic, l.id)
		if l.topic != pullTopic || now == nil || now.Seq != k.seq {
			continue
		}
		switch {
		case now.State == timer.Done && len(l.said) == 0:
			w.violate("pull", "%s is done, and nobody acked it", l.id)
		case now.State != timer.Done && l.acked:
			w.violate("pull", "%s was acked, and is in state %d", l.id, now.State)
		}
	}
}

// acked notes that a consumer asked to end a timer, so it had it.
func (f *featureChecker) acked(k idKey) {
	n := f.ids[k]
	if n == nil || n.first == nil {
		return
	}
	if n.first.over == nil {
		n.first.over = map[int64]bool{}
	}
	n.first.over[n.first.dueMs] = true
}

// fetched checks a timer that a pull has brought, as a call is checked.
func (f *featureChecker) fetched(n *node, t *timer.PulledTimer) {
	w, timer := n.w, t.Timer
	known := f.ids[idKey{timer.Topic, timer.ID}]
	if known == nil || known.writes[string(timer.Payload)] == nil || !known.mayBeDue(n.w, t.Shard, known.writes[string(timer.Payload)], timer.DueMs) {
		w.violate("I2", "node %d hands out %s of %s due at %d, which nobody wrote so", n.id, timer.Payload, timer.ID, timer.DueMs)
	}
	if timer.FiredMs < timer.DueMs { // not the clock now: it may have been set back since the lease was asked for
		w.violate("I4", "node %d hands out %s %d ms early", n.id, timer.ID, timer.DueMs-timer.FiredMs)
	}
	if known.life(timer.Seq).prevented {
		w.violate("I5", "node %d hands out %s after its cancel was answered `prevented`", n.id, timer.ID)
	}
}
