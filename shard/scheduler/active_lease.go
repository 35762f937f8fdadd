package scheduler

import (
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

// activeLease is one lease of this leader, from its proposal to the applied outcome.
type activeLease struct {
	handle   timer.Handle
	seq      uint64
	fence    uint64 // of the lease; 0 until it is applied
	rev      uint32 // of the timer, before the lease
	queue    *destQueue
	permit   Permit
	phase    phase
	key      *keyQueue      // the line that it is of; nil: its topic has none
	firm     bool           // nobody may overtake it
	limit    *limit         // at which it counts
	called   bool           // the call was started
	kept     bool           // a gate has held its timer up
	revoked  bool           // do not start: give the lease back when it is applied
	dueMs    int64          // wall clock; the call starts no sooner
	expireMs int64          // no later than this; 0 = no limit
	leaseEnd time.Duration  // by the clock of leases
	askedAt  time.Duration  // when the lease was proposed, to learn how long a commit takes
	firedMs  int64          // when the call was started, wall clock
	attempt  Attempt        // how the call ended
	until    time.Duration  // reporting: when to give up, monotonic
	waiting  []ClientChange // that wait until it is known whether the call starts, and claims until how it ended
}

// activeLeases are the leases that this process took for calls and of which it has not seen the
// end.
type activeLeases struct {
	byTimer map[timer.Handle]*activeLease
	held    heap[*activeLease]
	blocked []*activeLease // client changes wait for these

	reportAt time.Duration // when to report again; monotonic
}

// before orders held active leases by due time, then arrival.
func (f *activeLease) before(o *activeLease) bool {
	if f.dueMs != o.dueMs {
		return f.dueMs < o.dueMs
	}
	return f.seq < o.seq
}

// unstarted reports that the call can still be prevented: its permit is not used yet.
func (f *activeLease) unstarted() bool { return f.phase == proposed || f.phase == held }

// hidden reports that clients see the timer as scheduled although the table has it leased.
func (f *activeLease) hidden() bool { return f.phase == held || f.phase == returned }

// CallMargin is what a lease lasts beyond the call's time-out.
const CallMargin = 5 * time.Second

// queueWaiter is the destination queue as the dispatcher's queue knows it.
type queueWaiter struct {
	queue     *destQueue
	scheduler *Scheduler
}

// Granted implements Waiter; called from any goroutine.
func (q *queueWaiter) Granted(p Permit) {
	q.scheduler.env.Post(func(stopped bool) {
		if stopped {
			p.Cancel() // nobody would use it
			return
		}
		q.scheduler.slotGranted(q.queue, p)
	})
}

// slotGranted takes a slot that a destination queue waited for.
func (l *Scheduler) slotGranted(n *destQueue, p Permit) {
	n.queued, n.shutMs = false, l.now.WallMs
	if t := n.queue.topic; !l.active || n.len() == 0 || n.spare != nil || n.old || t == nil || t.Paused {
		p.Cancel()
		return
	}
	n.spare = p
	l.join(n.queue)
	l.env.Wake()
}
