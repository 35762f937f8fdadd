package ring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"carillon/shard/feature"
	"carillon/timer"
)

// ErrMalformed is answered to a command that no build can read.
var ErrMalformed = errors.New("the command is malformed")

// Encode makes the bytes that the host carries. A policy is complete in them: the policy of a new
// topic is the proposer's, not each replica's own default.
func (c *Command) Encode() []byte {
	if c.Verb == Ensure && c.Policy == nil {
		policy := timer.DefaultPolicy()
		with := *c
		with.Policy = &policy
		c = &with
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("ring: encode command: %v", err)) // plain data: cannot happen
	}
	return b
}

// firstPolicy has the values of the fields of a policy that an entry does not have: the defaults of
// the builds that wrote such entries. It never changes; a field that comes later is zero in them.
func firstPolicy() timer.Policy {
	return timer.Policy{
		Callback:    timer.Callback{Method: "POST", TimeoutMs: 10_000},
		MaxAttempts: 16, MinBackoffMs: 1_000, MaxBackoffMs: 3_600_000, Multiplier: 2, Jitter: 0.2,
		StopOn:                 []int{410},
		LeaseMs:                30_000,
		Breaker:                timer.Breaker{Failures: 5, WindowMs: 10_000, OpenMs: 5_000, Probes: 1},
		DestinationConcurrency: 256,
		HistoryMs:              72 * 3_600_000,
		DeadRetentionMs:        720 * 3_600_000,
	}
}

// decodeCommand reads a command. ErrMalformed says that no build can, shard.ErrNewer that this one
// cannot: replicas that skipped commands that they do not know would diverge.
func decodeCommand(data []byte) (*Command, error) {
	if !json.Valid(data) {
		return nil, ErrMalformed
	}
	var c Command
	policy := firstPolicy()
	c.Policy = &policy
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("a command that this build does not know: %w: %w", feature.ErrNewer, err)
	}
	if c.Policy == nil { // it said null
		c.Policy = &policy
	}
	if c.level() == 0 {
		return nil, fmt.Errorf("verb %q, which this build does not know: %w", c.Verb, feature.ErrNewer)
	}
	return &c, nil
}
