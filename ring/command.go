package ring

import (
	"encoding/json"
	"fmt"

	"carillon/shard"
)

// Verb is what a command does to a topic.
type Verb string

// The verbs. They are part of the log format, as are the JSON names below.
const (
	Ensure Verb = "ensure" // make it with the default policy, unless it is there
	Put    Verb = "put"    // set the policy, making the topic if need be
	Pause  Verb = "pause"
	Resume Verb = "resume"
	Close  Verb = "close"  // refuse adds: it is about to be deleted
	Reopen Verb = "reopen" // undo Close
	Delete Verb = "delete" // only when closed
)

// Command is one change to one topic.
type Command struct {
	Verb   Verb          `json:"verb"`
	Name   string        `json:"name"`
	ID     shard.TopicID `json:"id,omitempty"` // Close, Reopen, Delete: that life of the topic and no other
	Force  bool          `json:"force,omitempty"`
	Policy *shard.Policy `json:"policy,omitempty"`
}

// Encode makes the bytes that the host carries.
func (c *Command) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("ring: encode command: %v", err)) // plain data: cannot happen
	}
	return b
}

// Reply is what Apply answers to a command.
type Reply struct {
	Topic   *shard.Topic // as it stands now; nil: there is none
	Created bool
	Err     error // shard.ErrNoTopic, ErrTooMany, or that the command is malformed
}
