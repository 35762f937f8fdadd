package backend

import (
	"context"
	"errors"
	"io"

	"carillon/internal/feature"
	"carillon/timer"
)

// Cluster has changes of the cluster decided by the meta group. Its errors are named by
// Config.ClusterError.
type Cluster interface {
	// Drain has everything moved off a node; it returns once that is ordered, not done. Doing it
	// again changes nothing.
	Drain(ctx context.Context, name string) error
	// Resume takes a drain back, finished or not.
	Resume(ctx context.Context, name string) error
	// Remove takes a node out of the cluster for good: ErrNotDrained unless it is drained or down,
	// or force is given; ErrMajority if a shard would be left without a majority of its replicas,
	// unless acceptLoss is given.
	Remove(ctx context.Context, name string, force, acceptLoss bool) error
	// SetReplicas changes how many replicas each shard should have, 1–7; it returns once that is
	// ordered, not done.
	SetReplicas(ctx context.Context, replicas int) error
	// SetShards lets the number of shards grow; it returns once that is ordered, not done.
	// ErrBadShards: it cannot become that one; ErrResharding: it grows already.
	SetShards(ctx context.Context, shards int) error
	// PreviewShards is what SetShards would need. Its errors are those of SetShards.
	PreviewShards(ctx context.Context, shards int) (GrowthNeeds, error)
	// Finalize ends an upgrade: the feature level rises to the highest that any node understands;
	// timer.ErrFeatureLevel names those that do not. It returns the level that the cluster has
	// then. Doing it again changes nothing.
	Finalize(ctx context.Context) (feature.Level, error)
}

// Backup reads the whole cluster.
type Backup interface {
	// Shard is one shard as this node sees it; false when there is no such shard.
	Shard(id timer.ShardID) (ShardView, bool)
	// Backup writes a backup of the whole cluster. After an error nothing has been written.
	Backup(ctx context.Context, to io.Writer) error
}

// Errors of Cluster, besides those of package timer.
var (
	// ErrUnknownNode: no member of the cluster has this name.
	ErrUnknownNode = errors.New("there is no node of this name")
	// ErrNotDrained: the node holds replicas, and is not known to be down.
	ErrNotDrained = errors.New("the node still holds replicas: wait until it is drained; if it is dead, until it counts as down, some seconds later")
	// ErrMajority: the remaining replicas of a shard could neither serve nor be added to.
	ErrMajority = errors.New("not without loss")
	// ErrBadShards: the number of shards cannot become that one.
	ErrBadShards = errors.New("the number of shards cannot become that one")
	// ErrResharding: the number of shards is growing already.
	ErrResharding = errors.New("the number of shards is growing already")
	// ErrNoOtherNode: no other node is there to take the replicas of this one.
	ErrNoOtherNode = errors.New("there is no other node to take over what this one holds")
)

// ClusterView is a cluster as one node sees it. It, and the views in it, are answered as they are.
type ClusterView struct {
	ClusterID string `json:"cluster_id,omitzero"` // "" before the founding
	Version   string `json:"version"`             // of this node's program
	TZData    string `json:"tzdata"`              // filled in by the API
	Healthy   bool   `json:"healthy"`             // every member is alive or drained, every shard ok, or moving while shards double
	// That each shard should have, or as many as there are nodes; 0 before the founding.
	Replicas int `json:"replicas,omitzero"`
	// How many there are, those included that are yet to be divided from others; 0 before the
	// founding.
	ShardsNow  int             `json:"shards_total,omitzero"`
	Resharding *ReshardingView `json:"resharding,omitzero"`
	Moves      *MovesView      `json:"moves,omitzero"`         // nil: nothing moves or waits, or it is not known
	TestClock  bool            `json:"test_clock,omitzero"`    // the node runs by one: it has no others
	Level      uint32          `json:"feature_level,omitzero"` // that the nodes have agreed on; 0 before the founding
	Upgrade    *UpgradeView    `json:"upgrade,omitzero"`
	Nodes      []NodeView      `json:"nodes"`
	Shards     []ShardRow      `json:"shards"` // in order
}

// ReshardingView is a growth of the number of shards that is under way.
type ReshardingView struct {
	From     int            `json:"from"`
	To       int            `json:"to"`
	Done     int            `json:"done"`               // new shards that there are, of To - From
	Shard    timer.ShardID  `json:"shard,omitzero"`     // that is being divided, or is the next
	WaitsFor ReshardingWait `json:"waits_for,omitzero"` // "": nothing unusual
}

// ReshardingWait is why a growth of the number of shards does not continue at once.
type ReshardingWait string

