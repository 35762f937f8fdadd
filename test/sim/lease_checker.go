package sim

import (
	"time"

	"carillon/timer"
)

// leaseChecker checks consumers' leases, from pulls and from receivers that report later. Its
// rules:
//
//   - fences grow from lease to lease, and an acked timer is never leased again;
//   - while a consumer surely holds a timer, by its lease and each acknowledged extension, nobody
//     else gets it;
//   - a receipt is refused once its timer was leased again, and accepted while its lease is surely
//     held.
type leaseChecker struct {
	timers map[timerKey]*lease
	names  []timerKey // keys of timers, in order of their first lease
}

// lease is the last lease of a timer.
type lease struct {
	id    string
	topic timer.TopicID
	fence uint64
	asked time.Duration   // when the consumer asked for it
	until time.Duration   // it is surely held until then, unless ended
	ended bool            // a request that ends it was sent
	said  map[uint64]bool // fences of acks that were sent
	acked bool
}

// clockSlack is by how much clock drift may shorten a lease.
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

// holds reports whether a consumer surely holds the timer.
func (l *lease) holds(now time.Duration) bool { return !l.ended && now < l.until-clockSlack }

// handed records a new lease that surely lasts until a time; 0: it may end at any time.
func (b *leaseChecker) handed(n *node, k timerKey, fence uint64, id string, until time.Duration) {
	w, l := n.w, b.lease(k)
	w.checker.attempts.begun(n, k, fence, id)
	switch {
	case l.acked:
		w.violate("pull", "node %d hands out %s (number %d of shard %d) under fence %d, which was acked under fence %d", n.id, id, k.seq, k.shard, fence, l.fence)
	case fence <= l.fence:
		w.violate("I3", "node %d hands out %s under fence %d after fence %d", n.id, id, fence, l.fence)
	case l.holds(w.now):
		w.violate("pull", "node %d hands out %s under fence %d, but a consumer holds it under fence %d for another %s", n.id, id, fence, l.fence, l.until-w.now)
	}
	l.id, l.fence, l.ended, l.until = id, fence, false, until
}

// called records a request about a lease.
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

// answered checks the answer to it.
func (b *leaseChecker) answered(w *World, o *operation, r timer.Result) {
	c := o.cmd.Claim
	l := b.lease(timerKey{o.shard, c.Seq})
	w.counts.Claims++
	if r.Code != timer.OK {
		if o.cmd.Kind == timer.ExtendLease && c.Fence == l.fence && l.holds(w.now) {
			w.violate("pull", "a consumer holds %s under fence %d for another %s, but its extension is refused", l.id, c.Fence, l.until-w.now)
		}
		if o.cmd.Kind != timer.ExtendLease && o.sure && !o.again && w.now < l.until-clockSlack && c.Fence == l.fence {
			w.violate("pull", "a consumer holds %s under fence %d for another %s, but its receipt is refused", l.id, c.Fence, l.until-w.now)
		}
		return
	}
	if o.stale && !(o.cmd.Kind == timer.AckLease && o.again) {
		w.violate("pull", "a receipt of %s under fence %d is accepted (kind %d), but fence %d was leased before", l.id, c.Fence, o.cmd.Kind, l.fence)
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

// held is how many timers of a topic consumers surely hold, and when the first of them was
// requested.
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

// checkEnd compares finished timers with acks: a pulled timer is done only by an ack.
func (b *leaseChecker) checkEnd(w *World) {
	for _, k := range b.names {
		l := b.timers[k]
		if l.topic != pullTopic {
			continue
		}
		at := w.holder(l.topic, l.id)
		now := w.leader(at).host.Table(at).Read(l.topic, l.id)
		if now == nil || keyOf(at, now) != k {
			continue
		}
		switch {
		case now.State == timer.Done && len(l.said) == 0:
			w.violate("pull", "%s is done, but no consumer acked it", l.id)
		case now.State != timer.Done && l.acked:
			w.violate("pull", "%s was acked, but is in state %d", l.id, now.State)
		}
	}
}

// acked records that a consumer asked to end a timer, so the consumer had it.
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

// fetched checks a pulled timer as started checks a call.
func (f *featureChecker) fetched(n *node, t *timer.PulledTimer) {
	w, timer := n.w, t.Timer
	known := f.ids[idKey{timer.Topic, timer.ID}]
	if known == nil || known.writes[string(timer.Payload)] == nil || !known.mayBeDue(n.w, t.Shard, known.writes[string(timer.Payload)], timer.DueMs) {
		w.violate("I2", "node %d hands out %s of %s due at %d, which no client wrote", n.id, timer.Payload, timer.ID, timer.DueMs)
	}
	// not the clock now: it may have been set back since the lease was requested
	if timer.FiredMs < timer.DueMs && (timer.AskedMs == 0 || timer.FiredMs < timer.AskedMs) {
		w.violate("I4", "node %d hands out %s %d ms early", n.id, timer.ID, timer.DueMs-timer.FiredMs)
	}
	if known.life(timer.Seq).prevented {
		w.violate("I5", "node %d hands out %s after its cancel was answered `prevented`", n.id, timer.ID)
	}
}
