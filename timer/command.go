package timer

// Kind is the kind of a client's change. The values are part of the log format.
type Kind uint8

// The changes that a client can make to a timer, and an operator to dead letters and topics.
const (
	Add     Kind = 1 + iota
	Put          // create or replace the whole timer
	Modify       // PATCH
	Cancel       // DELETE
	Fire         // attempt it now
	Redrive      // dead → scheduled, attempts restart
	Purge        // forget a dead letter
	// refuse adds; with Force drop all timers of the topic, without it fail if any is pending or
	// dead
	CloseTopic
	OpenTopic // undo CloseTopic
	// set the topic's delivery: only pulls may lease, or none may; refused while timers are leased
	// otherwise
	Deliver
	Pause  // hold a scheduled timer: no attempt starts
	Resume // undo Pause
)

// Updates by the consumer that holds a lease, from a pull or since it answered a call with 202
// (report mode). These kinds travel between nodes like any command but are never in a log: the
// leader turns each into an outcome by the topic's policy.
const (
	AckLease    Kind = 0x40 + iota // done
	NackLease                      // try again later, or give up
	ExtendLease                    // hold it longer
	// the timer did not reach its consumer: the attempt does not count
	ReturnLease
)

// UpdatesLease reports whether a command of this kind is about a lease.
func (k Kind) UpdatesLease() bool { return k >= AckLease && k <= ReturnLease }

// Command is one client change to one timer (from CloseTopic on: to one topic in one shard). It is
// decided when it is applied, in log order, so its answer is final.
type Command struct {
	Kind  Kind
	Topic TopicID
	ID    string

	// IfMatch is the version that the timer must have; 0: any.
	IfMatch uint32
	// Seq is the number of a timer among those of the id. With Redrive and Purge it is that of a
	// dead letter; 0: the last one of the version in IfMatch. With Modify it is that of a timer
	// that has not ended; 0: the newest. So it is with Pause and Resume. Cancel ends one that is
	// not the newest alone, none if the one is gone, and otherwise all of the id.
	Seq uint64
	// CreateOnly (Put) answers VersionMismatch when the id is in use (If-None-Match: *).
	CreateOnly bool
	// Force goes with CloseTopic: all timers of the topic are dropped. Work bounds one step: each
	// slot costs 1, each dropped timer 16 more; 0: no bound. From continues after the Handle in the
	// answer to the previous step.
	Force bool
	Work  uint32
	From  Handle
	// Turn and Pull go with Deliver: the number of the change, and the new delivery.
	Turn uint32
	Pull bool
	// Absolute (Add, Put): the time was given as an instant, not as a delay. Then a repeated one
	// returns the finished timer instead of firing again, for ten minutes after the timer's end. If
	// the instant is more than LateMs past, it does so for as long as the table keeps the timer.
	Absolute bool
	// Once (Add): the id is used for this one add only. While the table remembers the timer's end,
	// an add with other content is answered Exists instead of making another timer.
	Once bool
	// Shift (Modify with a due time): a pending retry or a redrive's delay is kept. The next
	// attempt is at the later of it and the new due time.
	Shift bool
	// NotLate (Add, Put): answer TooLate if the due time is more than LateMs past.
	NotLate bool
	// Merge (Add) is the rule for an id that is in use. MaxWaitMs goes with MergeDebounce, 0:
	// unbounded, and with MergeCollect, 0: an add does not move the time.
	Merge     Merge
	MaxWaitMs int64

	// Tag is the random part of the uid of a timer that Add or Put creates.
	Tag uint32
	// Content is a hash of an Add or Put as the client sent it (without defaults, a delay as a
	// delay). It recognises a repeated add.
	Content uint64
	// Spec is given with Add and Put. The table copies the parts that it keeps.
	Spec *Spec
	// Into is memory for the timer in the answer to an Add or Put that creates one; nil: it is
	// allocated. It is not sent to other nodes.
	Into *Timer
	// Patch is given with Modify, and with Redrive (callback only).
	Patch *Patch
	// DueMs goes with Redrive: the time of the next attempt in Unix ms. It goes with Fire: the time
	// at which somebody asked, and with Resume: the time by which occurrences were missed. 0: now.
	DueMs int64
	// Claim is given with AckLease, NackLease and ExtendLease.
	Claim *LeaseUpdate
}

// Merge is the rule for an add with an id that is in use. The values are part of the log format.
//
// If the id is scheduled: Keep leaves the pending timer as it is; Replace replaces it; Debounce
// replaces it too, but is due no later than the first add plus the longest wait. If the id is
// leased, all rules but Reject make the add the successor, which takes over when the running
// attempt has ended.
//
// Collect appends the payload to those of the pending timer, which are sent as one JSON array. An
// array takes no more once it is full or has been attempted: the add then begins the next one,
// which is a timer of its own and waits until those before it have ended.
type Merge uint8

// The merge rules (API.md section 2).
const (
	MergeReject Merge = iota
	MergeKeep
	MergeReplace
	MergeDebounce
	MergeCollect
)

// LeaseUpdate is an update by the holder of a lease. Handle, Seq and Fence come from its receipt.
type LeaseUpdate struct {
	Handle Handle
	Seq    uint64
	Fence  uint64

	LeaseMs int64 // ExtendLease: milliseconds from now; 0: the topic's lease time
	// DelayMs is given with NackLease if HasDelay; otherwise the backoff decides when the next
	// attempt is due.
	DelayMs  int64
	HasDelay bool
	Reason   string // NackLease: the timer's last error; cut to 1 KiB
}
