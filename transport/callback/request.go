package callback

import (
	"crypto/ed25519"
	"time"
)

// Header is one user header, valid by ValidateHeader.
type Header struct{ Name, Value string }

// Request is one call. It must not change until done has been called.
type Request struct {
	URL         string // valid by ValidateURL, of the permit's destination
	Method      string // POST when empty; GET and DELETE go out without Body
	Headers     []Header
	ContentType string // empty: no Content-Type
	Body        []byte
	Timeout     time.Duration // covers dial, write and the whole answer

	Topic, Timer string
	DueMs        int64 // Unix ms
	AskedMs      int64 // when somebody fired it by hand, Unix ms; 0: no Carillon-Asked
	Attempt      int   // 1, 2, …
	Fence        uint64
	WebhookID    string
	CloudEvent   bool   // it is a CloudEvent, too
	TraceParent  string // empty: no trace; a traceparent among Headers goes first
	TraceState   string
	Receipt      string   // empty: no Carillon-Receipt
	Secrets      [][]byte // decoded by ParseSecret
	// Decoded by ParseSigningKey; without these and Secrets it is unsigned.
	SigningKeys []ed25519.PrivateKey

	// Deadline is the dispatch guard on the clock of leases, Config.Lease: a call that
	// could still be running then is not made, and ends as NotSent. Zero: no guard.
	Deadline time.Duration
}

// Class is the outcome of a call.
type Class uint8

const (
	Success Class = iota + 1 // 2xx
	Failure                  // everything else that was tried
	NotSent                  // the dispatch guard held it back: nobody's failed attempt
)

func (c Class) String() string {
	switch c {
	case Success:
		return "success"
	case Failure:
		return "failure"
	case NotSent:
		return "not sent"
	}
	return "none"
}

// Outcome is the end of one call.
type Outcome struct {
	Class  Class
	Status int // 0 when no answer was understood

	// Err is empty on success, else a short stable code, perhaps ": " and a
	// detail; at most 256 bytes, printable, without secrets. Codes: "timeout",
	// "connection refused", "unreachable", "name not found", "name lookup failed",
	// "connection closed", "connection reset", "tls", "refused", "redirect 302", "status 500",
	// "bad response", "bad request", "shut down", "not sent", "connection failed",
	// "internal error".
	Err string

	// RetryAfter comes from a 429 or 503 alone, clamped to 1 s – 1 h; 0 = none.
	RetryAfter time.Duration

	Refused bool // the address policy said no; nothing was sent
	Sent    bool // bytes of the request left this machine: the receiver may have acted

	Started   time.Time // when the call began, before the dial; never before Start
	StartedMs int64     // the same, Unix ms
	Took      time.Duration
	// Unix ms, rounded up: a wait from the end of the call is never too short.
	EndedMs int64

	unjudged bool // says nothing about the receiver
	dialled  bool // its time has a dial in it
}
