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
	// Tenant names the user of a topic: tenants have their turns before topics. "" is nobody in
	// particular.
	Tenant(t *timer.Topic) string
	// Acquire asks for a permit for one call, without blocking. A credit is used up if there is a
	// permit.
	Acquire(d Destination, t *timer.Topic, a Ask) (Permit, Verdict)
	// State describes a destination, and the breaker that the topic's calls to it go through.
	State(d Destination, t *timer.Topic) DestinationState
}

// Ask says what waits if Acquire has no permit.
type Ask struct {
	Receiver ReceiverWaiter // waits for a call at the destination to end
	Node     NodeWaiter     // waits for a slot of the node, of the class in the verdict
	Credit   Credit         // a slot that Node was given; nil: none
}

// Classes is how many classes of calls a node keeps apart: those that may hang have slots of their
// own.
const Classes = 2

// Verdict answers Acquire if there is no permit.
type Verdict struct {
	Kind    VerdictKind
	Class   int           // with NodeFull
	RetryIn time.Duration // with Shut
}

// VerdictKind is the reason why there is no permit.
type VerdictKind uint8

const (
	Shut         VerdictKind = iota // the breaker is open, or nothing may be called yet: ask again after RetryIn
	ReceiverFull                    // Ask.Receiver waits
	NodeFull                        // Ask.Node waits: no call to the destination runs
)

// ReceiverWaiter waits at a receiver. One of its methods is called, on any goroutine.
type ReceiverWaiter interface {
	Granted(Permit)
	Refused(retryIn time.Duration) // the breaker has opened
}

// NodeWaiter waits for a slot of the node. GrantedSlot is called on any goroutine.
type NodeWaiter interface {
	GrantedSlot(class int, c Credit)
}

// Credit is a slot of the node without a destination. It is used up by Acquire, or cancelled.
type Credit interface{ Cancel() }

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
