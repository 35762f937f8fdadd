package ring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"carillon/internal/feature"
	"carillon/timer"
)

// Verb is the action of a command.
type Verb string

// The verbs. They are part of the log format, as are the JSON names below.
const (
	// Of a topic, by Name.
	Ensure Verb = "ensure" // make it with the policy, unless it is there
	// Set the policy, making the topic if need be; Pull changes at its Turn alone.
	Put    Verb = "put"
	Pause  Verb = "pause"
	Resume Verb = "resume"
	Close  Verb = "close"  // refuse adds: it is about to be deleted
	Reopen Verb = "reopen" // undo Close
	Delete Verb = "delete" // only when closed
	// Begin a change of delivery: the shards are asked next, by the number that the topic has then.
	Turn   Verb = "turn"
	Turned Verb = "turned" // all shards deliver by the policy at that Turn

	// Of the cluster.
	Found    Verb = "found"    // ClusterID, Shards, Replicas, Nodes, Layout: once
	Register Verb = "register" // Node joins, or reports its changes; Replace
	SetState Verb = "state"    // NodeID to State: member ⇄ draining → drained
	Remove   Verb = "remove"   // NodeID; refused while a group needs it, unless Force
	Fence    Verb = "fence"    // the process Starts of NodeID is gone to a majority of meta voters
	// Group at Epoch gets the replicas To; Force to redirect one that is not settled.
	Place      Verb = "place"
	Reconciled Verb = "settled" // Group at Epoch has the membership of its row

	SetSecret Verb = "secret" // Secret, unless there is one
	Reseal    Verb = "reseal" // Swaps: of the topic Name, or without one of the cluster's secret

	SetReplicas Verb = "replicas" // Replicas: how many each shard should have from now on
	SetShards   Verb = "shards"   // Shards: how many there should be; see resharding
	Divide      Verb = "divide"   // Group at Epoch: the next to give half of its timers to a new shard
	// Level: the feature level rises to it; refused while a member understands less.
	Finalize Verb = "finalize"
)

// Command is one change to a topic, a node or a row.
type Command struct {
	Verb Verb   `json:"verb"`
	Name string `json:"name,omitempty"`
	// Close, Reopen, Delete: that life of the topic and no other.
	ID    timer.TopicID `json:"id,omitempty"`
	Force bool          `json:"force,omitempty"`
	// Put, Close: the version of that life; 0: any.
	IfVersion uint32        `json:"if_version,omitempty"`
	IfNew     bool          `json:"if_new,omitempty"` // Put: only if there is no topic of the name
	Policy    *timer.Policy `json:"policy,omitempty"`
	Turn      uint32        `json:"turn,omitempty"` // Turned, and Put that changes Pull

	// Found; Register: the cluster to which the node claims to belong, if any.
	ClusterID string `json:"cluster,omitempty"`
	Shards    int    `json:"shards,omitempty"`
	Replicas  int    `json:"replicas,omitempty"` // how many each shard should have
	Nodes     []Node `json:"nodes,omitempty"`
	// Found: for shards 1, 2, …: its nodes by rank, as their places in Nodes; see FoundCommand.
	Layout [][]int `json:"layout,omitempty"`

	Node *Node `json:"node,omitempty"`
	// Register: the one that has the name is known to be gone.
	Replace bool      `json:"replace,omitempty"`
	NodeID  uint64    `json:"node_id,omitempty"`
	State   NodeState `json:"state,omitempty"`

	// Of Remove and Register, as the meta group's leader knows it when it proposes them, so that
	// the grounds of its decision are in the log.
	// Nodes that it hears; none: all are assumed to be up.
	Heard []uint64 `json:"heard,omitempty"`
	// Fence: of which process of NodeID, and which voters of the meta group it refuses and has sent
	// nothing since.
	Starts  uint32   `json:"starts,omitempty"`
	Refused []uint64 `json:"refused,omitempty"`
	// Remove: it has not heard the node for a long time.
	Down bool `json:"down,omitempty"`
	// Remove: even if a shard is left without a majority.
	AcceptLoss bool `json:"accept_loss,omitempty"`

	Group timer.ShardID `json:"group,omitempty"`
	Epoch uint32        `json:"epoch,omitempty"` // the row's as the proposer knows it
	To    []Replica     `json:"to,omitempty"`

	Level feature.Level `json:"level,omitempty"` // Finalize

	Secret []byte `json:"secret,omitempty"`
	Swaps  []Swap `json:"swaps,omitempty"`
}

// Reply is Apply's answer to a command.
type Reply struct {
	Topic   *timer.Topic // as it stands now; nil: there is none
	Node    *Node        // after Register, SetState, Remove, Fence
	Row     *Assignment  // after Place, Settled
	Created bool         // a topic, or by Register a node
	// A sentinel of this package or of shard, perhaps wrapped, or that the command is malformed.
	Err error
}

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

// decodeCommand reads a command. ErrMalformed: no build can read it. feature.ErrNewer: this build
// cannot, and must stop, since replicas that skip commands would diverge.
func decodeCommand(data []byte) (*Command, error) {
	var c Command
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	if err != nil && !json.Valid(data) || err == nil && len(bytes.Trim(data[d.InputOffset():], " \t\r\n")) > 0 {
		return nil, ErrMalformed
	}
	if err != nil {
		return nil, fmt.Errorf("a command that this build does not know: %w: %w", feature.ErrNewer, err)
	}
	switch c.Verb {
	case Ensure, Put:
		if c.Policy == nil {
			return nil, ErrMalformed
		}
	case Pause, Resume, Close, Reopen, Delete, Turn, Turned:
	default:
		if ofCluster[c.Verb] == nil {
			return nil, fmt.Errorf("verb %q, which this build does not know: %w", c.Verb, feature.ErrNewer)
		}
	}
	return &c, nil
}
