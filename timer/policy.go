package timer

import (
	"cmp"
	"strings"
)

// Topic is a topic in the meta group's state. Values are immutable once published.
type Topic struct {
	ID          TopicID
	Name        string
	Policy      Policy
	Paused      bool
	AutoCreated bool
	Closing     bool // it is being deleted: adds wait
	ForceClose  bool // … with all its timers
	CreatedMs   int64
	UpdatedMs   int64
	// Version grows with each change that a client could see.
	Version uint32
	// Turn numbers the changes of delivery that were begun. While Turning is set, shards may lease
	// no timer of the topic.
	Turn    uint32 `json:",omitempty"`
	Turning bool   `json:",omitempty"`
}

// TopicChange identifies the topic that a change of its policy, or its deletion, is for.
type TopicChange struct {
	// That version of that life of the topic and no other; 0: any.
	ID      TopicID
	Version uint32
	New     bool // the topic must not be there
	Force   bool // even if timers or receivers need what the change takes away
	DryRun  bool // change nothing; the answer is the topic as it would be, with its present version
	// FormerIDs is set by a change of the topic's key: how many pending timers keep their ids.
	FormerIDs *int64
}

// Policy is a topic's delivery policy: every field of API.md section 3, with defaults filled in.
// The meta group holds it. A leader reads it when it decides about firing and about the result of
// an attempt, and writes the decision (not the policy) into its shard's log. So tables need no
// policy, and a change takes effect at once.
type Policy struct {
	Callback Callback // default URL, method, headers, timeout

	Backoff

	StopOn []int

	MergePolicy
	ByContent bool // an add without an id gets one from topic, payload and URL

	Serial bool // one lease per key, in (due, arrival) order; priority is not used
	// Key is the key of adds that name none and whose id has no braces; see Policy.FullID.
	Key         string `json:",omitempty"`
	Concurrency int    // leases at once in the whole cluster; 0: unlimited
	Rate        Rate   // deliveries in the whole cluster
	// PerKey bounds each key, and has keys take turns; nil: neither.
	PerKey   *PerKey `json:",omitempty"`
	SpreadMs int64

	Pull   bool // consumers pull the timers; otherwise nodes call
	Report bool // after a 202 the receiver keeps the timer until it reports
	// lease time of a consumer; 0: DefaultLeaseMs, see LeaseFor
	LeaseMs int64

	// RejectLate refuses adds without a rule of their own if their absolute time is past.
	RejectLate bool `json:",omitempty"`
	// Window is when attempts may start; nil: always.
	Window *Window `json:",omitempty"`
	OutcomesOf
	// Batch has one call attempt many timers; nil: each has its own.
	Batch *Batch `json:",omitempty"`

	Breaker                Breaker
	OwnBreaker             bool // the topic set `breaker`: it has its own per destination
	DestinationConcurrency int

	Retention
	Secrets []string // as given: whsec_…

	// CloudEvents adds the headers of CloudEvents 1.0 (binary mode) to calls, in addition to our
	// own.
	CloudEvents bool `json:",omitempty"`
	// SigningKeys sign calls so that receivers need no secret to check them. The newest is the
	// first.
	SigningKeys []SigningKey `json:",omitempty"`
}

// Retention is what is kept of timers and calls, and how long.
type Retention struct {
	HistoryMs       int64
	DeadRetentionMs int64
	NoAnswers       bool `json:",omitempty"` // no text that receivers answer
}

// MergePolicy is what becomes of an add whose id is in use. Policy embeds it, so its values are in
// the log as Policy's own.
type MergePolicy struct {
	Merge     Merge // for adds that name no rule
	MaxWaitMs int64 // for adds with MergeDebounce or MergeCollect that give none; 0: none
	// CollectMax is for adds with MergeCollect that give none; 0: DefaultCollectMax.
	CollectMax int `json:",omitempty"`
}

// SigningKey is an ed25519 key pair. The public half may be shown to anybody.
type SigningKey struct {
	Private string // as given: whsk_…; or sealed
	Public  string // whpk_…
}

// DefaultPolicy is the policy of a topic without settings.
func DefaultPolicy() Policy {
	return Policy{
		Callback:               Callback{Method: "POST", TimeoutMs: 10_000},
		Backoff:                Backoff{MaxAttempts: 16, MinBackoffMs: 1_000, MaxBackoffMs: 3_600_000, Multiplier: 2, Jitter: 0.2},
		StopOn:                 []int{410},
		LeaseMs:                DefaultLeaseMs,
		Breaker:                Breaker{Failures: 5, WindowMs: 10_000, OpenMs: 5_000, Probes: 1},
		DestinationConcurrency: 256,
		Retention:              Retention{HistoryMs: 72 * 3_600_000, DeadRetentionMs: 720 * 3_600_000},
	}
}

