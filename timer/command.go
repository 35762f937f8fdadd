package timer

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

// What a consumer says of a lease that it holds: in a pull, or since it answered a call with 202 (report mode). These kinds
// travel between nodes like any command, but never lie in a log: the leader turns each into an outcome, by the topic's policy.
const (
	AckLease    Kind = 0x40 + iota // done
	NackLease                      // try again later, or give up
	ExtendLease                    // hold it longer
	ReturnLease                    // it never got as far as its consumer: it does not count
)

// UpdatesLease reports that a command of this kind is about a lease.
func (k Kind) UpdatesLease() bool { return k >= AckLease && k <= ReturnLease }

// Command is one client change to one timer (or, from CloseTopic on, to one topic in one shard).
// It is decided when it is applied, in log order, so its answer is the truth.
type Command struct {
	Kind  Kind
	Topic TopicID
	ID    string

	// IfMatch is the version that the timer must have; 0 = any. Redrive and Purge: of the dead letters of the id, the one of
	// that version is meant; 0 = the last.
	IfMatch uint32
	// CreateOnly (Put) answers VersionMismatch when the id is in use (If-None-Match: *).
	CreateOnly bool
	// Force goes with CloseTopic: all timers of the topic are dropped. Work bounds that: a slot that is looked at is 1, a timer
	// that is dropped 16 more; 0 = all at once. From is the Handle in the answer of the command before: where to go on.
	Force bool
	Work  uint32
	From  Handle
	// MinFence goes with CloseTopic without Force: a fence that those to come are above. At most 2^63-1.
	MinFence uint64
	// Turn and Pull go with Deliver: the number of the change, and the delivery.
	Turn uint32
	Pull bool
	// Absolute (Add) says that the time was given as an instant, not as a delay: then repeating the add gives the finished
	// timer and no second firing, for ten minutes after the timer's end, and where the instant is LateMs past for as long as
	// the table keeps the timer.
	Absolute bool
	// Once (Add) says that the id stands for this one add: as long as the table remembers its end for that, other content answers
	// Exists instead of making another timer.
	Once bool
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
	// DueMs goes with Redrive and Fire: when the next attempt is due. 0 = at once.
	DueMs int64
	// Claim is given with AckLease, NackLease and ExtendLease.
	Claim *LeaseUpdate
}

// LateMs is how far past a time must be for the add of it to count as late.
const LateMs = 60_000

// Merge says what becomes of an add whose id is in use. The values are part of the log format.
//
// When the id is scheduled: Keep leaves the pending timer as it is; Replace puts the new one in its place; Debounce too, but no
// later than the moment of the first add + the longest wait. When it is leased: all but Reject make the add the successor, which
// takes over when the running attempt has ended.
type Merge uint8

// The rules of API.md section 2.
const (
	MergeReject Merge = iota
	MergeKeep
	MergeReplace
	MergeDebounce
)

// LeaseUpdate names a lease, and says what its holder has to say. What it names came from a receipt, so it was once true.
type LeaseUpdate struct {
	Handle Handle
	Seq    uint64
	Fence  uint64

	LeaseMs int64 // ExtendLease: from now on; 0: as long as the topic gives
	// DelayMs is given with NackLease when HasDelay; without, the backoff says when the next attempt is due.
	DelayMs  int64
	HasDelay bool
	Reason   string // NackLease: the timer's last error; cut to 1 KiB
}
