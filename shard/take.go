package shard

import (
	"context"
	"time"

	"carillon/timer"
)

// takeBytes is where the answer to one take from one shard is full.
const takeBytes = 8 << 20

// Share says how many timers to take from a shard.
type Share struct {
	Shard  timer.ShardID
	Timers int
}

// Taken is a timer that a consumer has from now on. Its Fence and Handle name the lease.
type Taken struct {
	Shard   timer.ShardID
	Handle  timer.Handle
	UntilMs int64 // end of the lease, by the leader's clock
	Timer   *timer.Timer
}

// take is one consumer's wish of one shard, on its way through a worker. It is answered with what was there, possibly nothing, once
// the leases are on disk.
type take struct {
	group    *group
	topic    timer.TopicID
	most     int
	leaseMs  int64 // 0: the topic's
	deadline time.Duration

	asked   []timer.Handle // whose leases are proposed, in order
	pending int            // of them not applied
	untilMs int64
	until   time.Duration // untilMs on the clock of leases
	taken   []Taken
	err     error
	wait    *waiter // nil once answered
}

// takeList is what one client call takes from one worker.
type takeList []*take

func (l takeList) handle(w *worker) {
	for _, t := range l {
		if t.group.elsewhere() {
			t.answer(t.group.notLeader())
			continue
		}
		t.group.takes = append(t.group.takes, t)
		w.touch(t.group)
	}
}

func (t *take) answer(err error) {
	if t.wait == nil {
		return
	}
	t.err = err
	w := t.wait
	t.wait = nil
	w.done()
}

// proposeTakes leases what consumers ask for, in the order in which they came.
func (g *group) proposeTakes() {
	if g.lead.doubted {
		return // they wait until it is known that this node leads
	}
	var keep []*take
	for i, t := range g.takes {
		if g.batch.Size() >= maxBatchBytes || !g.lead.takeFor(t) {
			keep = append(keep, t)
		}
		g.takes[i] = nil
	}
	if g.takes = keep; len(keep) > 0 {
		g.w.touchNext(g)
	}
}

// takeFor proposes leases for one consumer; false: it cannot be said yet what goes first.
func (l *lead) takeFor(t *take) bool {
	g := l.group
	lasts := t.leaseMs
	if lasts == 0 {
		lasts = l.leaseMs(t.topic)
	}
	t.untilMs, t.until = g.w.nowMs+lasts, g.w.lease+time.Duration(lasts)*time.Millisecond
	if q := l.topics[t.topic]; q != nil && l.mayOffer(q) {
		if q.keys != nil && (!l.caughtUp || len(q.moving) > 0 || len(l.sifting) > 0) || l.gateScan && (q.keys != nil || q.place != nil) {
			return false
		}
		for size := 0; len(t.asked) < t.most && size < takeBytes; {
			e, ok := l.nextFor(q)
			if !ok {
				break
			}
			l.occupy(q, e)
			g.batch.Pull(lasts, e.handle, e.seq, e.rev)
			g.items = append(g.items, item{kind: takeItem, take: t})
			t.asked = append(t.asked, e.handle)
			size += g.table.copySize(e.handle, true)
		}
		l.rest(q) // nobody may ever come for what it was lent
		if q.ready() > 0 {
			l.stir(q)
		}
	}
	if t.pending = len(t.asked); t.pending == 0 {
		t.answer(nil)
	}
	return true
}

// nextFor takes the first timer of a pulled topic that may go out of its lane.
func (l *lead) nextFor(q *topicQueue) (e entry, ok bool) {
	for budget := popBudget; budget > 0; budget-- {
		n := q.next(l.group.w.mono)
		if n == nil {
			return e, false
		}
		switch e = n.head(); {
		case !l.stands(e) || q.keys != nil && !l.mayGo(q, e):
			n.pop()
			l.review(e.handle)
		case q.resumedMs-e.dueMs > missedAfterMs && l.missed(e):
			n.pop()
			l.group.w.touchNext(l.group)
		case e.dueMs > l.group.w.nowMs: // the clock stepped back
			n.pop()
			l.exact.push(e)
		case q.place != nil && !l.admit(n):
			q.fullUntil = l.group.w.mono + limitPoll
			return e, false
		default:
			n.pop()
			return e, true
		}
	}
	return e, false
}

