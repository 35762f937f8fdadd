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
const leaseRanOut = "the lease ran out before an ack or a nack"

// holding is a consumer's lease as this leader counts it.
type holding struct {
	seq   uint64
	fence uint64
	end   time.Duration // monotonic
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
func (l *lead) hold(h timer.Handle, d *Due, end time.Duration) {
	if l.holdings[h] == (holding{d.Seq, d.Fence, end}) {
		return
	}
	l.holdings[h] = holding{d.Seq, d.Fence, end}
	l.ends.push(leaseEnd{end, d.Fence, h})
	if l.ends.len() > 2*len(l.holdings)+512 { // those that ended early are most of them
		l.ends.filter(func(e leaseEnd) bool {
			v, ok := l.holdings[e.handle]
			return ok && v.fence == e.fence && v.end == e.end
		})
	}
}

// handOn leaves a flight's place at its topic's limit with the receiver, if that has accepted the timer.
func (l *lead) handOn(f *flight) {
	if d := l.group.table.Due(f.handle); f.limit != nil && d.Seq == f.seq && d.State == timer.Leased && d.Holder != byCall {
		l.foreign[f.handle] = foreignLease{seq: f.seq, limit: f.limit}
		f.limit = nil
	}
}

// holdsUntil is the end of a lease as it is counted; one that this leader did not see begin is counted from the takeover on, in full.
func (l *lead) holdsUntil(h timer.Handle, d *Due) time.Duration {
	if v, ok := l.holdings[h]; ok && v.seq == d.Seq && v.fence == d.Fence {
		return v.end
	}
	return l.since + msOf(d.LeaseMs)
}

// applied is told of a timer whose lease was given, prolonged or ended just now: one that a consumer has is counted from here on.
func (l *lead) applied(h timer.Handle) {
	if !l.active {
		return
	}
	d := l.group.table.Due(h)
	q := l.topics[d.Topic]
	if d.State == timer.Leased && d.Holder != byCall {
		l.hold(h, &d, l.group.w.mono+msOf(d.LeaseMs))
		if q != nil {
			l.countForeign(q, h, &d)
		}
		return
	}
	delete(l.holdings, h)
	if q != nil && q.fullUntil > 0 {
		q.fullUntil = 0
		l.stir(q)
		l.group.w.touchNext(l.group)
	}
}

// expireLeases ends what consumers have held for long enough.
func (l *lead) expireLeases() {
	mono := l.group.w.mono
	for n := 0; l.ends.len() > 0 && l.ends.top().end <= mono; n++ {
		if n == leaseBudget {
			l.group.w.touchNext(l.group)
			return
		}
		e := l.ends.pop()
		if v, ok := l.holdings[e.handle]; !ok || v.fence != e.fence || v.end != e.end {
			continue
		}
		d := l.group.table.Due(e.handle)
		if d.State != timer.Leased || d.Fence != e.fence || d.Holder == byCall {
			delete(l.holdings, e.handle)
			continue
		}
		l.ranOut(e.handle, &d)
	}
}

// ranOut ends a consumer's attempt. Should the log not take that, the scan for orphans finds it again.
func (l *lead) ranOut(h timer.Handle, d *Due) {
	delete(l.holdings, h)
	now := l.group.w.nowMs
	out := l.judge(h, d, &Attempt{Err: leaseRanOut, StartedMs: d.FiredMs, EndedMs: now}, l.random.Float64())
	if out.Kind == RetryLater && d.Holder == byPuller {
		out.NextMs = l.notBeforeDue(h, now) // whoever pulls next may have it
	}
	out.Status, out.ByConsumer = d.Status, true
	l.outcomes = append(l.outcomes, outcomeItem{out, nil})
}

// endWakeMs is when the first consumer's lease ends, in wall ms.
func (l *lead) endWakeMs() int64 {
	if l.ends.len() == 0 {
		return 1<<63 - 1
	}
	return l.group.w.nowMs + (l.ends.top().end - l.group.w.mono + time.Millisecond - 1).Milliseconds()
}
