package client

import (
	"context"
	"maps"
	"net/http"
	"net/url"
)

// Cluster is a cluster as one of its nodes sees it.
type Cluster struct {
	ID       string `json:"cluster_id"` // empty before the founding
	Version  string `json:"version"`    // of the answering node's program
	TZData   string `json:"tzdata"`     // the time zones of that program, as "2025c"
	Healthy  bool   `json:"healthy"`    // all nodes are alive or drained, and all shards ok, or moving while their number grows
	Replicas int    `json:"replicas"`   // that each shard should have, on at most as many nodes as there are

	// ShardsTotal is how many shards there are, those included that are yet to be divided from
	// others; 0 before the founding.
	ShardsTotal int         `json:"shards_total"`
	Resharding  *Resharding `json:"resharding"` // nil: their number does not grow just now

	Moves *Moves `json:"moves"` // nil: nothing moves or waits, or it is not known

	// FeatureLevel is the level that the cluster uses: nothing of a later one. 0 before the
	// founding.
	FeatureLevel int `json:"feature_level"`

	Upgrade *Upgrade `json:"upgrade"` // nil: there is none

	TestClock bool `json:"test_clock"` // the node runs by one: see type TestClock

	Nodes  []Node  `json:"nodes"`
	Shards []Shard `json:"shards"`

	Scopes []string `json:"scopes"` // of the token that asked; nil where none is asked for
}

// Resharding is a growth of the number of shards that is under way.
type Resharding struct {
	From int `json:"from"`
	To   int `json:"to"`
	Done int `json:"done"` // new shards that there are, of To - From
	// Shard is being divided, or is the next.
	Shard int `json:"shard"`
	// WaitsFor is why it does not continue at once: "majority" of the shard's replicas is lost, the
	// shard's replicas "move", the "disk" of a node with one is almost full, or its "memory" almost
	// used. Empty: nothing unusual.
	WaitsFor string `json:"waits_for"`
}

// Moves are the replicas that move between nodes, and those that wait to, as of the last second.
type Moves struct {
	UnderWay int   `json:"under_way"` // on their way, or given up
	Bytes    int64 `json:"bytes"`     // of those, about; small shards count for nothing
	Waiting  int   `json:"waiting"`   // about
	Repairs  int   `json:"repairs"`   // of both, those that bring shards back to their number of replicas
	// Nodes for which some wait: each sends or receives as much as it may.
	AtLimit []string `json:"at_limit"`
	// Nodes that are down or not fit: until they are well or replaced, balance waits, and what no
	// other node can take of drains and new replicas. With neither, a node has just joined, and
	// others may follow.
	WaitsFor []string `json:"waits_for"`
}

// ShardsNeed is what a growth of the number of shards needs, about.
type ShardsNeed struct {
	Bytes        int64 `json:"bytes"`                // that nodes write and send, all together
	MemoryBytes  int64 `json:"memory_bytes"`         // of a node, while it divides a shard
	LastingBytes int64 `json:"lasting_memory_bytes"` // of memory, that each node's new shards take themselves
	Moves        int   `json:"moves"`                // replicas that go to other nodes afterwards
	// WaitsFor is what it would wait for as things are, as in Resharding, and Shard before which
	// shard. Empty and 0: for nothing unusual.
	WaitsFor string `json:"waits_for"`
	Shard    int    `json:"shard"`
}

// Upgrade is an upgrade of the nodes to a release with a higher feature level that is not
// finalized.
type Upgrade struct {
	FeatureLevel int `json:"feature_level"` // that the newest release understands
	// The nodes that do not; none: it waits for FinalizeUpgrade.
	Lacking []string `json:"lacking"`
}

// NodeState is how a node is, as another one sees it.
type NodeState string

// The states of a node.
const (
	NodeAlive    NodeState = "alive"
	NodeSuspect  NodeState = "suspect"
	NodeDown     NodeState = "down"
	NodeDraining NodeState = "draining"
	NodeDrained  NodeState = "drained"
	NodeLeft     NodeState = "left"
)

// Node is a node of a cluster.
type Node struct {
	Name         string    `json:"name"`
	HTTP         string    `json:"http"` // host:port of its API
	State        NodeState `json:"state"`
	Leads        int       `json:"leads"`    // shards that it leads
	Replicas     int       `json:"replicas"` // shards of which it holds a replica
	Zone         string    `json:"zone"`     // empty: it has none
	Version      string    `json:"version"`
	FeatureLevel int       `json:"feature_level"` // the highest that it understands
	// Of its process, as it last reported; 0: it never did.
	Starts   uint32 `json:"starts"`
	SilentMs int64  `json:"silent_ms"` // since the answering node last heard it
	// Why it should not lead; empty: nothing is wrong.
	Unfit         string `json:"unfit"`
	LowDisk       bool   `json:"low_disk"`        // shards with a replica on it refuse adds
	ClockOffsetMs *int64 `json:"clock_offset_ms"` // ahead of the cluster's clock; nil: not known
}