// occupy counts a lease that is being proposed for a consumer: it has its key, and its share of the limit. What becomes of it, review sees.
func (l *lead) occupy(q *topicQueue, e entry) {
	l.taking[e.handle] = e.seq
	if q.keys != nil {
		k := l.claims[e.handle].key
		l.vacate(k)
		k.leased++
		k.holder = e.handle
		l.claims[e.handle] = claim{key: k, seq: e.seq, leased: true}
	}
	if q.place != nil {
		l.foreign[e.handle] = foreignLease{seq: e.seq, limit: q.place.limit}
	}
}

// granted is told how one lease was applied.
func (t *take) granted(g *group, r *timer.Result) {
	h := t.asked[len(t.asked)-t.pending]
	seq := g.lead.taking[h]
	delete(g.lead.taking, h)
	t.pending--
	if r.Code != timer.OK {
		g.table.Restore(h, seq) // it may have changed, or the delivery of its topic alone
	} else {
		d := g.table.Due(r.Handle)
		g.lead.overlap(r.Handle, d.Seq, d.Fence)
		if t.wait != nil && g.w.lease < t.until { // else others may have had it since: this process stood still
			t.taken = append(t.taken, Taken{Shard: g.id, Handle: r.Handle, UntilMs: t.untilMs, Timer: g.table.Copy(r.Handle)})
		}
	}
	if t.pending == 0 {
		t.answer(nil)
	}
}

// dropped is told that the log did not take a lease.
func (t *take) dropped(g *group) {
	h := t.asked[len(t.asked)-t.pending]
	delete(g.lead.taking, h)
	g.lead.review(h)
	t.pending--
	g.lead.rewatching, g.lead.rewatchFrom = true, 0
	if t.pending == 0 {
		t.answer(g.lateError())
	}
}

// refuseTakes answers those that were not proposed.
func (g *group) refuseTakes() {
	for _, t := range g.takes {
		t.answer(g.notLeader())
	}
	g.takes = nil
}

// expireTakes answers those that have waited too long to be proposed.
func (g *group) expireTakes(now time.Duration) {
	for len(g.takes) > 0 && g.takes[0].deadline <= now {
		g.takes[0].answer(g.lateError())
		g.takes[0] = nil
		g.takes = g.takes[1:]
	}
}

// Take leases ready timers of a topic to a consumer, from shards that this node leads. What another took first is not there: the answer may be
// shorter than asked for. An error is returned only with nothing taken; after ErrUnknown leases may have been taken, and will run out.
func (h *Host) Take(_ context.Context, topic timer.TopicID, leaseMs int64, shares []Share) ([]Taken, error) {
	wait := h.newWaiter(len(shares) + 1)
	perWorker := make([]takeList, len(h.workers))
	all := make([]*take, len(shares))
	for i, s := range shares {
		t := &take{group: h.groups[s.Shard], topic: topic, most: s.Timers, leaseMs: leaseMs, deadline: h.cfg.Clock.Mono() + waitLimit, wait: wait}
		all[i] = t
		n := int(s.Shard) % len(h.workers)
		perWorker[n] = append(perWorker[n], t)
	}
	for n, l := range perWorker {
		if len(l) == 0 {
			continue
		}
		if err := h.workers[n].box.offer(l); err != nil {
			for _, t := range l {
				t.answer(err)
			}
		}
	}
	wait.done()
	h.await(wait)
	var out []Taken
	var err error
	now := h.cfg.Clock.Look().Lease
	for _, t := range all {
		if now < t.until { // else others may have had them since: this process stood still while it waited for another shard's
			out = append(out, t.taken...)
		}
		if t.err != nil {
			err = t.err
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, err
}
