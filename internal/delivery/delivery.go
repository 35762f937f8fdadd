// Package delivery is what a scheduler, which knows when a timer is to be delivered, and a pool of
// callbacks, which knows whether its receiver can be called, exchange about one call. It
// has no code: a caller asks for a Permit, and gets it with the Verdict, or later through a Waiter.
// A Permit is used or cancelled exactly once, and so is a Credit. A call ends with an Outcome.
package delivery

import (
	"time"

	"carillon/internal/order"
	"carillon/timer"
)

// Ask is what waits if there is no permit.
type Ask struct {
	Receiver Waiter       // waits for a call at the destination to end
	Part     *order.Share // of Receiver, of the turns of its topic there; nil: as any other
	Node     NodeWaiter   // waits for a slot of the node, of the class in the verdict; comparable
	Credit   Credit       // a slot that Node was given, used up by a permit; nil: none
}

// Classes is how many classes of calls a node keeps apart: those that may hang have slots of their
// own.
const Classes = 2

// Verdict is the answer to an Ask.
type Verdict struct {
	Kind    VerdictKind
	Class   int           // with NodeFull
	RetryIn time.Duration // with Shut and Closed: when to ask again
}

// VerdictKind is whether there is a permit, and why not.
type VerdictKind uint8

// The kinds of a Verdict.
const (
	Granted      VerdictKind = iota // there is one
	Shut                            // the breaker is open, or nothing may be called yet; nothing waits
	ReceiverFull                    // Ask.Receiver waits
	NodeFull                        // Ask.Node waits: no call to the destination runs
	Closed                          // no call is made any more; nothing waits
)

// Waiter waits at a receiver. One of its methods is called, once for each time that it waits, on
// any goroutine and without locks. It must not block.
type Waiter interface {
	Granted(Permit)
	Refused(retryIn time.Duration) // the breaker has opened
}

// NodeWaiter waits for a slot of the node, for any of a topic's destinations. GrantedSlot is called
// on any goroutine, without locks, and must not block.
type NodeWaiter interface {
	GrantedSlot(class int, c Credit)
}

// Credit is a slot of the node without a destination: a topic's leave to make one more call of a
// class.
type Credit interface{ Cancel() }

// Permit allows one call: a slot at the destination and its breaker's consent. The pool of calls
// that grants it knows how to use it; a scheduler can only cancel it.
type Permit interface{ Cancel() }

// State describes a destination and the breaker that calls to it go through.
type State struct {
	Name    string // scheme://host:port
	Breaker BreakerState
	ProbeIn time.Duration // BreakerOpen: time until a call may go again
	Barred  bool          // this node makes no call of the topic to it: it lacks a key
}

// BreakerState is the state of a breaker, as metrics show it.
type BreakerState uint8

// The states of a breaker.
const (
	BreakerClosed BreakerState = iota
	BreakerHalfOpen
	BreakerOpen
)

// Outcome is how one call ended.
type Outcome struct {
	NotSent bool // the call was never made: the lease is given back and no attempt counts
	Refused bool // the address policy refused it; nothing was sent
	Status  int  // HTTP status; 0 when no answer was understood
	// NoReceipt: the receiver got no receipt, so that its 202 is an answer like any other. A report
	// of a former leader does not have it.
	NoReceipt bool

	// Err is empty if the receiver took the call, else a short stable code, perhaps ": " and a
	// detail; at most 256 bytes, printable, without secrets. Codes: "timeout", "connection
	// refused", "unreachable", "name not found", "name lookup failed", "connection closed",
	// "connection reset", "tls", "refused", "redirect 302", "status 500", "bad response", "bad
	// request", "shut down", "not sent", "connection failed", "internal error".
	Err string

	// Answer is what the receiver answered to a call that failed; nil: nothing, or its topic keeps
	// no answers. It is a client's data: it belongs in no log and no metric.
	Answer *timer.Answer

	// RetryAfterMs comes from a 429 or 503 alone, 1 s to 1 h; 0: none.
	RetryAfterMs int64
	// Unix ms. The end is rounded up: a wait from there is never too short.
	StartedMs, EndedMs int64

	// TraceID is the trace that somebody keeps and the call belongs to; nil: there is none.
	TraceID *[16]byte
}
