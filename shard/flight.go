package shard

import (
	"math"
	"time"

	"carillon/timer"
)

// phase is how far a lease has come on its leader.
type phase uint8

const (
	proposed  phase = iota // in the log's pipeline, not applied yet
	held                   // applied; its due time has not come
	started                // the call runs
	ended                  // an outcome is in the pipeline
	returned               // the call never started, and the lease's release is in the pipeline
	reporting              // how it ended is told to whoever leads now
)

// flight is one lease of this leader, from its proposal to the applied outcome.
type flight struct {
	handle   timer.Handle
	seq      uint64
	fence    uint64 // of the lease; 0 until it is applied
	rev      uint32 // of the timer, before the lease
	lane     *lane
	permit   Permit
	phase    phase
	key      *serialKey    // the line that it is of; nil: its topic has none
	firm     bool          // nobody may overtake it
	limit    *limit        // at which it counts
	called   bool          // the call was started
	kept     bool          // a gate has held its timer up
	revoked  bool          // do not start: give the lease back when it is applied
	dueMs    int64         // wall clock; the call starts no sooner
	expireMs int64         // no later than this; 0 = no limit
	leaseEnd time.Duration // by the clock of leases
	askedAt  time.Duration // when the lease was proposed, to learn how long a commit takes
	firedMs  int64         // when the call was started, wall clock
	attempt  Attempt       // how the call ended
	until    time.Duration // reporting: when to give up, monotonic
	waiting  []*op         // client changes that wait until it is known whether the call starts, and claims until how it ended
}

// before orders held flights by due time, then arrival.
func (f *flight) before(o *flight) bool {
	if f.dueMs != o.dueMs {
		return f.dueMs < o.dueMs
	}
	return f.seq < o.seq
}

// unstarted reports that the call can still be prevented: its permit is not used yet.
func (f *flight) unstarted() bool { return f.phase == proposed || f.phase == held }

// hidden reports that clients see the timer as scheduled although the table has it leased.
func (f *flight) hidden() bool { return f.phase == held || f.phase == returned }

// callMargin is what a lease lasts beyond the call's time-out.
const callMargin = 5 * time.Second

// granted is a slot that a lane waited for.
type granted struct {
	lane   *lane
	lead   *lead
	permit Permit
}

func (g *granted) handle(w *worker) {
	g.lane.queued, g.lane.shutMs = false, w.nowMs
	if t := g.lane.queue.topic; !g.lead.active || g.lane.len() == 0 || g.lane.spare != nil || g.lane.old || t == nil || t.Paused {
		g.permit.Cancel()
		return
	}
	g.lane.spare = g.permit
	g.lead.join(g.lane.queue)
	w.touch(g.lead.group)
}

// laneWaiter is the lane as the dispatcher's queue knows it.
type laneWaiter struct {
	lane *lane
	lead *lead
}

// Granted implements Waiter; called from any goroutine.
func (l *laneWaiter) Granted(p Permit) {
	if err := l.lead.group.w.box.put(&granted{lane: l.lane, lead: l.lead, permit: p}, math.MaxInt); err != nil {
		p.Cancel() // the host has stopped, and nobody would use it
	}
}

// callEnded brings a call's end back to the worker.
type callEnded struct {
	lead    *lead
	flight  *flight
	attempt Attempt
}

func (c *callEnded) handle(w *worker) {
	c.lead.ended(c.flight, &c.attempt)
	w.touch(c.lead.group)
}

// TopicsChanged tells the leads that topics have another policy, were paused, resumed, made or deleted.
type topicsChanged struct{}

func (topicsChanged) handle(w *worker) {
	for _, g := range w.groups {
		if g.lead != nil {
			g.lead.refresh()
			w.touch(g)
		}
	}
}
