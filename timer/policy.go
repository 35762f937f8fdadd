package timer

// Topic is a topic as the meta group has it. Values are immutable once published.
type Topic struct {
	ID          TopicID
	Name        string
	Policy      Policy
	Paused      bool
	AutoCreated bool
	Closing     bool // being deleted: adds wait
	ForceClose  bool // … with all that is in it
	CreatedMs   int64
	UpdatedMs   int64
	// Turn numbers the changes of delivery that were begun. While Turning, shards may lease nothing of the topic.
	Turn    uint32 `json:",omitempty"`
	Turning bool   `json:",omitempty"`
}

// Policy is how a topic delivers: every field of API.md section 3, defaults filled in. It is held by the meta
// group; a leader reads it when it decides what to fire and what becomes of an attempt, and writes the
// decision (not the policy) into its shard's log. So tables need no policy, and a change takes effect at once.
type Policy struct {
	Callback Callback // default URL, method, headers, timeout

	MaxAttempts  int
	MinBackoffMs int64
	MaxBackoffMs int64
	Multiplier   float64
	Jitter       float64

	StopOn []int

	Merge     Merge // of adds that say none
	MaxWaitMs int64 // of adds by MergeDebounce that say none; 0 = unbounded
	ByContent bool  // an add without an id gets one made of topic, payload and URL

	Serial      bool // one lease per key, in (due, arrival) order; priority is not used
	Ordered     bool // … the whole topic being one key, in one shard
	Concurrency int  // leases at once in the whole cluster; 0 = unlimited
	Rate        Rate // deliveries in the whole cluster
	SpreadMs    int64

	Pull    bool  // consumers fetch the timers; else they are called
	Report  bool  // a 202 leaves the timer with the receiver, until it reports
	LeaseMs int64 // how long a consumer has a timer; 0 (from before there was such a field): DefaultLeaseMs; see LeaseFor

	Breaker                Breaker
	OwnBreaker             bool // the topic set `breaker`: it has its own per destination
	DestinationConcurrency int

	HistoryMs       int64
	DeadRetentionMs int64
	Secrets         []string // as given: whsec_…

	// CloudEvents has calls carry what CloudEvents 1.0 asks for in their headers (binary mode), beside our own.
	CloudEvents bool `json:",omitempty"`
	// SigningKeys sign calls so that receivers need no secret to check them. The newest is the first.
	SigningKeys []SigningKey `json:",omitempty"`
}

// SigningKey is an ed25519 key. Its public half is for everybody to see.
type SigningKey struct {
	Private string // as given: whsk_…; or sealed
	Public  string // whpk_…
}

// DefaultPolicy is the policy of a topic that says nothing.
func DefaultPolicy() Policy {
	return Policy{
		Callback:    Callback{Method: "POST", TimeoutMs: 10_000},
		MaxAttempts: 16, MinBackoffMs: 1_000, MaxBackoffMs: 3_600_000, Multiplier: 2, Jitter: 0.2,
		StopOn:                 []int{410},
		LeaseMs:                DefaultLeaseMs,
		Breaker:                Breaker{Failures: 5, WindowMs: 10_000, OpenMs: 5_000, Probes: 1},
		DestinationConcurrency: 256,
		HistoryMs:              72 * 3_600_000,
		DeadRetentionMs:        720 * 3_600_000,
	}
}

// A consumer's lease is one that no call of a node's ends: a pull took it, or a receiver answered 202 and reports later. It lasts, whoever
// leads, for its length on the leader's monotonic clock: from when this leader saw it applied, or from the takeover on. Its holder is not
// this cluster's, so no process's end says anything about it.

// DefaultLeaseMs is how long a consumer holds a timer when neither it nor its topic says.
const DefaultLeaseMs = 30_000

// Breaker is the policy of a destination's circuit breaker.
type Breaker struct {
	Failures int
	WindowMs int64
	OpenMs   int64
	Probes   int
}

// Rate bounds deliveries; the zero value bounds nothing.
type Rate struct {
	PerSecond float64
	Burst     int
}

// InOrder reports that timers of one key go one at a time.
func (p *Policy) InOrder() bool { return p.Serial || p.Ordered }

// Limited reports that what is delivered at once, or in a second, is bounded in the whole cluster.
func (p *Policy) Limited() bool { return p.Concurrency > 0 || p.Rate.PerSecond > 0 }

// LeaseFor is how long a consumer has a timer.
func (p *Policy) LeaseFor() int64 {
	if p.LeaseMs == 0 {
		return DefaultLeaseMs
	}
	return p.LeaseMs
}
