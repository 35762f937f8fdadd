package scheduler

import (
	"slices"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// pullBytes ends the answer to one pull from one shard; its last timer may exceed it.
const pullBytes = 8 << 20

// Ready timers of pulled topics. They wait in one destination queue per shard until a consumer
// takes them (see ../pull.go). A pull first compares the heads of all shards, here and on other
// nodes, and then takes timers in that order.

// pulledTopics are the topics whose timers consumers fetch.
type pulledTopics struct {
	reserved map[timer.Handle]reservation // leases in the log's pipeline
	list     []*topicQueue                // those that may have timers ready
	renotify int                          // index in list of the one announced last
	fresh    []*topicQueue                // of these, those whose timers became ready in this turn

	*leader
	consumers *consumerLeases
	due       *dueQueues
	keys      *keyQueues
	leases    *activeLeases
	limits    *topicLimits
	series    *seriesTimes
	topics    *topicQueues
	windows   *topicWindows
}

func newPulledTopics(s *Scheduler) pulledTopics {
	return pulledTopics{
		reserved: map[timer.Handle]reservation{}, leader: &s.leader,
		consumers: &s.Consumers, due: &s.due, keys: &s.Keys, leases: &s.Leases, limits: &s.limits, series: &s.series, topics: &s.topics, windows: &s.windows,
	}
}

// SortCandidates sorts candidates; equal ones keep their order.
func SortCandidates(list []timer.Candidate) { slices.SortStableFunc(list, timer.Candidate.Compare) }

// Pulled reports that consumers fetch the topic's timers.
func (q *topicQueue) pulled() bool { return q.topic != nil && q.topic.Policy.Pull }

// markReady records that timers of a pulled topic may be ready.
func (pt *pulledTopics) markReady(q *topicQueue) {
	if !q.newlyReady {
		q.newlyReady = true
		pt.fresh = append(pt.fresh, q)
	}
	if !q.listed {
		q.listed = true
		pt.list = append(pt.list, q)
	}
}

// notifyReady announces the timers that became ready in this turn to waiting pulls.
func (pt *pulledTopics) notifyReady() {
	for i, q := range pt.fresh {
		q.newlyReady = false
		pt.announce(q)
		pt.fresh[i] = nil
	}
	pt.fresh = pt.fresh[:0]
}

// renotifyReady announces all ready timers again: a pull that was notified may have gone.
func (pt *pulledTopics) renotifyReady() {
	if !pt.active {
		return
	}
	for range min(len(pt.list), renotifyBudget) {
		last := len(pt.list) - 1
		if pt.renotify--; pt.renotify < 0 || pt.renotify > last {
			pt.renotify = last
		}
		q := pt.list[pt.renotify]
		if q.pulled() && q.queued() > 0 {
			pt.announce(q)
			continue
		}
		q.listed = false
		pt.list[pt.renotify] = pt.list[last]
		pt.list[last] = nil
		pt.list = pt.list[:last]
	}
}

// renotifyBudget is how many topics are announced again in a tick.
const renotifyBudget = 1024

func (pt *pulledTopics) announce(q *topicQueue) {
	if n := q.queued(); n > 0 && pt.mayPull(q) {
		pt.cfg.Ready(q.id, min(n, q.limiterUse.places(pt.now.Mono)))
	}
}

// mayPull reports that a pull could take ready timers now.
func (pt *pulledTopics) mayPull(q *topicQueue) bool {
	if !pt.active || !pt.mayStart() || pt.env.HandingOver() || !q.pulled() || q.topic.Paused || q.fullUntil > pt.now.Mono || !pt.table.Delivers(q.id, true) {
		return false
	}
	open, untilMs := pt.windows.inWindow(q)
	if !open {
		pt.windows.await(q, untilMs)
	}
	return open
}

// position is a place in a destination queue's heap, or in a lane's of timers in line. Its children
// come after it.
type position struct {
	entry
	scheduler *Scheduler
	heap      *heap[entry]
	at        int
	line      *lineWalk // nil: it is let out
}

func (p position) before(o position) bool { return p.entry.before(o.entry) }

// lineWalk walks the timers in line behind one that is let out. They are let out one by one, while
// the pull leases them: by then its key's limits have room for so many.
type lineWalk struct {
	lane *keyLane
	left int
	tag  uint64
}

// behind returns the walk over the timers that may follow one that is let out; nil if none may.
func (kq *keyQueues) behind(e entry, most int) *lineWalk {
	c, ok := kq.refOf(e.handle)
	if !ok || c.leased || c.lane.key.queue.mode.serial || c.lane.due.len() == 0 {
		return nil
	}
	k := c.lane.key
	if mode := &k.queue.mode; mode.most > 0 {
		most = min(most, mode.most-int(k.leased)-1)
	}
	if kq.fill(k); k.queue.mode.rated() {
		most = min(most, int(k.bucket.tokens)-1)
	}
	if most <= 0 {
		return nil
	}
	return &lineWalk{lane: c.lane, left: most, tag: e.rank}
}

// push adds a place in a lane to the walk of candidates, in the turn that it would have.
func (w *lineWalk) push(front *heap[position], s *Scheduler, at int) {
	if w == nil || at >= w.lane.due.len() {
		return
	}
	e := *w.lane.due.at(at)
	if k := w.lane.key; k.queue.mode.fair {
		e.rank = w.tag + turnUnit/uint64(k.weight)
	}
	front.push(position{e, s, &w.lane.due, at, w})
}

// TopCandidates returns the first ready timers of the given shards, in order. It changes no timer;
// it only drops outdated heads. It walks the heaps from their tops, so it looks at little more than
// it returns.
func TopCandidates(schedulers []*Scheduler, topic timer.TopicID, most int) []timer.Candidate {
	var front heap[position]
	for _, s := range schedulers {
		q := s.topics.byID[topic]
		if q == nil || !s.Pulls.mayPull(q) {
			continue
		}
		most = min(most, q.limiterUse.places(s.now.Mono))
		for _, n := range q.dests { // one
			if s.Pulls.dropOutdated(q, n) {
				front.push(position{n.fresh.top(), s, &n.fresh, 0, nil})
			}
		}
	}
	var out []timer.Candidate
	for looks := 4*most + 64; front.len() > 0 && len(out) < most && looks > 0; looks-- {
		p := front.pop()
		s, w := p.scheduler, p.line
		if w != nil && w.left == 0 {
			continue
		}
		stands := w != nil && s.Leases.stands(p.entry) || w == nil && s.Pulls.stands(s.topics.byID[topic], p.entry)
		if w != nil && stands {
			w.left--
			w.tag = p.rank
		}
		for _, below := range [...]int{2*p.at + 1, 2*p.at + 2} {
			switch {
			case w != nil:
				w.push(&front, s, below)
			case below < p.heap.len():
				front.push(position{*p.heap.at(below), s, p.heap, below, nil})
			}
		}
		if !stands {
			continue
		}
		if w == nil {
			s.Keys.behind(p.entry, most).push(&front, s, 0)
		}
		out = append(out, s.Pulls.candidate(topic, p.entry))
	}
	return out
}

// dropOutdated drops the outdated entries before the first timer of a pulled topic's destination
// queue that stands, PopBudget at most, and reports whether that comes first now. If it does not yet,
// pulls are told to ask again.
func (pt *pulledTopics) dropOutdated(q *topicQueue, n *destQueue) (stands bool) {
	dropped := 0
	for dropped < PopBudget && n.len() > 0 && !stands {
		if stands = pt.stands(q, n.head()); !stands {
			n.take()
			dropped++
		}
	}
	pt.topics.update(n)
	if dropped == PopBudget && !stands {
		pt.markReady(q)
		pt.env.WakeNext()
	}
	return stands
}

// leasing reports that a lease of a timer, for a consumer or for a call, is in the log's pipeline.
func (pt *pulledTopics) leasing(e entry) bool {
	f := pt.leases.byTimer[e.handle]
	return f != nil && f.seq == e.seq && f.phase == proposed || pt.reserved[e.handle].seq == e.seq
}

// stands reports that an entry of a topic's destination queue is not outdated.
func (pt *pulledTopics) stands(q *topicQueue, e entry) bool {
	return pt.leases.stands(e) && (q.keys == nil || pt.keys.laneOf(e) != nil)
}

// candidate is a timer as it is compared with those of other shards: by priority and due time, or,
// where keys take turns, by how far off its turn is.
func (pt *pulledTopics) candidate(topic timer.TopicID, e entry) timer.Candidate {
	c := timer.Candidate{Shard: pt.cfg.Shard, Bytes: pt.table.CopySize(e.handle, true)}
	if q := pt.topics.byID[topic]; q.mode.fair {
		c.DueMs = int64(e.rank) - int64(q.virtual)
		return c
	}
	c.Priority, c.DueMs = pt.table.Due(e.handle).Priority, e.dueMs
	return c
}

// Pull proposes leases for one consumer. known is false while the order is not known: in a serial
// topic due timers are still being queued, or scanBlockers has not finished.
func (pt *pulledTopics) Pull(b *table.Batch, topic timer.TopicID, most int, leaseMs int64) (asked []timer.Handle, known bool) {
	q := pt.topics.byID[topic]
	if q == nil || !pt.mayPull(q) {
		return nil, true
	}
	if !pt.topics.ordered(q) {
		return nil, false
	}
	drops := PopBudget
	for size := 0; len(asked) < most && size < pullBytes; {
		e, ok := pt.nextPullable(q, &drops)
		if !ok {
			break
		}
		pt.reserve(q, e)
		b.Pull(leaseMs, e.handle, e.seq, e.rev)
		asked = append(asked, e.handle)
		size += pt.table.CopySize(e.handle, true)
	}
	pt.limits.rest(q) // a granted lease may never be used
	pt.limits.restKeyless(q)
	if q.queued() > 0 {
		pt.markReady(q)
	}
	return asked, true
}

// nextPullable takes the first timer that may go out of a pulled topic's destination queue. It drops
// those before it that may not, drops at most.
func (pt *pulledTopics) nextPullable(q *topicQueue, drops *int) (e entry, ok bool) {
	for ; *drops > 0; *drops-- {
		n := q.next()
		if n == nil {
			return e, false
		}
		switch e = n.head(); {
		case !pt.leases.stands(e) || q.keys != nil && !pt.keys.mayGo(q, e):
			pt.topics.pop(n)
			pt.keys.passOver(e)
		case pt.series.missedInPause(q, e):
			pt.topics.pop(n)
			pt.env.WakeNext()
		case e.dueMs > pt.now.WallMs: // the clock stepped back
			pt.topics.pop(n)
			pt.due.awaitInstant(e)
		case q.limiterUse != nil && !pt.limits.admit(q):
			q.fullUntil = pt.now.Mono + LimitPoll
			return e, false
		default:
			pt.topics.pop(n)
			return e, true
		}
	}
	return e, false
}

// reservation is a lease in the log's pipeline, that is proposed for a consumer.
type reservation struct {
	seq     uint64        // of the timer
	takenAt time.Duration // when its tokens were taken, monotonic
}

// reserve counts a lease that is being proposed for a consumer: it has its key, and counts at the
// limit. Review ends both.
func (pt *pulledTopics) reserve(q *topicQueue, e entry) {
	pt.reserved[e.handle] = reservation{e.seq, pt.now.Mono}
	pt.table.WaitIn(e.handle, nil, 0)
	if q.keys != nil {
		pt.keys.reserve(e)
	}
	if limits := pt.limits.of(q, e.handle); limits != (counted{}) {
		pt.limits.carry(&carriedLease{handle: e.handle, seq: e.seq, limits: limits})
	}
}

// Pulled handles the applied result of a consumer's lease.
func (pt *pulledTopics) Pulled(h timer.Handle, r *timer.Result) {
	if r.Code != timer.OK {
		pt.table.Rearm(h, pt.reserved[h].seq) // the timer changed, or only the delivery of its topic
		pt.undo(h)
		return
	}
	delete(pt.reserved, h)
	pt.consumers.applied(r.Handle)
	d := pt.table.Due(r.Handle)
	pt.series.overlap(r.Handle, d.Seq, d.Fence)
}

// Dropped handles a consumer's lease that the log did not take.
func (pt *pulledTopics) Dropped(h timer.Handle) {
	pt.undo(h)
	pt.due.rearmAll()
}

// undo ends the reservation of a lease that is not given. It costs no token.
func (pt *pulledTopics) undo(h timer.Handle) {
	r := pt.reserved[h]
	delete(pt.reserved, h)
	if c, ok := pt.keys.refOf(h); ok && c.leased && c.seq == r.seq && c.lane.key.queue.mode.rated() {
		c.lane.key.bucket.giveBack(r.takenAt)
	}
	if c := pt.limits.carried.byTimer[h]; c != nil && c.seq == r.seq {
		pt.limits.carried.drop(c)
		c.limits.end(pt.now.Mono, r.takenAt, false)
	}
	pt.keys.Review(h)
}
