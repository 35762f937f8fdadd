package timer

import (
	"strings"
)

// Query selects timers of one topic in one shard, in the order (SortMs, ID, Seq).
type Query struct {
	Topic  TopicID
	States uint8 // bit 1<<State
	// ByEnd sorts and filters by the time of the end (dead letters, history) instead of the due
	// time (list).
	ByEnd          bool
	FromMs, ToMs   int64 // [FromMs, ToMs); ToMs 0 = open
	Labels         []string
	IDPrefix       string
	Reason         Reason   // NoReason = any
	After          *SortKey // only timers after this place
	Limit          int
	WithoutPayload bool
	// Of is the number of shards that the asker counts with; 0: any. Where it is another by now the
	// answer is ErrShards.
	Of int

	// Bytes is about how many bytes of the page's timers are returned in full; the rest are Short.
	// 0: all. Room is also asked if the query is answered in the asking process; nil: it is not.
	Bytes int
	Room  Room

	// Only is asked by the shard for the timers of which ids it answers; nil: of all. It is not
	// sent to other nodes.
	Only func(id []byte) bool
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
	// how long the oldest ready timer has been due, in ms
	OldestOverdueMs int64
	NoURL           int64   // scheduled or leased, without a callback URL of their own
	Waiting         Waiting // due timers that are not started, by what they wait for
}

// Compare orders two places by time, id and number.
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

// Ref is a timer as a walk reports it: enough to decide about it, and to change only this version.
type Ref struct {
	ID      string
	Seq     uint64
	Origin  ShardID // that gave the number, see Timer
	Tag     uint32
	Version uint32
	Leased  bool  // a call has started; a timer leased ahead of its due time does not count
	DueMs   int64 // as clients see it
	NextMs  int64 // time of its next attempt, if it is scheduled
	NoURL   bool  // it is dead, and has no callback URL of its own
	Paused  bool  // a client holds it
}
