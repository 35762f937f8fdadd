package callback

import (
	"crypto/ed25519"
	"time"

	"carillon/internal/delivery"
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

	Topic       string
	Timer       string // empty: the body names several; then there are no due time, attempt and fence
	DueMs       int64  // Unix ms
	AskedMs     int64  // when somebody fired it by hand, Unix ms; 0: no Carillon-Asked
	Attempt     int    // 1, 2, …
	Fence       uint64
	WebhookID   string
	CloudEvent  bool   // it is a CloudEvent, too
	TraceParent string // empty: no trace; a traceparent among Headers goes first
	TraceState  string
	Receipt     string   // empty: no Carillon-Receipt
	Secrets     [][]byte // decoded by ParseSecret
	// Decoded by ParseSigningKey; without these and Secrets it is unsigned.
	SigningKeys []ed25519.PrivateKey

	// KeepAnswer has the outcome of a call that fails carry what the receiver answered.
	KeepAnswer bool

	// ReadBody has the answer of a call that succeeds read whole into Outcome.Body. One that breaks
	// off, or is longer than MaxReadBody, fails the call.
	ReadBody bool

	// Deadline is the dispatch guard on the clock of leases, Config.Lease: a call that
	// could still be running then is not made, and ends as NotSent. Zero: no guard.
	Deadline time.Duration
}

// MaxReadBody bounds an answer that is read whole.
const MaxReadBody = 1 << 20

// Outcome is the end of one call.
type Outcome struct {
	delivery.Outcome
	Sent    bool      // bytes of the request left this machine: the receiver may have acted
	Started time.Time // when the call began, before the dial; never before Start
	Took    time.Duration
	Body    []byte // see Request.ReadBody

	unjudged bool // it shows nothing of the receiver
	dialled  bool // its time has a dial in it
}

// failed reports that the call was tried, and that the receiver did not take it.
func (out *Outcome) failed() bool { return out.Err != "" && !out.NotSent }
