package timer

// WaitCause is what keeps a timer from its next attempt. The values are part of the protocol
// between nodes.
type WaitCause uint8

// The causes, in the order in which they are looked for. A timer has the first that holds.
const (
	NoWait          WaitCause = iota
	WaitBackoff               // the time of its next attempt has not come
	WaitPaused                // its topic is paused
	WaitSpread                // its topic spreads what is due at one instant
	WaitKey                   // another timer of its key goes first
	WaitConsumer              // its topic is pulled, and nobody has pulled it
	WaitBreaker               // the breaker of its destination is not closed
	WaitConcurrency           // as many timers of its topic are leased as may be
	WaitRate                  // its topic has had the deliveries that its rate brings
	WaitSlots                 // its destination, or the node, has as many calls as may be
)

// Wait says why a timer that is due, or between attempts, is not delivered now. It is no part of
// the timer's state: the leader of its shard reads it off its queues when somebody asks.
type Wait struct {
	For WaitCause
	On  string // what is waited on, in words; "" where the cause says it all
}

// Progress is what a shard's leader knows of a timer beside its state.
type Progress struct {
	Wait
	Attempts []HistoryAttempt // as far as they are recorded, oldest first; when they were asked for
}

// ProgressQuery asks the leader of a shard for the progress of some timers of a topic.
type ProgressQuery struct {
	Topic    TopicID
	IDs      []string
	Attempts bool
}

// AttemptLog is how many attempts of a timer are told at most: the last ones.
const AttemptLog = 100
