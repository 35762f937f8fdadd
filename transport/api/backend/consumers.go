package backend

import (
	"context"
	"time"

	"carillon/timer"
)

// Consumers is the part of a node that the API needs for consumers of pull topics, and for
// receivers that report later. Its rules are those of Timers.
type Consumers interface {
	// Pull leases up to p.Max ready timers of a topic, and waits for some if there are none; none
	// after that. When the context ends it returns none, and the timers that it had leased go back.
	Pull(ctx context.Context, topic timer.TopicID, p Pull) ([]Pulled, error)
	// Return gives leases back that nobody has used. They do not count, and go to the next
	// consumer. A lease that cannot be given back runs out.
	Return(ctx context.Context, topic timer.TopicID, leases []Pulled)
	// UpdateLease reports for each receipt whether its lease was still held, and then did as asked.
	// After an error it has those of which that is certain, and it is open for the others.
	UpdateLease(ctx context.Context, c LeaseUpdate) ([]bool, error)
}

// Pull is the request of a consumer.
type Pull struct {
	Max     int
	Wait    time.Duration
	LeaseMs int64 // 0: the topic's
}

// Pulled is a timer that a consumer has, with the proof of it.
type Pulled struct {
	Timer   *timer.Timer
	Receipt string
	UntilMs int64 // end of the lease
}

// LeaseUpdate is a consumer's change of leases. Kind is timer.AckLease, NackLease or ExtendLease.
type LeaseUpdate struct {
	Kind     timer.Kind
	Receipts []string
	Sees     func(topic string) bool // the client may know of the topic

	LeaseMs  int64 // ExtendLease; 0: the topic's
	DelayMs  int64 // NackLease, when HasDelay
	HasDelay bool
	Reason   string
}
