package timer

// Op is one command of DoAll, and its answer.
type Op struct {
	Shard   ShardID
	Command *Command
	Brief   bool
	Room    Room // for the Timer of the answer, unless the command has created it; nil: there is. Without room it is left out

	Result Result
	Err    error
}

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