// A consumer's lease is a lease that no call of a node ends: from a pull, or after a receiver
// answered 202 and reports later. It lasts for its time on the leader's monotonic clock, counted
// from when this leader saw it applied, or from its takeover. Its holder is outside of the cluster,
// so the end of a process does not end it.

// DefaultLeaseMs is the lease time of a consumer if neither the consumer nor the topic gives one.
const DefaultLeaseMs = 30_000

// Breaker is the policy of a destination's circuit breaker.
type Breaker struct {
	Failures int
	WindowMs int64
	OpenMs   int64
	Probes   int
}

// Backoff is how often a timer is attempted, and how long the waits are.
type Backoff struct {
	MaxAttempts  int
	MinBackoffMs int64
	MaxBackoffMs int64
	Multiplier   float64
	Jitter       float64
}

// Batch is which timers of a shard one call attempts: those of the same URL, method and time-out.
type Batch struct {
	Max    int   // timers in a call
	WaitMs int64 // from the first one's due time, until the call goes although it is not full
	ByKey  bool  // only timers of one key
}

// Rate bounds deliveries; the zero value bounds nothing.
type Rate struct {
	PerSecond float64
	Burst     int
}

// OutcomesOf names the topics of outcomes, for timers that name none themselves; "": none.
type OutcomesOf struct {
	OnDone, OnDead string `json:",omitempty"`
}

// PerKey is a topic's policy for the timers of each key; those without a key share one.
// Values are immutable.
type PerKey struct {
	Concurrency int  `json:",omitempty"` // leases at once; 0: unlimited
	Rate        Rate `json:",omitzero"`  // deliveries
	Fair        bool `json:",omitempty"` // keys take turns, by weight
}

// Weights are a key's share of the turns, in a topic whose keys take turns.
const (
	DefaultWeight = 1
	MaxWeight     = 100
)

// KeyConcurrency is how many leases of one key there may be at once; 0: any number.
func (p *Policy) KeyConcurrency() int {
	switch {
	case p.Serial:
		return 1
	case p.PerKey == nil:
		return 0
	}
	return p.PerKey.Concurrency
}

// TakeTurns reports whether the topic's keys take turns.
func (k *PerKey) TakeTurns() bool { return k != nil && k.Fair }

// FullID is the id of a timer that a client calls id: in a topic with a key of its own one without
// braces has the topic's key in front. keyed reports that it was put there.
func (p *Policy) FullID(id string) (full string, keyed bool) {
	if p.Key == "" || strings.HasPrefix(id, "{") {
		return id, false
	}
	return "{" + p.Key + "}" + id, true
}

// Readdresses reports whether the plain id that leads to a timer leads elsewhere once the policy is
// next, so that an add of the plain id makes another timer. id is the timer's whole id.
func (p *Policy) Readdresses(id string, next *Policy) bool {
	plain := id
	if p.Key != "" {
		plain = strings.TrimPrefix(id, "{"+p.Key+"}")
	}
	before, _ := p.FullID(plain)
	after, _ := next.FullID(plain)
	return before == id && after != id
}

// CallsNobody reports whether timers of the topic that have no callback URL of their own have none
// at all.
func (p *Policy) CallsNobody() bool { return !p.Pull && p.Callback.URL == "" }

// Limited reports whether concurrency or rate are limited over the whole cluster.
func (p *Policy) Limited() bool { return p.Concurrency > 0 || p.Rate.PerSecond > 0 }

// keyless marks the id of a limit that is not its topic's; no topic has so high an id.
const keyless TopicID = 1 << 31

// Keyless is the limit of the topic's timers without a key, as that of a topic of its own; nil if
// there is none. They live in all shards, so they have their parts of it as a topic's timers have.
// In a serial topic each is a key of its own.
func (t *Topic) Keyless() *Topic {
	k := t.Policy.PerKey
	if k == nil || t.Policy.Serial {
		return nil
	}
	limit := &Topic{ID: t.ID | keyless, Policy: Policy{Concurrency: k.Concurrency, Rate: k.Rate}}
	if !limit.Policy.Limited() {
		return nil
	}
	return limit
}

// CollectFor is how many payloads make an array full.
func (p *MergePolicy) CollectFor() int {
	return cmp.Or(p.CollectMax, DefaultCollectMax)
}

// LeaseFor is the lease time of a consumer in ms.
func (p *Policy) LeaseFor() int64 {
	return cmp.Or(p.LeaseMs, DefaultLeaseMs)
}
