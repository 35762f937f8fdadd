package shard

// Kind is the kind of a client's change. The values are part of the log format.
type Kind uint8

// What a client can do to a timer, and an operator to dead letters and topics.
const (
	Add        Kind = 1 + iota
	Put             // create or replace whole
	Modify          // PATCH
	Cancel          // DELETE
	Fire            // make it due now
	Redrive         // dead → scheduled, attempts restart
	Purge           // forget a dead letter
	CloseTopic      // refuse adds; with Force drop everything of the topic, without only when it has nothing pending or dead
	OpenTopic       // undo CloseTopic
	Deliver         // lease the topic's timers to who pulls alone, or never; refused while some are leased otherwise
)

// Command is one client change to one timer (or, from CloseTopic on, to one topic in one shard).
// It is decided when it is applied, in log order, so its answer is the truth.
type Command struct {
	Kind  Kind
	Topic TopicID
	ID    string

	// IfMatch is the version that the timer must have; 0 = any. Redrive and Purge: of the dead letters of the id, the one of
	// that version is meant; 0 = the last.
	// With CloseTopic and Force it bounds the work: a slot that is looked at
	// is 1, a timer that is dropped 16 more; 0 = all at once. Deliver: the number of the change.
	IfMatch uint32
	// CreateOnly (Put) answers VersionMismatch when the id is in use (If-None-Match: *).
	CreateOnly bool
	// Force goes with CloseTopic.
	Force bool
	// Pull goes with Deliver.
	Pull bool
	// Absolute (Add) says that the time was given as an instant, not as a delay: then repeating the add gives the finished
	// timer and no second firing, for ten minutes after the timer's end, and where the instant is LateMs past for as long as
	// the table keeps the timer.
	Absolute bool
	// NotLate (Add, Put) answers TooLate instead of making or changing a timer whose time is LateMs past.
	NotLate bool
	// Merge (Add) says what becomes of it when the id is in use; MaxWaitMs goes with MergeDebounce, 0 = unbounded.
	Merge     Merge
	MaxWaitMs int64

	// Tag is the random part of the uid of a timer that Add or Put creates.
	Tag uint32
	// Content is a hash of an Add or Put as the client sent it (defaults not filled in, a delay as a delay), for the idempotent add.
	Content uint64
	// Spec is given with Add and Put. The table copies what it keeps.
	Spec *Spec
	// Into is room for the timer in the answer to an Add or Put that creates one; nil: it is allocated. It stays on this node.
	Into *Timer
	// Patch is given with Modify, and with Redrive (callback only).
	Patch *Patch
	// DueMs goes with Redrive and Fire: when the next attempt is due. 0 = at once. With CloseTopic it is a fence that those to come
	// are above, or, with Force, the Handle in the answer of the command before: where to go on.
	DueMs int64
	// Claim is given with AckLease, NackLease and ExtendLease.
	Claim *Claim
}

// Patch changes the fields whose Set flag is true, all at once.
type Patch struct {
	Spec Spec // new values, read only where a flag below says so

	Due     bool
	Payload bool // payload and kind; NoPayload resets it to empty
	// ContentType, Priority, Labels, Expiry: whole.
	ContentType, Priority, Labels, Expiry bool
	Repeat                                bool // whole; nil ends the series with the pending occurrence

	// Callback and Retry change by field: a field is set where its flag is true, to the topic's default where the new value is zero.
	URL, Method, Headers, Timeout                           bool
	MaxAttempts, MinBackoff, MaxBackoff, Multiplier, Jitter bool
}

// LateMs is how far past a time must be for the add of it to count as late.
const LateMs = 60_000

// Code is how a command ended.
type Code uint8

// The answers of a command.
const (
	Created         Code = 1 + iota // 201
	Same                            // 200: this add was made before; Timer is as it stands now, possibly over
	OK                              // 200: changed
	Prevented                       // 200: cancelled, no attempt starts after this (also when repeated)
	CancelInFlight                  // 202: a call is running, no further one starts
	Exists                          // 409: the id is in use with other content
	InFlight                        // 409: leased
	OverFired                       // 410: already fired
	OverDead                        // 410: dead
	OverCancelled                   // 410: cancelled (Modify, Fire)
	NotFound                        // 404
	VersionMismatch                 // 412
	TopicClosed                     // the topic is being deleted, or its id is from a former life
	NotEmpty                        // CloseTopic without Force
	Skipped                         // Redrive, Purge: no dead letter of that id, or its id is in use again
	Merged                          // 200: merged with the timer that has the id, by the add's rule
	TooLate                         // 410: the time is past by more than LateMs, and the command was not to be late
)

// Result answers a command, or another item of a batch.
type Result struct {
	Code    Code
	Handle  Handle // the timer's slot: as the item named it, or where the command found or put it; 0 none
	Fence   uint64 // of a lease that was granted: its number; CloseTopic without Force: the last that was given in the shard
	Timer   *Timer // as it stands after the command; nil where there is none, and when the command was brief
	Removed int    // CloseTopic: pending timers that were dropped; when there are more, Handle says where to go on. Deliver: those leased otherwise
	// Created: the timer's number, version and birth. With the command that is all there is to know of it.
	Seq     uint64
	Version uint32
	AtMs    int64
}

// Query selects timers of one topic in one shard, in the order (SortMs, ID, Seq).
type Query struct {
	Topic  TopicID
	States uint8 // bit 1<<State
	// Sorted and filtered by due time (list), or by the time of the end (dead letters, history).
	ByEnd          bool
	FromMs, ToMs   int64 // [FromMs, ToMs); ToMs 0 = open
	Labels         []string
	IDPrefix       string
	Reason         Reason // NoReason = any
	After          *Key   // only what comes after this
	Limit          int
	WithoutPayload bool

	// Bytes is how much of the page's timers is given whole, about; the rest is Short. 0: all. Room is asked, too, where the query is answered
	// in the process that asks; nil: it is not.
	Bytes int
	Room  Room

	// hides says of a leased timer that it counts as scheduled; nil: none does.
	hides func(h Handle) bool
}

// Key is a place in the order of a Query.
type Key struct {
	SortMs int64
	ID     string
	Seq    uint64
}

// Counts are the timers of one topic in one shard.
type Counts struct {
	Scheduled, Ready, Leased, Done, Dead int64
	OldestOverdueMs                      int64 // how long the oldest ready one has been due
}
