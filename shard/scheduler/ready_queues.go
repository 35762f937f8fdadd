package scheduler

import (
	"time"

	"carillon/timer"
)

// entry is a timer in a leader's queue, due or about to be. It is a hint: the timer may have
// changed since, which its revision shows.
type entry struct {
	dueMs    int64
	seq      uint64
	handle   timer.Handle
	rev      uint32
	priority uint8
}

// before orders ready timers by priority, then due time, then arrival.
func (e entry) before(o entry) bool {
	if e.priority != o.priority {
		return e.priority > o.priority
	}
	if e.dueMs != o.dueMs {
		return e.dueMs < o.dueMs
	}
	return e.seq < o.seq
}

// ordered is the constraint of a heap's items.
type ordered[T any] interface{ before(T) bool }

var (
	_ ordered[entry]        = entry{}
	_ ordered[*activeLease] = (*activeLease)(nil)
	_ ordered[queueKey]     = queueKey{}
)

// heap is a binary min-heap of values by before; container/heap would box each one.
type heap[T ordered[T]] struct{ items []T }

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) top() T { return h.items[0] }

func (h *heap[T]) push(v T) {
	h.items = append(h.items, v)
	i := len(h.items) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h.items[i].before(h.items[parent]) {
			break
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

func (h *heap[T]) pop() T {
	v := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	h.down(0)
	if cap(h.items) > 1024 && len(h.items) < cap(h.items)/4 {
		h.items = append(make([]T, 0, cap(h.items)/2), h.items...) // give a drained backlog's memory back
	}
	return v
}

// filter drops the items for which keep is false.
func (h *heap[T]) filter(keep func(T) bool) {
	var kept []T
	for _, v := range h.items {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	h.items = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *heap[T]) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h.items); c++ {
			if h.items[c].before(h.items[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.items[i], h.items[least] = h.items[least], h.items[i]
		i = least
	}
}

// Destination is the receiver of a timer's calls, as the dispatcher names it. It is comparable, and
// equal for all timers that share a connection pool and a breaker.
type Destination any

// backlogAfterMs is how late a timer must be to go to the backlog. The backlog and the fresh timers
// take turns, so that the backlog of an outage does not starve timers that are due now.
const backlogAfterMs = 1000

// destQueue queues the ready timers of one topic for one destination.
type destQueue struct {
	queue *topicQueue
	dest  Destination

	fresh, backlog heap[entry]
	backlogTurn    bool

	spare        Permit        // granted and not used yet
	flying       int           // leases of this queue that have not ended
	queued       bool          // waits in the dispatcher for a slot
	blockedUntil time.Duration // monotonic; the breaker is open until then
	old          bool          // the topic has changed; its timers are being queued again
	// shutMs is when the queue was last found shut, or opened again, wall clock: timers due by then
	// were delayed.
	shutMs int64
}

func (l *destQueue) len() int { return l.fresh.len() + l.backlog.len() }

// rest returns a slot whose timers are gone: others wait for it.
func (l *destQueue) rest() {
	if l.spare != nil && l.len() == 0 {
		l.spare.Cancel()
		l.spare = nil
	}
}

func (l *destQueue) idle() bool {
	return l.len() == 0 && l.flying == 0 && l.spare == nil && !l.queued
}

// half returns the heap whose turn it is; nil when both are empty.
func (l *destQueue) half() *heap[entry] {
	switch {
	case l.len() == 0:
		return nil
	case l.fresh.len() == 0 || l.backlogTurn && l.backlog.len() > 0:
		return &l.backlog
	}
	return &l.fresh
}

func (l *destQueue) head() entry { return l.half().top() }

func (l *destQueue) pop() entry {
	h := l.half()
	l.backlogTurn = h == &l.fresh
	return h.pop()
}

// open reports whether to ask for a permit now.
func (l *destQueue) open(mono time.Duration) bool {
	return l.len() > 0 && !l.queued && l.blockedUntil <= mono
}

// topicQueue holds the destination queues of one topic in one shard.
type topicQueue struct {
	id     timer.TopicID
	topic  *timer.Topic // as this node knows it; nil: not known (yet)
	lanes  []*destQueue
	inRing bool
	// resumedMs is when the topic was last resumed, wall clock; 0: never. Occurrences due before
	// may have been missed.
	resumedMs int64

	limiterUse *limiterUse          // nil: the topic has no limit
	keys       map[uint64]*keyQueue // by hash of the key; nil: the topic is not serial
	inLine     int                  // entries of keys, without heads
	order      uint32               // how often the topic has stopped being serial
	sweeps     uint64               // of pruneLines
	moving     []*destQueue         // destination queues from before the topic changed; their timers are queued again in slices

	listed     bool // it is in consumerLeases.pullable
	newlyReady bool // timers became ready in this turn
	// fullUntil is until when the topic is taken to be at its limit, unless a lease ends here. No
	// pull need come before. Monotonic.
	fullUntil time.Duration
}

// next returns the open destination queue whose head comes first; nil if all wait.
func (q *topicQueue) next(mono time.Duration) *destQueue {
	var best *destQueue
	for _, l := range q.lanes {
		if l.open(mono) && (best == nil || l.head().before(best.head())) {
			best = l
		}
	}
	return best
}

// canaryDest is the destination of canaries: each call succeeds at once.
type canaryDest struct{ scheduler *Scheduler }

// Start implements Permit.
func (d canaryDest) Start(_ *Delivery, done func(Attempt)) {
	now := d.scheduler.now.WallMs
	d.scheduler.env.CanaryPassed()
	done(Attempt{Status: 200, StartedMs: now, EndedMs: now})
}

// Cancel implements Permit.
func (d canaryDest) Cancel() {}
