package scheduler

import (
	"slices"

	"carillon/shard/table"
	"carillon/timer"
)

// pullBytes ends the answer to one pull from one shard; its last timer may exceed it.
const pullBytes = 8 << 20

// Ready timers of pulled topics. They wait in one destination queue per shard until a consumer
// takes them (see ../pull.go). A pull first compares the heads of all shards, here and on other
// nodes, and then takes timers in that order.

// SortCandidates sorts candidates by Before; equal ones keep their order.
func SortCandidates(list []timer.Candidate) {
	slices.SortStableFunc(list, func(a, b timer.Candidate) int {
		switch {
		case a.Before(&b):
			return -1
		case b.Before(&a):
			return 1
		}
		return 0
	})
}

// pulled reports that consumers fetch the topic's timers.
func (q *topicQueue) pulled() bool { return q.topic != nil && q.topic.Policy.Pull }

// markReady notes that timers of a pulled topic may be ready.
func (l *Scheduler) markReady(q *topicQueue) {
	if !q.newlyReady {
		q.newlyReady = true
		l.consumers.fresh = append(l.consumers.fresh, q)
	}
	if !q.listed {
		q.listed = true
		l.consumers.pullable = append(l.consumers.pullable, q)
	}
}

// notifyReady announces the timers that became ready in this turn to waiting pulls.
func (l *Scheduler) notifyReady() {
	for i, q := range l.consumers.fresh {
		q.newlyReady = false
		l.call(q)
		l.consumers.fresh[i] = nil
	}
	l.consumers.fresh = l.consumers.fresh[:0]
}

// renotifyReady announces all ready timers again: a pull that was told may have gone.
func (l *Scheduler) renotifyReady() {
	if !l.active {
		return
	}
	list := &l.consumers.pullable
	for range min(len(*list), renotifyBudget) {
		last := len(*list) - 1
		if l.consumers.renotify--; l.consumers.renotify < 0 || l.consumers.renotify > last {
			l.consumers.renotify = last
		}
		q := (*list)[l.consumers.renotify]
		if q.pulled() && q.pullable() > 0 {
			l.call(q)
			continue
		}
		q.listed = false
		(*list)[l.consumers.renotify] = (*list)[last]
		(*list)[last] = nil
		*list = (*list)[:last]
	}
}

// renotifyBudget is how many topics are announced again in a tick.
const renotifyBudget = 1024

func (l *Scheduler) call(q *topicQueue) {
	if n := q.pullable(); n > 0 && l.mayPull(q) {
		l.cfg.Ready(q.id, n)
	}
}

// mayPull reports that a pull could take ready timers now.
func (l *Scheduler) mayPull(q *topicQueue) bool {
	if !l.active || !l.mayStart() || l.env.HandingOver() || !q.pulled() || q.topic.Paused || q.fullUntil > l.now.Mono || !l.table.Delivers(q.id, true) {
		return false
	}
	open, untilMs := l.inWindow(q)
	if !open {
		l.awaitWindow(q, untilMs)
	}
	return open
}

// pullable returns how many timers wait, including those that have changed since.
func (q *topicQueue) pullable() int { return q.queued() }

// position is a place in a destination queue's heap. Its children come after it.
type position struct {
	entry
	scheduler *Scheduler
	heap      *heap[entry]
	at        int
}

func (p position) before(o position) bool { return p.entry.before(o.entry) }

