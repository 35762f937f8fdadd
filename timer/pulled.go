package timer

import "cmp"

// Share is how many timers to pull from a shard.
type Share struct {
	Shard  ShardID
	Timers int
}

// PulledTimer is a timer that a consumer has just leased. Fence and Handle identify the lease.
type PulledTimer struct {
	Shard   ShardID
	Handle  Handle
	UntilMs int64 // end of the lease, by the leader's clock
	Timer   *Timer
}

// Candidate is a ready timer with the fields that a pull needs to choose.
type Candidate struct {
	Shard    ShardID
	Priority uint8
	DueMs    int64
	Bytes    int // approximate size of its payload and the rest
}

// Compare orders timers for pulls: by priority, then due time. Their arrival is known only within a
// shard.
func (c Candidate) Compare(p Candidate) int {
	return cmp.Or(cmp.Compare(p.Priority, c.Priority), cmp.Compare(c.DueMs, p.DueMs))
}
