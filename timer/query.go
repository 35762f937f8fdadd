package timer

import "math"

// Query selects timers of one topic, or of several, in some shards, in the order of SortKey.
type Query struct {
	Topic TopicID
	// Topics are listed instead of Topic, if there are any: in ascending order. AllTopics: of every
	// topic. Walks go by Topic alone.
	Topics    []TopicID
	AllTopics bool
	States    uint8 // bit 1<<State
	// ByEnd sorts and filters by the time of the end (dead letters, history) instead of the due
	// time (list).
	ByEnd          bool
	FromMs, ToMs   int64 // [FromMs, ToMs); ToMs 0 = open
	Labels         []string
	IDPrefix       string
	WholeID        bool     // IDPrefix is the whole id
	Reason         Reason   // NoReason = any
	After          *SortKey // only timers after this place
	Slots          SlotRange
	Limit          int
	WithoutPayload bool
	Waits          bool // the page has why its timers wait

	// Bytes is about how many bytes a page may have: it ends before the first timer that does not
	// fit. 0: any number. Room is also asked, in the asking process; nil: it is not.
	Bytes int
	Room  Room

	// Only is asked by the shard for the timers of which ids it answers; nil: of all. It is not
	// sent to other nodes.
	Only func(topic TopicID, id []byte) bool
}

// SlotRange is the part of each shard's slots at which a query looks: those behind From, up to To; To
// 0: all. A timer keeps its slot on every replica, and where its shard doubles. So ranges that follow
// each other have every timer that stays.
type SlotRange struct{ From, To Handle }

// ManyTopics reports whether the query is not of one topic alone.
func (q *Query) ManyTopics() bool { return q.AllTopics || len(q.Topics) > 0 }

// SortKey is a timer's place in the order of the query.
func (q *Query) SortKey(t *Timer) SortKey {
	k := SortKey{SortMs: t.DueMs, ID: t.ID, Seq: t.Seq}
	if q.ByEnd {
		k.SortMs = t.EndedMs
	}
	if q.ManyTopics() {
		k.Topic = t.Topic
	}
	return k
}

// Page is the beginning of what a query selects.
type Page struct {
	Timers []*Timer // in order
	Waits  []Wait   // of each of them, where the query asks for it
	// More: there may be more, the first of them at Next or behind it.
	More bool
	Next SortKey
	// Slots is the range in which Next is; To 0: it has no end yet.
	Slots SlotRange
}

// RangeEnd is behind all timers of a range of slots: there are more slots.
var RangeEnd = SortKey{SortMs: math.MaxInt64}

// Cut ends a page before its timer i.
func (p *Page) Cut(q *Query, i int) {
	p.More, p.Next = true, q.SortKey(p.Timers[i])
	if p.Timers = p.Timers[:i]; p.Waits != nil {
		p.Waits = p.Waits[:i]
	}
}

// Step is a part of a walk through the timers of one shard, and its outcome.
type Step struct {
	Shard ShardID
	At    ScanCursor // where it begins; then, where the next one does
	Refs  []Ref
	// Refused: the node that was asked does not lead the shard. The step is to be asked for again.
	Refused bool
}

// Counts are the timers of one topic in one shard.
type Counts struct {
	Scheduled, Ready, Leased, Done, Dead int64
	// how long the oldest ready timer has been due, in ms
	OldestOverdueMs int64
	NoURL           int64   // scheduled or leased, without a callback URL of their own
	Waiting         Waiting // due timers that are not started, by what they wait for
}

func (c *Counts) Add(o *Counts) {
	c.Scheduled += o.Scheduled
	c.Ready += o.Ready
	c.Leased += o.Leased
	c.Done += o.Done
	c.Dead += o.Dead
	c.OldestOverdueMs = max(c.OldestOverdueMs, o.OldestOverdueMs)
	c.NoURL += o.NoURL
	for cause, n := range o.Waiting {
		c.Waiting[cause] += n
	}
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