// TopCandidates returns the first ready timers of the given shards, in order. It changes no timer;
// it only drops outdated heads. It walks the heaps from their tops, so it looks at little more than
// it returns.
func TopCandidates(schedulers []*Scheduler, topic timer.TopicID, most int) []timer.Candidate {
	var front heap[position]
	for _, l := range schedulers {
		q := l.due.topics[topic]
		if q == nil || !l.mayPull(q) {
			continue
		}
		for _, n := range q.dests { // one
			for h := &n.fresh; h.len() > 0; {
				if l.stands(h.top()) {
					front.push(position{h.top(), l, h, 0})
					break
				}
				h.pop() // outdated
			}
			l.update(n)
		}
	}
	var out []timer.Candidate
	for looks := 4*most + 64; front.len() > 0 && len(out) < most && looks > 0; looks-- {
		p := front.pop()
		for _, below := range [...]int{2*p.at + 1, 2*p.at + 2} {
			if below < p.heap.len() {
				front.push(position{p.heap.items[below], p.scheduler, p.heap, below})
			}
		}
		if p.scheduler.stands(p.entry) {
			out = append(out, timer.Candidate{Shard: p.scheduler.cfg.Shard, Priority: p.priority, DueMs: p.dueMs, Bytes: p.scheduler.table.CopySize(p.handle, true)})
		}
	}
	return out
}

// Pull proposes leases for one consumer. known is false while the order is not known: in a serial
// topic due timers are still being queued, or scanBlockers has not finished.
func (l *Scheduler) Pull(b *table.Batch, topic timer.TopicID, most int, leaseMs int64) (asked []timer.Handle, known bool) {
	q := l.due.topics[topic]
	if q == nil || !l.mayPull(q) {
		return nil, true
	}
	if !l.ordered(q) {
		return nil, false
	}
	for size := 0; len(asked) < most && size < pullBytes; {
		e, ok := l.nextPullable(q)
		if !ok {
			break
		}
		l.reserve(q, e)
		b.Pull(leaseMs, e.handle, e.seq, e.rev)
		asked = append(asked, e.handle)
		size += l.table.CopySize(e.handle, true)
	}
	l.rest(q) // a granted lease may never be used
	if q.pullable() > 0 {
		l.markReady(q)
	}
	return asked, true
}

// nextPullable takes the first timer that may go out of a pulled topic's destination queue.
func (l *Scheduler) nextPullable(q *topicQueue) (e entry, ok bool) {
	for budget := PopBudget; budget > 0; budget-- {
		n := q.next()
		if n == nil {
			return e, false
		}
		switch e = n.head(); {
		case !l.stands(e) || q.keys != nil && !l.mayGo(q, e):
			l.pop(n)
			l.Review(e.handle)
		case q.resumedMs-e.dueMs > missedAfterMs && l.missed(e):
			l.pop(n)
			l.env.WakeNext()
		case e.dueMs > l.now.WallMs: // the clock stepped back
			l.pop(n)
			l.due.exact.push(e)
		case q.limiterUse != nil && !l.admit(q):
			q.fullUntil = l.now.Mono + LimitPoll
			return e, false
		default:
			l.pop(n)
			return e, true
		}
	}
	return e, false
}

// reserve counts a lease that is being proposed for a consumer: it has its key, and counts at the
// limit. Review ends both.
func (l *Scheduler) reserve(q *topicQueue, e entry) {
	l.consumers.reserved[e.handle] = e.seq
	if q.keys != nil {
		k := l.keys.refs[e.handle].key
		l.clearHead(k)
		k.leased++
		k.holder = e.handle
		l.keys.refs[e.handle] = keyRef{key: k, seq: e.seq, leased: true}
	}
	if q.limiterUse != nil {
		l.limits.carried[e.handle] = carriedLease{seq: e.seq, limit: q.limiterUse.limit}
	}
}

// Pulled handles the applied result of a consumer's lease.
func (l *Scheduler) Pulled(h timer.Handle, r *timer.Result) {
	seq := l.consumers.reserved[h]
	delete(l.consumers.reserved, h)
	if r.Code != timer.OK {
		l.table.Rearm(h, seq) // the timer changed, or only the delivery of its topic
		return
	}
	l.applied(r.Handle)
	d := l.table.Due(r.Handle)
	l.overlap(r.Handle, d.Seq, d.Fence)
}

// PullDropped handles a consumer's lease that the log did not take.
func (l *Scheduler) PullDropped(h timer.Handle) {
	delete(l.consumers.reserved, h)
	l.Review(h)
	l.RearmAll()
}
