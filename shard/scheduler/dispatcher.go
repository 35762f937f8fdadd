package scheduler

import (
	"time"

	"carillon/internal/delivery"
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
	// Tenant names the user of a topic: tenants have their turns before topics. "" is nobody in
	// particular.
	Tenant(t *timer.Topic) string
	// Acquire asks for a permit for one call, without blocking; nil unless it is granted.
	Acquire(d Destination, t *timer.Topic, a delivery.Ask) (delivery.Permit, delivery.Verdict)
	// Start uses a permit of Acquire, or of a waiter: it makes the call on another goroutine and
	// reports how it ended, exactly once, from any goroutine.
	Start(p delivery.Permit, j *Delivery, done func(delivery.Outcome))
	// State describes a destination, and the breaker that the topic's calls to it go through.
	State(d Destination, t *timer.Topic) delivery.State
}

// Delivery is one attempt to be made.
type Delivery struct {
	Topic    *timer.Topic
	Shard    timer.ShardID
	Job      table.Job
	Own      timer.Callback
	Deadline time.Duration // on the clock of leases, clocks.Moment.Lease: a call that could end later is not started
}
