package scheduler

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// Dispatcher makes the calls. The scheduler acquires a permit before it leases a timer, so that a
// receiver that is down or busy costs no attempt; see transport/callback.
type Dispatcher interface {
	// Route returns the destination of a timer of this topic; own overrides the topic's callback
	// settings. An error means that it cannot be delivered as the topic stands (no URL): it waits
	// until the topic changes.
	Route(t *timer.Topic, own *timer.Callback) (Destination, error)
	// Acquire asks for a permit for one call, without blocking.
	Acquire(d Destination, t *timer.Topic, w Waiter) (Permit, Verdict)
	// State describes a destination, and the breaker that the topic's calls to it go through.
	State(d Destination, t *timer.Topic) DestinationState
}

// Verdict answers Acquire.
type Verdict struct {
	// Queued: all slots are taken; the waiter gets the next free one.
	Queued bool
	// RetryIn, with no permit and not queued: the breaker is open; ask again after this long.
	RetryIn time.Duration
}

// Waiter receives a slot that it waited for, on any goroutine.
type Waiter interface{ Granted(Permit) }

// Permit allows one call: a slot at the destination and its breaker's consent. It is used or
// cancelled exactly once.
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
