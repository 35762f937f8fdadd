package timer

import (
	"cmp"
)

// HistoryKey is a place in a topic's history: by the end, then by the entry that made it.
type HistoryKey struct {
	EndMs int64
	Index uint64
	Shard ShardID
	Item  uint32
}

// Compare orders two keys.
func (k HistoryKey) Compare(o HistoryKey) int {
	return cmp.Or(cmp.Compare(k.EndMs, o.EndMs), cmp.Compare(k.Index, o.Index), cmp.Compare(k.Shard, o.Shard), cmp.Compare(k.Item, o.Item))
}

// HistoryAttempt is how one attempt went.
type HistoryAttempt struct {
	Attempt            int
	StartedMs, EndedMs int64
	Status             int // 0 none
	Err                string
}

// HistoryEntry is a timer that has ended, as it was then, and its attempts, oldest first.
type HistoryEntry struct {
	Key       HistoryKey
	Timer     *Timer
	ByAttempt bool // its last attempt is what ended it
	Attempts  []HistoryAttempt
	Content   uint64 // Command.Content of the add or put that it is of; 0: not known. It stays on the node that keeps the entry
}

// HistoryQuery selects entries of one topic, in the order of their keys.
type HistoryQuery struct {
	Topic        TopicID
	Shards       []ShardID // of these shards only, in rising order; none: of all
	ID           string    // of this timer only; "" any
	Content      uint64    // goes with ID and Newest: the last that an add with this content made, of the id's last ContentDepth ends; 0 any
	States       uint8     // bit 1<<State, of Done, Dead, Cancelled
	FromMs, ToMs int64     // of the end, [FromMs, ToMs); ToMs 0 = open
	After        *HistoryKey
	Newest       bool // the last one alone
	Kept         bool // between nodes: what the one that is asked keeps of shards that it does not lead
	Limit        int
}

// ContentDepth is how many ends of an id are looked through for a content: an id that is used again and again has no end of them.
const ContentDepth = 64

// Missing is how many attempts came before those that the entry has.
func (e *HistoryEntry) Missing() int { return e.Timer.Attempts - len(e.Attempts) }

// Join puts earlier attempts into the entry. Given are those of its timer that were applied before its end, oldest first: when the
// timer was replaced or driven again its attempts began anew, and what was before that is not this entry's.
func (e *HistoryEntry) Join(earlier []HistoryAttempt) {
	next := e.Missing()
	from := len(earlier)
	for from > 0 && earlier[from-1].Attempt <= next {
		from--
		next = earlier[from].Attempt - 1
	}
	e.Attempts = append(append([]HistoryAttempt(nil), earlier[from:]...), e.Attempts...)
}
