package ring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"carillon/internal/feature"
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

// decodeCommand reads a command. ErrMalformed says that no build can, feature.ErrNewer that this
// one cannot: replicas that skipped commands that they do not know would diverge.
func decodeCommand(data []byte) (*Command, error) {
	if !json.Valid(data) {
		return nil, ErrMalformed
	}
	var c Command
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("a command that this build does not know: %w: %w", feature.ErrNewer, err)
	}
	switch c.Verb {
	case Ensure, Put:
		if c.Policy == nil {
			return nil, ErrMalformed
		}
	case Pause, Resume, Close, Reopen, Delete, Turn, Turned,
		Found, Register, SetState, Remove, Fence, Place, Reconciled, SetSecret, Reseal, SetReplicas, Finalize:
	default:
		return nil, fmt.Errorf("verb %q, which this build does not know: %w", c.Verb, feature.ErrNewer)
	}
	return &c, nil
}
