package shard

import (
	"time"

	"carillon/timer"
)

// Holder says who ends a lease. The values are part of the snapshot format.
type Holder uint8

const (
	byCall   Holder = iota // a call of the leader that took it
	byPuller               // who pulled it
	byReport               // the receiver, which answered 202
)

// Why a lease of a consumer ended without a word: the timer's last error.
const leaseExpired = "the lease ran out before an ack or a nack"

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
func (l *scheduler) hold(h timer.Handle, d *Due, end time.Duration) {
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

// handOn leaves an active lease's place at its topic's limit with the receiver, if that has accepted the timer.
func (l *scheduler) handOn(f *activeLease) {
	if d := l.table.Due(f.handle); f.limit != nil && d.Seq == f.seq && d.State == timer.Leased && d.Holder != byCall {
		l.limits.carried[f.handle] = carriedLease{seq: f.seq, limit: f.limit}
		f.limit = nil
	}
}

// holdsUntil is the end of a lease as it is counted; one that this leader did not see begin is counted from the takeover on, in full.
func (l *scheduler) holdsUntil(h timer.Handle, d *Due) time.Duration {
	if v, ok := l.consumers.leases[h]; ok && v.seq == d.Seq && v.fence == d.Fence {
		return v.end
	}
	return l.since + msOf(d.LeaseMs)
}

// applied is told of a timer whose lease was given, prolonged or ended just now: one that a consumer has is counted from here on.
func (l *scheduler) applied(h timer.Handle) {
	if !l.active {
		return
	}
	d := l.table.Due(h)
	q := l.due.topics[d.Topic]
	if d.State == timer.Leased && d.Holder != byCall {
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
		l.env.wakeNext()
	}
}

// expireLeases ends what consumers have held for long enough.
func (l *scheduler) expireLeases() {
	mono := l.now.Mono
	for n := 0; l.consumers.ends.len() > 0 && l.consumers.ends.top().end <= mono; n++ {
		if n == leaseBudget {
			l.env.wakeNext()
			return
		}
		e := l.consumers.ends.pop()
		if v, ok := l.consumers.leases[e.handle]; !ok || v.fence != e.fence || v.end != e.end {
			continue
		}
		d := l.table.Due(e.handle)
		if d.State != timer.Leased || d.Fence != e.fence || d.Holder == byCall {
			delete(l.consumers.leases, e.handle)
			continue
		}
		l.expireConsumerLease(e.handle, &d)
	}
}

// expireConsumerLease ends a consumer's attempt. Should the log not take that, the scan for inherited leases finds it again.
func (l *scheduler) expireConsumerLease(h timer.Handle, d *Due) {
	delete(l.consumers.leases, h)
	now := l.now.WallMs
	out := l.judge(h, d, &Attempt{Err: leaseExpired, StartedMs: d.FiredMs, EndedMs: now}, l.random.Float64())
	if out.Kind == RetryLater && d.Holder == byPuller {
		out.NextMs = l.notBeforeDue(h, now) // whoever pulls next may have it
	}
	out.Status, out.ByConsumer = d.Status, true
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, nil})
}

// endWakeMs is when the first consumer's lease ends, in wall ms.
func (l *scheduler) endWakeMs() int64 {
	if l.consumers.ends.len() == 0 {
		return 1<<63 - 1
	}
	return l.now.WallMs + (l.consumers.ends.top().end - l.now.Mono + time.Millisecond - 1).Milliseconds()
}

// updated is told that a consumer's update of its lease was applied.
func (l *scheduler) updated(cmd *timer.Command) {
	l.applied(cmd.Claim.Handle)
	if cmd.Kind == timer.AckLease {
		l.consumers.acked.add(cmd.Claim.Fence)
	}
}
