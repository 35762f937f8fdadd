package timer

import (
	"strings"
)

// Query selects timers of one topic in one shard, in the order (SortMs, ID, Seq).
type Query struct {
	Topic  TopicID
	States uint8 // bit 1<<State
	// Sorted and filtered by due time (list), or by the time of the end (dead letters, history).
	ByEnd          bool
	FromMs, ToMs   int64 // [FromMs, ToMs); ToMs 0 = open
	Labels         []string
	IDPrefix       string
	Reason         Reason   // NoReason = any
	After          *SortKey // only what comes after this
	Limit          int
	WithoutPayload bool

	// Bytes is how much of the page's timers is given whole, about; the rest is Short. 0: all. Room is asked, too, where the query is answered
	// in the process that asks; nil: it is not.
	Bytes int
	Room  Room
}

// SortKey is a timer's place in the order of the query.
func (q *Query) SortKey(t *Timer) SortKey {
	if q.ByEnd {
		return SortKey{t.EndedMs, t.ID, t.Seq}
	}
	return SortKey{t.DueMs, t.ID, t.Seq}
}

// SortKey is a place in the order of a Query.
type SortKey struct {
	SortMs int64
	ID     string
	Seq    uint64
}

// Counts are the timers of one topic in one shard.
type Counts struct {
	Scheduled, Ready, Leased, Done, Dead int64
	OldestOverdueMs                      int64 // how long the oldest ready one has been due
}

// Compare orders two places: by time, id, number.
func (k SortKey) Compare(o SortKey) int {
	switch {
	case k.SortMs != o.SortMs:
		if k.SortMs < o.SortMs {
			return -1
		}
		return 1
	case k.ID != o.ID:
		return strings.Compare(k.ID, o.ID)
	case k.Seq < o.Seq:
		return -1
	case k.Seq > o.Seq:
		return 1
	}
	return 0
}

// Ref is what a walk says of a timer: enough to judge it, and to change just what was seen.
type Ref struct {
	ID      string
	Version uint32
	Leased  bool  // a call has started; one that is leased ahead of its time is not
	DueMs   int64 // as clients see it
	NextMs  int64 // when its next attempt is, if it is scheduled
}
