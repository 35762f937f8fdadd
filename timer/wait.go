package timer

// WaitCause is the reason why a timer's next attempt does not start. The values are part of the
// protocol between nodes.
type WaitCause uint8

// The causes, in the order in which they are checked. A timer has the first that applies.
const (
	NoWait          WaitCause = iota
	WaitBackoff               // the time of its next attempt has not come
	WaitPaused                // its topic is paused
	WaitSpread                // its topic spreads timers that are due at one instant
	WaitKey                   // another timer of its key goes first, or its key's limit is reached
	WaitConsumer              // its topic is pulled, and no consumer has pulled it
	WaitBreaker               // the breaker of its destination is not closed
	WaitConcurrency           // its topic's concurrency limit is reached
	WaitRate                  // its topic's rate limit is reached
	WaitSlots                 // the call limit of its destination, or of the node, is reached
	WaitZone                  // its time zone is unknown to the release of the leader; checked first
	WaitWindow                // its topic's window is not open
	WaitNoCallback            // neither it nor its topic has a callback URL
	WaitRefused               // its last call was refused an address; goes before WaitBackoff
	WaitLeader                // its shard has no leader, or that cannot start calls, or has started none for a second
	WaitHeld                  // a client holds it; goes before all others
	WaitKeyRate               // the rate of its key is reached
	WaitBatch                 // its call is neither full nor is its wait over; see Batch
	WaitOrder                 // an earlier timer of its id has not ended; goes right after WaitHeld
	WaitTurn                  // its leader starts others first, as fast as it can; checked last

	waitCauses
)

// waitNames are the causes in answers.
var waitNames = [waitCauses]string{
	"", "backoff", "topic_paused", "spread", "key", "consumer", "breaker", "concurrency", "rate", "slots",
	"zone", "window", "no_callback", "refused_address", "leader", "paused", "key_rate", "batch", "order", "turn",
}

// String is the cause in answers; "" of NoWait, and of a cause that this build does not know.
func (w WaitCause) String() string {
	if !w.Known() {
		return ""
	}
	return waitNames[w]
}

// Known reports whether this build knows the cause; that of a later one it does not.
func (w WaitCause) Known() bool { return w < waitCauses }

// WaitCauses are all causes but NoWait.
func WaitCauses() []WaitCause {
	all := make([]WaitCause, 0, waitCauses-1)
	for w := NoWait + 1; w < waitCauses; w++ {
		all = append(all, w)
	}
	return all
}

// Waiting counts timers by what they wait for.
type Waiting [waitCauses]int64

// Wait is why a timer that is due, or between attempts, is not delivered now. It is not part of the
// timer's state: the leader of its shard derives it from its queues on request.
type Wait struct {
	For WaitCause
	On  string // the awaited object, in words; "" if the cause is enough
}

// Progress is what a leader knows of a timer in addition to its state.
type Progress struct {
	Wait
	Attempts []HistoryAttempt // recorded attempts, oldest first, if they were requested
}

// ProgressQuery asks the leader of a shard for the progress of some timers of a topic.
type ProgressQuery struct {
	Topic    TopicID
	IDs      []string
	Attempts bool
}

// AttemptLog is how many attempts of a timer are reported at most: the newest.
const AttemptLog = 100