// What it waits for.
const (
	WaitsForMajority ReshardingWait = "majority" // the shard has lost most of its replicas
	WaitsForMove     ReshardingWait = "move"     // the shard's replicas are being changed
	WaitsForDisk     ReshardingWait = "disk"     // the disk of a node with a replica of the shard is low
	WaitsForMemory   ReshardingWait = "memory"   // such a node has almost used its memory
)

// MovesView is what moves between nodes, and what waits to. As of the last second.
type MovesView struct {
	UnderWay int   `json:"under_way"` // replicas that are on their way, or given up
	Bytes    int64 `json:"bytes"`     // of them, about; small shards count for nothing
	Waiting  int   `json:"waiting"`   // replicas, about
	Repairs  int   `json:"repairs"`   // of both, those that bring shards back to their number of replicas
	// Why the others wait: nodes send or receive as much as they may, or are down or not fit. None
	// of both: a node has just joined, and others may follow.
	AtLimit  []string `json:"at_limit,omitempty"` // names
	WaitsFor []string `json:"waits_for,omitempty"`
}

// GrowthNeeds is what a growth of the number of shards needs, about.
type GrowthNeeds struct {
	Bytes        int64 `json:"bytes"`                // that nodes write and send, all together
	MemoryBytes  int64 `json:"memory_bytes"`         // of a node, while it divides a shard
	LastingBytes int64 `json:"lasting_memory_bytes"` // of memory, that each node's new shards take themselves
	Moves        int   `json:"moves"`                // replicas that go to other nodes afterwards
	// For what it would wait as things are, and at which shard; empty: for nothing.
	WaitsFor ReshardingWait `json:"waits_for,omitzero"`
	Shard    timer.ShardID  `json:"shard,omitzero"`
}

// UpgradeView is an upgrade that is not finalized.
type UpgradeView struct {
	Level   uint32   `json:"feature_level"` // that the newest release understands
	Lacking []string `json:"lacking"`       // the nodes that do not; none: it waits to be finalized
}

// NodeState is how a node is, as others see it.
type NodeState string

// States of a node. An order of the operator (draining, drained) shows only while the node is
// alive.
const (
	NodeAlive    NodeState = "alive"
	NodeSuspect  NodeState = "suspect" // not heard of for a moment
	NodeDown     NodeState = "down"
	NodeDraining NodeState = "draining"
	NodeDrained  NodeState = "drained"
	NodeLeft     NodeState = "left" // stopped in good order, or removed
)

type NodeView struct {
	Name  string    `json:"name"`
	HTTP  string    `json:"http,omitzero"` // host:port of its API
	State NodeState `json:"state"`
	// Shards that it leads; of a suspect one, those that it named last, where no other node claims
	// to lead.
	Leads    int    `json:"leads"`
	Replicas int    `json:"replicas"` // shards of which it holds a replica
	Zone     string `json:"zone,omitzero"`
	Version  string `json:"version,omitzero"`
	Level    uint32 `json:"feature_level,omitzero"` // the highest that it understands
	Starts   uint32 `json:"starts,omitzero"`        // of its process, the one that was heard last included; 0: it was never heard
	SilentMs int64  `json:"silent_ms,omitzero"`     // since it was last heard; 0 for the answering node itself
	Unfit    string `json:"unfit,omitzero"`         // why it should not lead now, and hands its shards over; "" when nothing is wrong
	LowDisk  bool   `json:"low_disk,omitzero"`      // shards with a replica on it refuse adds, as its disk is almost full

	ClockOffsetMs *int64 `json:"clock_offset_ms,omitzero"` // nil: it has not sent its clock lately
}

type ShardState string

// States of a shard.
const (
	ShardOK     ShardState = "ok"
	ShardMoving ShardState = "moving" // its replicas are being changed
	// Not all of its replicas, or not its leader, are heard just now.
	ShardDegraded ShardState = "degraded"
	ShardNoQuorum ShardState = "no_quorum" // accepts nothing and fires nothing
)

// ShardRow is where a shard is.
type ShardRow struct {
	Shard    timer.ShardID `json:"shard"`
	Leader   string        `json:"leader,omitzero"` // name; "" when none is known
	Epoch    uint32        `json:"epoch"`
	Replicas []string      `json:"replicas"` // names
	State    ShardState    `json:"state"`
	// It refuses adds, as this node's replica holds as much as one can. Not known without one.
	Full bool `json:"full,omitzero"`
}

// ShardView is all that a node knows of a shard.
type ShardView struct {
	ShardRow
	Known   bool // false: this node holds no replica, and does not know the rest
	Term    uint64
	Applied uint64 // index of the last entry that this node's replica has applied
	Timers  int64  // not finished, in this node's replica
	// Of the state after Applied: replicas that have applied as much must have the same.
	Hash uint64
}
