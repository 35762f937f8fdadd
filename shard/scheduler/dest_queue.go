package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
)

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
	first          entry // a copy of the head, if there is one, as of the last update

	spare      delivery.Permit // granted and not used yet
	flying     int             // leases of this queue that have not ended
	atReceiver bool            // waits in the dispatcher for a call of the destination to end
	shutUntil  time.Duration   // monotonic; 0: the breaker has not refused
	class      int             // of calls; the dispatcher says which
	// shutMs is when the queue was last found shut, or opened again, wall clock: timers due by then
	// were delayed.
	shutMs int64

	state   queueState
	place   int // in the heap of its state
	counted int // entries that queue.entries has of it
	targets []table.Target
	at      int // in queue.dests

	spareSpot order.Spot[*destQueue] // in dueQueues.spares
	idleSpot  order.Spot[*destQueue] // in dueQueues.idle
	idleSince int64                  // number of the sweep
}

// queueState is what a destination queue waits for.
type queueState uint8

const (
	idle    queueState = iota // it is empty
	granted                   // it has a permit
	open                      // open+class: it may ask for a permit, or for a slot of the node
	_                         // the other class
	waiting                   // for its receiver
	shut                      // for its breaker
	stuck                     // for its topic: there is no URL
	states
)

// Before orders the destination queues of a topic by their first timers.
func (n *destQueue) Before(o *destQueue) bool { return n.first.before(o.first) }

// Place implements order.Ranked.
func (n *destQueue) Place() *int { return &n.place }

func (n *destQueue) len() int { return n.fresh.len() + n.backlog.len() }

// idle reports that nothing depends on the queue being kept.
func (n *destQueue) idle() bool {
	return n.len() == 0 && n.flying == 0 && n.spare == nil && !n.atReceiver
}

// half returns the heap whose turn it is; nil when both are empty.
func (n *destQueue) half() *heap[entry] {
	switch {
	case n.len() == 0:
		return nil
	case n.fresh.len() == 0 || n.backlogTurn && n.backlog.len() > 0:
		return &n.backlog
	}
	return &n.fresh
}

func (n *destQueue) head() entry { return n.half().top() }

// want is the state that the queue belongs in.
func (n *destQueue) want() queueState {
	switch {
	case n.len() == 0:
		return idle
	case n.spare != nil:
		return granted
	case n.dest == nil && !n.queue.pulled():
		return stuck
	case n.atReceiver:
		return waiting
	case n.shutUntil != 0:
		return shut
	}
	return open + queueState(n.class)
}

// Granted implements delivery.Waiter; called from any goroutine.
func (n *destQueue) Granted(p delivery.Permit) {
	tq := n.queue.queues
	tq.env.Post(func(stopped bool) {
		if stopped {
			p.Cancel() // no scheduler is left to use it
			return
		}
		tq.slotGranted(n, p)
	})
}

// Refused implements delivery.Waiter; called from any goroutine.
func (n *destQueue) Refused(retryIn time.Duration) {
	tq := n.queue.queues
	tq.env.Post(func(stopped bool) {
		if !stopped {
			n.atReceiver = false
			tq.shutFor(n, retryIn)
		}
	})
}

// maxTargets is how many overrides lead to one destination queue before they are looked up again.
const maxTargets = 256

func (n *destQueue) forgetTargets() {
	for _, target := range n.targets {
		delete(n.queue.routes, target)
	}
	n.targets = n.targets[:0]
}

// canaryDest is the destination of canaries: each call succeeds at once.
type canaryDest struct{ *leader }

// start makes the call.
func (d canaryDest) start(done func(delivery.Outcome)) {
	now := d.now.WallMs
	d.env.CanaryPassed()
	done(delivery.Outcome{Status: 200, StartedMs: now, EndedMs: now})
}

// Cancel implements delivery.Permit.
func (d canaryDest) Cancel() {}
