package scheduler

import (
	"time"

	"carillon/timer"
)

// entry is a timer that is due, or about to be, as its leader queues it. It is a hint: the timer
// may have changed since, which its revision shows when its turn comes.
type entry struct {
	dueMs    int64
	seq      uint64
	handle   timer.Handle
	rev      uint32
	priority uint8
}

// before is the order among the ready: priority, then due time, then arrival.
func (e entry) before(o entry) bool {
	if e.priority != o.priority {
		return e.priority > o.priority
	}
	if e.dueMs != o.dueMs {
		return e.dueMs < o.dueMs
	}
	return e.seq < o.seq
}

// ordered is what a heap holds.
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

// filter keeps what is wanted.
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

// Destination is where a timer's calls go, as the dispatcher names it: comparable, and equal for
// all that share a connection pool and a breaker.
type Destination any

// backlogAfterMs: what is found later than this behind its time goes to the backlog, which shares
// the way out with the fresh half and half, so that an outage's stale queue never starves what is
// due now.
const backlogAfterMs = 1000

// destQueue queues the ready timers of one topic for one destination.
type destQueue struct {
	queue *topicQueue
	dest  Destination

	fresh, backlog heap[entry]
	backlogTurn    bool

	spare        Permit        // granted, not used yet
	flying       int           // its leases that have not ended
	queued       bool          // waits in the dispatcher for a slot
	blockedUntil time.Duration // monotonic; the breaker is open until then
	old          bool          // the topic has changed: what it holds is queued anew
	shutMs       int64         // when it was found shut last, or opened again; wall clock. What was due by then has been held
}

func (l *destQueue) len() int { return l.fresh.len() + l.backlog.len() }

// rest gives back a slot that came for timers which are gone: others wait for it.
func (l *destQueue) rest() {
	if l.spare != nil && l.len() == 0 {
		l.spare.Cancel()
		l.spare = nil
	}
}

func (l *destQueue) idle() bool {
	return l.len() == 0 && l.flying == 0 && l.spare == nil && !l.queued
}

// half is the heap whose turn it is; nil when both are empty.
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

// open reports whether a call may be asked for now.
func (l *destQueue) open(mono time.Duration) bool {
	return l.len() > 0 && !l.queued && l.blockedUntil <= mono
}

// topicQueue holds the destination queues of one topic in one shard.
type topicQueue struct {
	id     timer.TopicID
	topic  *timer.Topic // as this node knows it; nil: not known here (yet)
	lanes  []*destQueue
	inRing bool
	// resumedMs is when it was resumed last: occurrences that were missed until then are looked
	// for; wall clock, 0 never.
	resumedMs int64

	limiterUse *limiterUse          // at its limit; nil: it has none
	keys       map[uint64]*keyQueue // the lines of its keys; nil: the topic is not serial
	inLine     int                  // entries in them
	order      uint32               // how often it has ended to be serial
	sweeps     uint64               // of the lines
	moving     []*destQueue         // destination queues of before the topic changed, whose timers are queued anew bit by bit

	listed     bool // it is among those of which something may be ready for who pulls
	newlyReady bool // … and more has become so in this turn
	// fullUntil: at its limit until then, or until a lease ends here; nobody need pull before.
	// Monotonic.
	fullUntil time.Duration
}

// next is the open destination queue whose head comes first; nil when all wait.
func (q *topicQueue) next(mono time.Duration) *destQueue {
	var best *destQueue
	for _, l := range q.lanes {
		if l.open(mono) && (best == nil || l.head().before(best.head())) {
			best = l
		}
	}
	return best
}

// canaryDest is the destination of canaries: the call succeeds at once.
type canaryDest struct{ scheduler *Scheduler }

// Start implements Permit.
func (d canaryDest) Start(_ *Delivery, done func(Attempt)) {
	now := d.scheduler.now.WallMs
	d.scheduler.env.CanaryPassed()
	done(Attempt{Status: 200, StartedMs: now, EndedMs: now})
}

// Cancel implements Permit.
func (d canaryDest) Cancel() {}
