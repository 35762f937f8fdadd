package timer

// Share says how many timers to take from a shard.
type Share struct {
	Shard  ShardID
	Timers int
}

// PulledTimer is a timer that a consumer has from now on. Its Fence and Handle name the lease.
type PulledTimer struct {
	Shard   ShardID
	Handle  Handle
	UntilMs int64 // end of the lease, by the leader's clock
	Timer   *Timer
}

// Candidate is a timer that is ready, as far as it matters for who pulls.
type Candidate struct {
	Shard    ShardID
	Priority uint8
	DueMs    int64
	Bytes    int // about, of its payload and the rest
}

// Before is the order in which timers are taken: priority, then due time. Arrival is known only within a shard.
func (o *Candidate) Before(p *Candidate) bool {
	if o.Priority != p.Priority {
		return o.Priority > p.Priority
	}
	return o.DueMs < p.DueMs
}
