package sim

import (
	"time"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// rankChecker checks priorities. Of timers that wait together for a slot of their topic, in one
// shard and under one leader, the one with the higher priority is leased first. Two timers wait
// together if both had been due for a while, but less than a second, when the lease was requested.
// Older timers share the slots equally with newer ones (backlogAfterMs in shard/scheduler), so that
// the backlog of an outage starves no timer.
type rankChecker struct {
	featureChecker
	lines   map[timer.ShardID][]*rankedTimer
	reigns  map[place]time.Duration // by group and term: when the node began to lead
	waiting int
}

// rankedTimer is a waiting timer, as of the answer to its add.
type rankedTimer struct {
	id       string
	seq      uint64
	priority uint8
	dueMs    int64
	at       time.Duration
	node     uint64
	believed int64 // by the node that answered: see believes
	rev      uint32
}

const (
	queuedAfter = 300 * time.Millisecond // more than the longest look-ahead and a turn
	freshFor    = 900 * time.Millisecond
)

func (b *rankChecker) answered(w *World, o *operation, r timer.Result, t *timer.Timer) {
	b.featureChecker.answered(w, o, r, t)
	at := w.holder(o.topic, o.id)
	n := w.leader(at)
	b.waiting += int(b2u(r.Code == timer.Created))
	if r.Code != timer.Created || n == nil || n.host == nil {
		return
	}
	tbl := n.host.Table(at)
	h, ok := tbl.Lookup(o.topic, o.id)
	if d := tbl.Due(h); ok && d.Seq == t.Seq && d.State == timer.Scheduled && d.Fence == 0 {
		b.lines[at] = append(b.lines[at], &rankedTimer{o.id, t.Seq, o.write.priority, t.DueMs, w.now, n.id, n.believes(), d.Rev})
	}
}

// mayStart compares a beginning call with all timers that waited when its lease was requested.
func (b *rankChecker) mayStart(c *call, tbl *table.Table) {
	n, j, id := c.node, &c.delivery.Job, c.delivery.Shard
	w := n.w
	// The call is not made: its lease is over, perhaps because the lease clock was set ahead when the
	// wall clock was trusted again. Then the deadline does not show when the lease was requested.
	if c.late() {
		return
	}
	// The lease was requested after its permit was granted, and the deadline shows when a majority
	// last proved the leadership: at that request, or later.
	asked := c.permit.asked
	askedMs := n.keeper.WallMs() - (w.now - asked).Milliseconds()
	within := scheduler.StartWithinOf(tbl, c.delivery.Job.Fence)
	proven := n.keeper.Lease() - (c.delivery.Deadline - within - callTimeout) - clockSlack
	provenMs := n.keeper.WallMs() - proven.Milliseconds()
	since, ok := b.reigns[place{id, n.host.Progress(id).Term}]
	var x *rankedTimer
	keep := b.lines[id][:0]
	for _, y := range b.lines[id] {
		if y.seq == j.Seq {
			x = y
		}
		if h, there := tbl.Lookup(rankedTopic, y.id); there && tbl.Due(h).Seq == y.seq && !tbl.Due(h).State.Over() {
			keep = append(keep, y)
		}
	}
	b.lines[id] = keep
	fresh := func(t *rankedTimer) bool {
		return t.node == n.id && t.believed == n.believes() && t.at > since && t.dueMs >= provenMs-freshFor.Milliseconds()
	}
	if !ok || x == nil || j.Attempts != 1 || !fresh(x) {
		return
	}
	for _, y := range keep {
		if y.priority == x.priority || !fresh(y) || y.at > asked-queuedAfter || y.dueMs > askedMs-queuedAfter.Milliseconds() {
			continue
		}
		w.counts.Ranked++
		h, _ := tbl.Lookup(rankedTopic, y.id)
		if d := tbl.Due(h); y.priority > x.priority && d.State == timer.Scheduled && d.Attempts == 0 && d.Rev == y.rev {
			w.violate("priority", "node %d calls for %s (priority %d, due %d) while %s (priority %d, due %d) waits, and had waited for %s when the lease was requested",
				n.id, x.id, x.priority, x.dueMs, y.id, y.priority, y.dueMs, asked-y.at)
		}
	}
}

func (b *rankChecker) heard(c *call) {
	if n := b.ids[idKey{rankedTopic, c.delivery.Job.ID}]; n.first.acked && len(n.first.over) == 0 {
		b.waiting--
	}
	b.featureChecker.heard(c)
}

func (b *rankChecker) checkEnd(w *World) { b.ends(w, noneDead(w)) }
