package callback

import "time"

// Waiter waits at a destination. Its methods are called on any goroutine, without locks, and must
// not block. One of them is called, once for each time that it waits.
type Waiter interface {
	// Granted hands over a permit, which must be started or cancelled.
	Granted(Permit)
	// Refused ends the wait: the breaker is open until then.
	Refused(retryAt time.Time)
}

// TopicWaiter waits for a slot of the node, for any of a topic's destinations.
type TopicWaiter interface {
	// GrantedSlot hands over a credit for a call of the class, which must be used or cancelled. It is
	// called on any goroutine, without locks, and must not block.
	GrantedSlot(class int, c *Credit)
}
