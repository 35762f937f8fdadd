package scheduler

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// Dispatcher makes the calls. The host asks it for leave before it leases a timer, so that a
// receiver that is down or busy costs no attempt; see transport/callback.
type Dispatcher interface {
	// Route names where a timer of this topic goes, its own callback settings laid over the
	// topic's. An error means that it cannot be delivered as the topic stands (no URL): it waits
	// until the topic changes.
	Route(t *timer.Topic, own *timer.Callback) (Destination, error)
	// Acquire asks, without blocking, for leave to make one call.
	Acquire(d Destination, t *timer.Topic, w Waiter) (Permit, Verdict)
	// State describes a destination, and the breaker that the topic's calls to it go through.
	State(d Destination, t *timer.Topic) DestinationState
}

// Verdict answers Acquire.
type Verdict struct {
	// Queued: all slots are taken; the waiter gets the next one that frees.
	Queued bool
	// RetryIn, with no permit and not queued: the breaker is open; ask again after this long.
	RetryIn time.Duration
}

// Waiter is told, from any goroutine, that a slot it waited for is its own.
type Waiter interface{ Granted(Permit) }

// Permit is leave to make one call: a slot at the destination and its breaker's consent. It is used
// or cancelled exactly once.
type Permit interface {
	// Start makes the call on another goroutine and reports how it ended, exactly once, from any
	// goroutine.
	Start(j *Delivery, done func(Attempt))
	Cancel()
}

// Delivery is one attempt to be made.
type Delivery struct {
	Topic    *timer.Topic
	Shard    timer.ShardID
	Job      table.Job
	Own      timer.Callback
	Deadline time.Duration // on the clock of leases, clocks.Moment.Lease: a call that could end later is not started
}
