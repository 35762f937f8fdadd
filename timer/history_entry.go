package timer

import (
	"cmp"
)

// HistoryKey is a place in a topic's history, ordered by the end and then by the log entry that
// made it.
type HistoryKey struct {
	EndMs int64
	Index uint64
	Shard ShardID
	Item  uint32
}

func (k HistoryKey) Compare(o HistoryKey) int {
	return cmp.Or(cmp.Compare(k.EndMs, o.EndMs), cmp.Compare(k.Index, o.Index), cmp.Compare(k.Shard, o.Shard), cmp.Compare(k.Item, o.Item))
}

// HistoryAttempt is the result of one attempt.
type HistoryAttempt struct {
	Attempt            int
	StartedMs, EndedMs int64
	Status             int // HTTP status; 0: none
	Err                string
	Answer             *Answer // of the receiver, if the attempt failed; nil: none
}

// Size is about how many bytes an attempt takes in memory.
func (a *HistoryAttempt) Size() int { return 64 + len(a.Err) + a.Answer.Size() }

// HistoryEntry is a timer at its end, with its attempts, oldest first.
type HistoryEntry struct {
	Key       HistoryKey
	Timer     *Timer
	ByAttempt bool // its last attempt ended it
	Attempts  []HistoryAttempt
	Content   uint64 // Command.Content of its add or put; 0: not known. Not sent to other nodes
}

// HistoryQuery selects entries of one topic, in the order of their keys.
type HistoryQuery struct {
	Topic  TopicID
	Shards []ShardID // of these shards only, in rising order; none: of all
	ID     string    // of this timer only; "": any
	// with ID and Newest: the newest end, of the id's last ContentDepth, that an add with this
	// content made; 0: any
	Content      uint64
	States       uint8 // bit 1<<State, for Done, Dead, Cancelled
	FromMs, ToMs int64 // of the end, [FromMs, ToMs); ToMs 0: open
	After        *HistoryKey
	Newest       bool // only the newest
	Sure         bool // fail rather than leave out a node that does not answer. Not sent to nodes
	Kept         bool // between nodes: also entries of shards that the asked node does not lead
	Limit        int
}

// ContentDepth is how many ends of an id are searched for a content: an id may be used without
// limit.
const ContentDepth = 64

// Missing is how many attempts came before those in the entry.
func (e *HistoryEntry) Missing() int { return e.Timer.Attempts - len(e.Attempts) }

// Join adds earlier attempts to the entry. earlier holds the timer's attempts that were applied
// before its end, oldest first. If the timer was replaced or redriven its attempts started again,
// and the ones before that do not belong to this entry.
func (e *HistoryEntry) Join(earlier []HistoryAttempt) {
	next := e.Missing()
	from := len(earlier)
	for from > 0 && earlier[from-1].Attempt <= next {
		from--
		next = earlier[from].Attempt - 1
	}
	e.Attempts = append(append([]HistoryAttempt(nil), earlier[from:]...), e.Attempts...)
}