type ShardState string

// The states of a shard.
const (
	ShardOK       ShardState = "ok"
	ShardMoving   ShardState = "moving"
	ShardDegraded ShardState = "degraded"
	ShardNoQuorum ShardState = "no_quorum"
)

// Shard is one shard of a cluster.
type Shard struct {
	Number   int        `json:"shard"`
	Leader   string     `json:"leader"` // a node's name; empty: none is known
	Epoch    uint32     `json:"epoch"`
	Replicas []string   `json:"replicas"` // names of nodes
	State    ShardState `json:"state"`
	// It refuses adds, as it holds as much as one can. Only nodes with a replica of it know.
	Full bool `json:"full"`
}

// Cluster reads the cluster as a node sees it, in any state of the node.
func (c *Client) Cluster(ctx context.Context) (*Cluster, error) {
	return one[Cluster](ctx, c, Request{Method: http.MethodGet, Path: Path("cluster"), Repeatable: true}, nil)
}

// SetReplicas changes how many replicas each shard should have; it has no more than there are
// nodes. It returns when that is decided; making them takes longer and shows in Cluster.
func (c *Client) SetReplicas(ctx context.Context, n int) error {
	r := Request{Method: http.MethodPut, Path: Path("cluster", "replicas"), Repeatable: true}
	return c.call(ctx, r, map[string]int{"replicas": n}, nil)
}

// SetShards lets the number of shards grow: to 2, 4, 8, … times as many as there are, at most
// 4,096. It returns when that is decided; shards are then divided one after the other while they
// serve, as Cluster shows. There is no way back to fewer.
func (c *Client) SetShards(ctx context.Context, n int) error {
	r := Request{Method: http.MethodPost, Path: Path("cluster", "shards")}
	return c.call(ctx, r, map[string]int{"shards": n}, nil)
}

// PreviewShards is about what SetShards would need, and changes nothing.
func (c *Client) PreviewShards(ctx context.Context, n int) (*ShardsNeed, error) {
	r := Request{Method: http.MethodPost, Path: Path("cluster", "shards"), Query: dryRun, Repeatable: true}
	return one[ShardsNeed](ctx, c, r, map[string]int{"shards": n})
}

// FinalizeUpgrade ends an upgrade: the cluster uses the new release's feature level from now on,
// and the release before cannot be started any more. It returns the level. It is refused while a
// node does not understand it; where there is no upgrade it changes nothing.
func (c *Client) FinalizeUpgrade(ctx context.Context) (featureLevel int, err error) {
	var answer struct {
		FeatureLevel int `json:"feature_level"`
	}
	r := Request{Method: http.MethodPost, Path: Path("cluster", "finalize"), Repeatable: true}
	err = c.call(ctx, r, nil, &answer)
	return answer.FeatureLevel, err
}

// DrainNode has everything moved off a node, whose state is NodeDraining until that is done.
func (c *Client) DrainNode(ctx context.Context, name string) (NodeState, error) {
	return changeNode(ctx, c, Request{Method: http.MethodPost, Path: nodePath(name, "drain"), Repeatable: true})
}

// ResumeNode takes a drain back, finished or not.
func (c *Client) ResumeNode(ctx context.Context, name string) (NodeState, error) {
	return changeNode(ctx, c, Request{Method: http.MethodPost, Path: nodePath(name, "resume"), Repeatable: true})
}

// Removal selects the nodes RemoveNode takes away. The zero value: those that are drained or down,
// where each shard keeps a majority.
type Removal struct {
	Force bool // a node that serves, too
	// AcceptLoss allows a shard to be left without a majority of its replicas. Data that only the
	// lost replicas had is lost.
	AcceptLoss bool
}

// RemoveNode takes a node out of the cluster for good.
func (c *Client) RemoveNode(ctx context.Context, name string, r Removal) (NodeState, error) {
	query := url.Values{}
	maps.Copy(query, forced(r.Force))
	if r.AcceptLoss {
		query.Set("accept_loss", "true")
	}
	// Repeating a removal that was done would answer that there is no such node.
	return changeNode(ctx, c, Request{Method: http.MethodDelete, Path: nodePath(name), Query: query})
}

func nodePath(name string, more ...string) string {
	return Path(append([]string{"cluster", "nodes", name}, more...)...)
}

// forced is the query of a deletion.
func forced(force bool) url.Values {
	if !force {
		return nil
	}
	return url.Values{"force": {"true"}}
}

func changeNode(ctx context.Context, c *Client, r Request) (NodeState, error) {
	var answer struct {
		State NodeState `json:"state"`
	}
	err := c.call(ctx, r, nil, &answer)
	return answer.State, err
}
