package timer

// Op is one command of DoAll, with its answer.
type Op struct {
	Shard ShardID
	// Place decides the shard of a command without an id, should the number of shards grow: that
	// is 1 + (Place - 1) mod the number. 0: it stays Shard.
	Place   uint64
	Command *Command
	Brief   bool
	// for the Timer of the answer, unless the command has created it; nil: unbounded. If it does
	// not fit it is left out
	Room Room

	Result Result
	Err    error
}

// Code is the result of a command.
type Code uint8

// The answers of a command.
const (
	Created Code = 1 + iota // 201
	// 200: this add was repeated; Timer is its current state, possibly ended
	Same
	OK // 200: changed
	// 200: cancelled, no attempt starts after this (also for a repeated cancel)
	Prevented
	CancelInFlight  // 202: a call is running, no further one starts
	Exists          // 409: the id is in use with other content
	InFlight        // 409: leased
	OverFired       // 410: already fired
	OverDead        // 410: dead
	OverCancelled   // 410: cancelled (Modify, Fire)
	NotFound        // 404
	VersionMismatch // 412
	TopicClosed     // the topic is being deleted, or its id is from a former life
	NotEmpty        // CloseTopic without Force
	Skipped         // Redrive, Purge: there is no such dead letter
	// 200: merged with the timer that has the id, by the add's merge rule
	Merged
	// 410: the due time is past by more than LateMs, and the command was NotLate
	TooLate
	// Redrive: another timer has the id by now. CloseTopic without Force: pending timers, Removed
	// of them, name the topic for their outcomes.
	InUse
	TooMany // Redrive: as many timers of the id as may be have not ended
	// Redrive: neither the dead letter nor its topic has a callback URL. No shard answers so: the
	// node that walks the dead letters knows the topic.
	NoCallback
	// Cancel: the rest of the id's timers is left to a later entry. It stays in the shard, which
	// proposes the cancel again.
	Partly
)

// Result answers a command, or another item of a batch.
type Result struct {
	Code Code
	// Unchanged: all was as the command wanted it, and it has changed nothing. True of each Same,
	// too.
	Unchanged bool
	// the timer's slot, as named by the item, or where the command found or put it; 0: none
	Handle Handle
	Fence  uint64 // of a granted lease; CloseTopic without Force: the last fence of the shard
	Timer  *Timer // after the command; nil: there is none, or the command was brief
	// CloseTopic: dropped timers (Handle is where to continue if there are more). Deliver: timers
	// that are leased otherwise
	Removed int
	// For Created: the timer's sequence number, version and time of creation. Together with the
	// command they describe the whole timer.
	Seq     uint64
	Version uint32
	AtMs    int64
	// Origin is the shard that gave the number.
	Origin ShardID
}
