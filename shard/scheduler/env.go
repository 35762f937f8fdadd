package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// Config configures a Scheduler. It does not change.
type Config struct {
	Shard      timer.ShardID
	Owner      table.Incarnation // this process
	Seed       uint64
	Dispatcher Dispatcher
	Topics     Topics
	Observer   Observer
	Ready      func(timer.TopicID, int) // see shard.Config
	Limiters   *Limits                  // the node's, shared by all its schedulers
	Zones      *recurrence.Zones
	Describe   Describe
	// ManualClock: the clock stands still while there is work, see shard.Config. Nothing is leased
	// ahead of its due time.
	ManualClock bool
}

// Topics is where a leader looks topics up.
type Topics interface {
	Topic(id timer.TopicID) (*timer.Topic, bool)
	Named(name string) (*timer.Topic, bool)
	// Given reports whether there was ever a topic of the id, as this node knows.
	Given(id timer.TopicID) bool
	// Current reports whether this node has learned all that was decided before its process began.
	// Until then a topic may be another than it shows: paused, say. Once true, it stays so.
	Current() bool
}

// Observer receives events for metrics.
type Observer interface {
	Expired() // a timer expired before it could be attempted again
	// Outcomes reports outcomes: timers that were made as others ended, and those that were not
	// because their topic is gone.
	Outcomes(made, lost int)
	// Lateness of a first attempt that has ended; held: a gate delayed it; traceID: nil for none.
	Lateness(ms int64, held bool, traceID *[16]byte)
}

// Env is a scheduler's access to its replica. All methods but Post are called on the replica's
// worker.
type Env interface {
	Wake()     // runs the scheduler once more in this turn of the worker
	WakeNext() // runs it in the next turn, which follows at once
	// Spent counts steps of work in this turn of the worker, of about a microsecond each, and
	// reports that the turn's time is over: what is left is done in the next turn.
	Spent(steps int) bool
	// Least reports whether the least may be done nevertheless. It is asked once for each visit.
	Least() bool
	// Post runs an event on the worker. It may be called from any goroutine. stopped: the host has
	// stopped, and the event runs on any goroutine.
	Post(event func(stopped bool))

	Proposed(Item)                // records the purpose of the item just added to the entry
	Confirm(then func(error))     // asks a majority whether this node still leads
	HandingOver() bool            // nothing new may begin: the leadership is being transferred, or the node stops
	Full() bool                   // memory is at its limit: what can be left out is not kept
	Present() bool                // the node has a replica, so the table keeps up
	Ended(table.Incarnation) bool // a later process of its node has registered
	// Fence asks the meta group to record that a process is gone. then runs on the worker; without
	// an error, a majority found it gone after Fence was called.
	Fence(owner table.Incarnation, then func(error))

	Resume([]ClientChange) // continues changes that waited for a lease, ahead of others
	Refuse([]ClientChange) // answers that this node does not lead
	SendReport(*Report)    // sends the outcome of a lease to the current leader
	ZoneUnknown(string)    // a due timer is in a time zone that this node lacks
	Fired(timer.TopicID, *table.Outcome)
	CanaryPassed()
}

// ClientChange is a client's change that waits for a lease.
type ClientChange interface {
	WaitsUntil() time.Duration // the deadline of its wait; monotonic
	Answer(timer.Result, error)
}

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
	// reports how it ended, exactly once, from any goroutine. The Delivery is the caller's.
	Start(p delivery.Permit, j *Delivery, done func(delivery.Outcome))
	// StartBatch uses a permit for one call that attempts many timers. It reports how each attempt
	// ended, in the order of the timers, exactly once, from any goroutine.
	StartBatch(p delivery.Permit, c *BatchCall, done func([]delivery.Outcome))
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

// BatchCall is one call that attempts many timers.
type BatchCall struct {
	Topic    *timer.Topic
	Shard    timer.ShardID
	Jobs     []table.Job
	Own      timer.Callback // of each of them; it has no headers
	Deadline time.Duration  // see Delivery
}
