package ring

import (
	"carillon/shard"
	"carillon/timer"
)

// Verb is what a command does.
type Verb string

// The verbs. They are part of the log format, as are the JSON names below.
const (
	// Of a topic, by Name.
	Ensure Verb = "ensure" // make it with the policy, unless it is there
	Put    Verb = "put"    // set the policy, making the topic if need be; Ordered changes only when closed, and begins a new life; Pull at its Turn alone
	Pause  Verb = "pause"
	Resume Verb = "resume"
	Close  Verb = "close"  // refuse adds: it is about to be deleted
	Reopen Verb = "reopen" // undo Close
	Delete Verb = "delete" // only when closed
	Turn   Verb = "turn"   // begin a change of delivery: the shards are asked next, by the number that the topic has then
	Turned Verb = "turned" // all shards deliver as the policy says at that Turn

	// Of the cluster.
	Found      Verb = "found"    // ClusterID, Shards, Replicas, Nodes, Layout: once
	Register   Verb = "register" // Node joins, or tells what is new about it; Replace
	SetState   Verb = "state"    // NodeID to State: member ⇄ draining → drained
	Remove     Verb = "remove"   // NodeID; refused while a group needs it, unless Force
	Place      Verb = "place"    // Group at Epoch gets the replicas To; Force to redirect one that is not settled
	Reconciled Verb = "settled"  // Group at Epoch has the membership of its row

	SetSecret Verb = "secret" // Secret, unless there is one
	Reseal    Verb = "reseal" // Swaps: of the topic Name, or without one of the cluster's secret

	SetReplicas Verb = "replicas" // Replicas: how many each shard should have from now on
	Finalize    Verb = "finalize" // Level: the feature level rises to it; refused while a member understands less
)

// Command is one change to a topic, a node or a row.
type Command struct {
	Verb   Verb          `json:"verb"`
	Name   string        `json:"name,omitempty"`
	ID     timer.TopicID `json:"id,omitempty"` // Close, Reopen, Delete: that life of the topic and no other
	Force  bool          `json:"force,omitempty"`
	Policy *timer.Policy `json:"policy,omitempty"`
	Turn   uint32        `json:"turn,omitempty"` // Turned, and Put that changes Pull

	ClusterID string  `json:"cluster,omitempty"` // Found; Register: of which cluster the node says it is, if any
	Shards    int     `json:"shards,omitempty"`
	Replicas  int     `json:"replicas,omitempty"` // how many each shard should have
	Nodes     []Node  `json:"nodes,omitempty"`
	Layout    [][]int `json:"layout,omitempty"` // Found: for shards 1, 2, …: its nodes by rank, as their places in Nodes; see FoundCommand

	Node    *Node     `json:"node,omitempty"`
	Replace bool      `json:"replace,omitempty"` // Register: the one that has the name is known to be gone
	NodeID  uint64    `json:"node_id,omitempty"`
	State   NodeState `json:"state,omitempty"`

	// Of Remove and Register, as the meta group's leader knows it when it proposes them; what it decides by is in the log.
	Heard      []uint64 `json:"heard,omitempty"`       // nodes that it hears; none: of all is assumed that they are there
	Down       bool     `json:"down,omitempty"`        // Remove: it does not hear the node, for long
	AcceptLoss bool     `json:"accept_loss,omitempty"` // Remove: even if a shard is left without a majority

	Group timer.ShardID `json:"group,omitempty"`
	Epoch uint32        `json:"epoch,omitempty"` // the row's as the proposer knows it
	To    []Replica     `json:"to,omitempty"`

	Level shard.Level `json:"level,omitempty"` // Finalize

	Secret []byte `json:"secret,omitempty"`
	Swaps  []Swap `json:"swaps,omitempty"`
}

// Reply is what Apply answers to a command.
type Reply struct {
	Topic   *timer.Topic // as it stands now; nil: there is none
	Node    *Node        // after Register, SetState, Remove
	Row     *Assignment  // after Place, Settled
	Created bool         // a topic, or by Register a node
	Err     error        // a sentinel of this package or of shard, perhaps wrapped, or that the command is malformed
}
