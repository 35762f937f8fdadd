package scheduler

import (
	"math"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// A topic with Policy.Batch has its timers attempted many in a call. The timers of one call wait in
// a queue of their own, which is a destQueue with a group. It asks for one permit once it is full,
// or its wait is over. Each timer keeps its own lease, attempt and outcome; the leases are proposed
// in one entry and share the permit, see batchCall.
//
// Cost: O(log n) for each timer, like that of a single call. A timer is queued when it is due, not
// ahead of it, so that no timer of a call waits for another to become due.

// group is the part of a destQueue whose timers share calls; nil in one that makes a call for each
// timer.
type group struct {
	groupKey
	policy *timer.Batch
	queue  *destQueue

	bytes   int   // about the most that the queue's timers take of a body; pick counts exactly
	firstMs int64 // no timer of the queue is due before
	untilMs int64 // when it goes although it is not full; while gathering
	place   int   // in topicQueues.gathering
}

// groupKey is the same for all timers of a call, as their topic is.
type groupKey struct {
	dest        Destination
	url, method string
	timeoutMs   int64
	key         uint64 // hash of the timers' key; 0 if they have none, or calls are not made by key
}

// groupRoute leads to the queue of a group.
type groupRoute struct {
	target table.Target
	key    uint64
}

// routeOf returns the way of a timer to the queue of its call; many: it may share one.
func (tq *topicQueues) routeOf(q *topicQueue, h timer.Handle, d *table.Due) (r groupRoute, many bool) {
	b := q.batch()
	if b == nil || d.Attempts > 0 {
		return r, false
	}
	if r.target = d.Target; b.ByKey {
		r.key = tq.keys.hashOf(q, h)
	}
	return r, true
}

// maxBatchBytes bounds the body of a call of many timers. Room for its braces is left.
const maxBatchBytes = 1<<20 - 64

// Before orders the groups that gather by when they go.
func (g *group) Before(o *group) bool { return g.untilMs < o.untilMs }

// Place implements order.Ranked.
func (g *group) Place() *int { return &g.place }

// full reports that no timer need be waited for. Timers that have changed since count too.
func (g *group) full() bool {
	return g.queue.len() >= g.policy.Max || g.bytes >= maxBatchBytes
}

// goesMs is when the group's call goes although it is not full.
func (g *group) goesMs() int64 { return g.firstMs + g.policy.WaitMs }

// entered counts a timer that takes so many bytes at most into the group.
func (g *group) entered(e entry, bytes int) {
	if g.queue.len() == 1 {
		g.firstMs, g.bytes = e.dueMs, 0
	}
	g.bytes += bytes
	g.firstMs = min(g.firstMs, e.dueMs)
}

// left counts a timer out that was taken. It may have changed since it entered, so the mean of the
// group leaves with it.
func (g *group) left() { g.bytes -= g.bytes / (g.queue.len() + 1) }

// recount finds the first due time again, after a call has taken its timers. Cost: O(timers of a
// call); a queue that has more is full, and needs none.
func (g *group) recount() {
	if g.full() {
		return
	}
	g.firstMs = math.MaxInt64
	for _, h := range []*heap[entry]{&g.queue.fresh, &g.queue.backlog} {
		for e := range h.all() {
			g.firstMs = min(g.firstMs, e.dueMs)
		}
	}
}

// batch is the topic's rule for calls of many timers; nil if each timer has a call of its own.
func (q *topicQueue) batch() *timer.Batch {
	if q.topic == nil {
		return nil
	}
	if p := &q.topic.Policy; !p.Pull && !p.Report && !p.Serial {
		return p.Batch
	}
	return nil
}

// queueFor finds or makes the queue in which a due timer waits for its call. A timer with headers
// of its own, one that is retried, and one whose call has no body go alone.
func (tq *topicQueues) queueFor(q *topicQueue, h timer.Handle, d *table.Due) *destQueue {
	r, many := tq.routeOf(q, h, d)
	if !many {
		return tq.destQueue(q, d.Target)
	}
	if n := q.groups[r]; n != nil {
		return n
	}
	own := tq.table.Callback(d.Target)
	c := own.Under(&q.topic.Policy.Callback)
	dest, err := tq.cfg.Dispatcher.Route(q.topic, &own)
	if err != nil || own.HasHeaders || !c.SendsBody() {
		return tq.destQueue(q, d.Target)
	}
	key := groupKey{dest: dest, url: c.URL, method: c.Method, timeoutMs: c.TimeoutMs, key: r.key}
	n := q.byDest[key]
	if n == nil {
		n = tq.makeQueue(q, key, dest)
		n.group = &group{groupKey: key, policy: q.batch(), queue: n}
	}
	if q.groups == nil {
		q.groups = map[groupRoute]*destQueue{}
	}
	tq.remember(n, d.Target)
	q.groups[r] = n
	return n
}

// place puts a due timer into the queue of its call.
func (tq *topicQueues) place(q *topicQueue, d *table.Due, e entry) {
	tq.queueIn(tq.queueFor(q, e.handle, d), e)
}

// batchBytes is the most that a timer takes of the body of a call of many; 0: it is gone.
func (tq *topicQueues) batchBytes(q *topicQueue, h timer.Handle) int {
	return min(tq.table.BatchBytes(h)+len(q.topic.Name), maxBatchBytes)
}

// gathers reports whether a queue waits for more timers of its call.
func (d *destQueue) gathers() bool {
	g := d.group
	return g != nil && !g.full() && d.queue.queues.now.WallMs < g.goesMs()
}

// gather keeps a group's place among those that gather.
func (tq *topicQueues) gather(g *group) {
	switch gathers := g.queue.state == gathering; {
	case gathers && g.place == 0:
		g.untilMs = g.goesMs()
		tq.gathering.Push(g)
	case gathers:
		g.untilMs = g.goesMs()
		tq.gathering.Fix(g)
	case g.place != 0:
		tq.gathering.Remove(g)
		g.queue.shutMs = tq.now.WallMs
	}
}

// goOn has the groups go whose wait is over.
func (tq *topicQueues) goOn() {
	for n := 0; tq.gathering.Len() > 0 && tq.gathering.First().untilMs <= tq.now.WallMs; n++ {
		if n == PopBudget || tq.env.Spent(1) {
			tq.env.WakeNext()
			return
		}
		g := tq.gathering.First()
		if !tq.keeps(g.queue) { // its topic has changed
			tq.gathering.Remove(g)
			continue
		}
		tq.update(g.queue)
		tq.join(g.queue.queue)
	}
}

// batchCall is one call of many timers, from the proposal of their leases to its start. It is the
// permit of each of these leases: a lease that becomes void is cancelled, and leaves the call.
type batchCall struct {
	permit  delivery.Permit
	leases  []*activeLease // in the order of its body
	waiting int            // leases that are not applied yet
	left    int            // leases that have not left
}

// Cancel implements delivery.Permit.
func (c *batchCall) Cancel() {
	if c.left--; c.left == 0 {
		c.permit.Cancel()
	}
}

// within is the bound of its leases, which are of one entry.
func (c *batchCall) within() time.Duration {
	for _, f := range c.leases {
		if f.phase == held {
			return f.within()
		}
	}
	return SlowStartWithin
}

// revoke returns the leases that have not left the call.
func (c *batchCall) revoke(al *activeLeases) {
	for _, f := range c.leases {
		if f.phase == held {
			al.revoke(f)
		}
	}
}

// leaseMany proposes leases for the timers of one call, which the permit is for. The first timer of
// the queue may go, and its topic's limit has granted it a lease. A lease lets out the next timer
// of its key, which joins the call if there is room. It reports whether the topic keeps its turn.
func (p *proposer) leaseMany(b *table.Batch, n *destQueue, permit delivery.Permit) (keeps bool) {
	q, c := n.queue, &batchCall{permit: permit}
	keeps = true
	if !p.ripe(n) { // so timers that it counted have changed since
		p.compaction.setAside(&n.fresh, &n.backlog)
	}
	for room := newCallRoom(n); p.pick(n, &room); {
		if len(c.leases) > 0 && q.limiterUse != nil && !p.limits.admit(q) {
			keeps = false
			break
		}
		e := n.head()
		n.take()
		f := p.leases.propose(b, n, e, c)
		f.call = c
		c.leases = append(c.leases, f)
		if q.keys != nil {
			p.keys.moveUp(f.key)
		}
	}
	if c.waiting, c.left = len(c.leases), len(c.leases); c.left == 0 {
		permit.Cancel()
		if q.limiterUse != nil {
			q.limiterUse.keep()
		}
	}
	n.group.recount()
	p.topics.update(n)
	return keeps
}

// callRoom is what a call can still take.
type callRoom struct{ timers, bytes, drops int }

func newCallRoom(n *destQueue) callRoom {
	return callRoom{timers: n.group.policy.Max, bytes: maxBatchBytes, drops: PopBudget}
}

// ripe reports that a call goes now: the timers of its queue that stand fill it, or one of them has
// waited for long enough. Cost: O(timers of a call), and PopBudget outdated ones at most.
func (p *proposer) ripe(n *destQueue) bool {
	q, wait, room := n.queue, n.group.policy.WaitMs, newCallRoom(n)
	if wait == 0 {
		return true
	}
	for _, h := range [...]*heap[entry]{&n.fresh, &n.backlog} {
		for e := range h.all() {
			if !p.pulls.stands(q, e) {
				if room.drops--; room.drops < 0 {
					return false
				}
				continue
			}
			room.timers--
			room.bytes -= p.topics.batchBytes(q, e.handle)
			if room.timers <= 0 || room.bytes <= 0 || e.dueMs+wait <= p.now.WallMs {
				return true
			}
		}
	}
	return false
}

// pick reports that the first timer of a call's queue goes in the call, and takes its room. It
// drops those before it that are outdated. A queue that begins with many of them is set aside.
func (p *proposer) pick(n *destQueue, room *callRoom) bool {
	q := n.queue
	for n.len() > 0 && room.timers > 0 {
		switch e := n.head(); {
		case !p.mayGo(q, e):
			n.take()
			p.keys.passOver(e)
		case p.series.missedInPause(q, e):
			n.take()
			p.env.WakeNext()
		default:
			room.timers--
			room.bytes -= p.topics.batchBytes(q, e.handle)
			return room.bytes >= 0 // the largest timer has room in an empty call
		}
		p.env.Spent(1)
		if room.drops--; room.drops == 0 {
			p.compaction.setAside(&n.fresh, &n.backlog)
		}
	}
	return false
}

// applied counts a lease of a call that is applied, or never will be. After the last of them the
// call may start.
func (al *activeLeases) applied(c *batchCall) {
	if c.waiting--; c.waiting == 0 && c.left > 0 {
		al.calls = append(al.calls, c)
	}
}

// startCalls starts the calls of many timers whose leases are applied.
func (al *activeLeases) startCalls() {
	n := 0
	for started := 0; n < len(al.calls); n++ {
		if started >= startBudget {
			al.env.WakeNext()
			break
		}
		c := al.calls[n]
		if within := c.within(); c.left > 0 && !al.proven(within) {
			if !al.outdated(within) {
				al.Doubt()
				break
			}
			c.revoke(al)
		}
		started += al.startMany(c)
	}
	left := copy(al.calls, al.calls[n:])
	clear(al.calls[left:])
	al.calls = al.calls[:left]
}

// startMany starts a call with the leases that have not left it, and returns how many these are.
func (al *activeLeases) startMany(c *batchCall) int {
	first, room := -1, maxBatchBytes
	for i, f := range c.leases {
		switch {
		case f.phase != held:
		case f.dueMs > al.now.WallMs: // the clock stepped back
			al.revoke(f)
		case al.mayCall(f):
			size := al.topics.batchBytes(f.queue.queue, f.handle)
			switch {
			case first < 0:
				first = i
			case size > room: // adds that were in the pipeline with the lease have made one larger
				al.revoke(f)
				continue
			}
			room -= size
		}
	}
	if first < 0 {
		return 0
	}
	f := c.leases[first]
	call := &BatchCall{
		Topic: f.queue.queue.topic, Shard: al.cfg.Shard, Own: al.table.Callback(al.table.Due(f.handle).Target),
		Deadline: al.deadline(f), Jobs: make([]table.Job, 0, c.left),
	}
	going := make([]*activeLease, 0, c.left)
	for _, f := range c.leases[first:] {
		if f.phase == held {
			going = append(going, f)
			call.Jobs = append(call.Jobs, al.begun(f))
		}
	}
	al.cfg.Dispatcher.StartBatch(c.permit, call, func(outcomes []delivery.Outcome) {
		al.env.Post(func(stopped bool) {
			if stopped {
				return // the next process finds the leases in the log
			}
			for i, f := range going {
				f.attempt = outcomes[i]
				al.callEnded(f)
			}
		})
	})
	return len(going)
}
