package ring

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"carillon/internal/feature"
	"carillon/timer"
)

// Bounds of a cluster.
const (
	MaxShards   = 65_535
	MaxReplicas = 7
)

// Why a command about the cluster is refused. Errors that wrap them have details.
var (
	ErrNotFounded   = errors.New("the cluster is not founded yet")
	ErrFounded      = errors.New("the cluster is founded already")
	ErrOtherCluster = errors.New("the node belongs to another cluster")
	ErrBadCluster   = errors.New("the cluster cannot be founded with these values")
	ErrTooManyNodes = errors.New("the cluster has its maximum of nodes; remove one first")
	ErrUnknownNode  = errors.New("no such node")
	ErrNotGone      = errors.New("no majority of the voters confirms that the process is gone")
	// Register by a process that is older than one known.
	ErrStale        = errors.New("the node's data directory is an older copy of what it was")
	ErrRemoved      = errors.New("the node was removed from the cluster; it can only return with an empty data directory")
	ErrNameTaken    = errors.New("another node has this name")
	ErrLastNode     = errors.New("the cluster would have no node left")
	ErrInUse        = errors.New("the node still holds replicas")
	ErrMajority     = errors.New("a shard would be left without a majority of its replicas")
	ErrBadState     = errors.New("the node's state cannot be changed in this way")
	ErrUnknownGroup = errors.New("no such shard")
	ErrEpoch        = errors.New("the placement has changed meanwhile; read it and try again")
	ErrMoving       = errors.New("the shard is being moved already")
	ErrBadShards    = errors.New("the cluster cannot have this number of shards")
	ErrResharding   = errors.New("the number of shards is growing already")
)

// State is the state machine of the meta group, and the copy of it that this node reads. It
// implements shard.Machine. Apply, Save and Load belong to one goroutine; the readers may be
// anybody.
type State struct {
	*Topics

	placed func() // called after each change of nodes or rows; must be quick

	mu      sync.RWMutex
	cluster cluster
}

// cluster is State without the topics. Slices that are handed out are never written again, but for
// rows, whose elements are replaced under the lock.
type cluster struct {
	id       string // empty: not founded
	shards   int
	founded  int // shards at the founding; 0: as many as now
	growth   resharding
	replicas int
	level    feature.Level // agreed on; it rises by finalize alone
	version  uint64        // grows with each change of nodes or rows
	nodes    map[uint64]Node
	present  []Node       // those not removed, by id
	rows     []Assignment // by group
	secret   []byte       // nil: not made yet

	nodeSum, rowSum uint64 // of the hashes of nodes, those removed too, and of rows; see State.Hash
}

// NewState is empty. changed is called after changes of topics, placed after those of nodes and
// rows; either may be nil.
func NewState(changed func(ids ...timer.TopicID), placed func()) *State {
	if placed == nil {
		placed = func() {}
	}
	return &State{Topics: NewTopics(changed), placed: placed, cluster: cluster{nodes: map[uint64]Node{}}}
}

// Cluster is the cluster's id, its number of timer shards, and how many replicas each should have.
// The id is empty before Found.
func (s *State) Cluster() (id string, shards, replicas int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.id, s.cluster.shards, s.cluster.replicas
}

// Version grows with each change of nodes or rows, and is the same on all nodes.
func (s *State) Version() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.version
}

// Nodes are the nodes by id, without those removed. The slice is shared: do not write to it.
func (s *State) Nodes() []Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.present
}

// Removed are the removed nodes that are still remembered, by id.
func (s *State) Removed() []Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.removed()
}

// Node finds a node by its id, one that was removed too.
func (s *State) Node(id uint64) (Node, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, ok := s.cluster.nodes[id]
	return n, ok
}

// Outdated is an ErrStale if a process of a node is not its newest; nil: nothing newer is known. A
// node must check this before it accepts messages of a voter: where an older copy of a data
// directory was put back, the votes and acknowledgements since then are lost there, and only the
// cluster's record shows that.
func (s *State) Outdated(id uint64, starts uint32) error {
	if n, ok := s.Node(id); ok {
		return n.Outdates(starts)
	}
	return nil
}

// NodeNamed finds a node that is not removed by its name.
func (s *State) NodeNamed(name string) (Node, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.named(name)
}

// MayLose is nil if every group has a majority of its replicas without a node, on nodes of those that
// are heard, or if the node is removed already.
func (s *State) MayLose(node uint64, heard []uint64) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch n, ok := s.cluster.nodes[node]; {
	case !ok:
		return ErrUnknownNode
	case n.State == NodeRemoved:
		return nil
	}
	return s.cluster.survives(node, heard)
}

// Awaits reports whether a group still has, or wants, a replica on a node that was removed and
// whose name this one has now.
func (s *State) Awaits(n Node) (group timer.ShardID, yes bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.awaits(n)
}

func (s *State) Row(group timer.ShardID) (Assignment, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if int64(group) >= int64(len(s.cluster.rows)) {
		return Assignment{}, false
	}
	return s.cluster.rows[group], true
}

// Rows is a copy of all placement: the meta group's row, then the timer shards'. The arrays behind
// the rows are shared.
func (s *State) Rows() []Assignment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.cluster.rows)
}

// View is all that Plan looks at, of one moment.
func (s *State) View() View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return View{Replicas: s.cluster.replicas, Nodes: s.cluster.present, Rows: slices.Clone(s.cluster.rows), Dividing: s.cluster.growth.Parents}
}

// ofCluster is what applies each command of the cluster.
var ofCluster = map[Verb]func(*cluster, int64, *Command) Reply{
	Found: (*cluster).found, Register: (*cluster).register, SetState: (*cluster).setState, Remove: (*cluster).remove,
	Fence: (*cluster).fence, Place: (*cluster).place, Reconciled: (*cluster).reconciled, SetSecret: (*cluster).setSecret,
	Reseal: (*cluster).reseal, SetReplicas: (*cluster).setReplicas, SetShards: (*cluster).setShards,
	Divide: (*cluster).divide, Finalize: (*cluster).finalize,
}

// Apply implements shard.Machine; the result is a Reply. An error is feature.ErrNewer.
func (s *State) Apply(nowMs int64, data []byte) (any, error) {
	c, err := decodeCommand(data)
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	command, ok := ofCluster[c.Verb]
	if !ok || c.Verb == Reseal && c.Name != "" {
		return s.applyTopic(nowMs, c), nil
	}
	s.mu.Lock()
	before := s.cluster.version
	r := command(&s.cluster, nowMs, c)
	after := s.cluster.version
	s.mu.Unlock()
	if after != before {
		s.placed()
	}
	return r, nil
}

func (c *cluster) named(name string) (Node, bool) {
	for _, n := range c.present {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

func (c *cluster) removed() []Node {
	var out []Node
	for _, n := range c.nodes {
		if n.State == NodeRemoved {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// put publishes a node. It makes a new list of those present, since the old one may be in use.
func (c *cluster) put(n Node) {
	if old, ok := c.nodes[n.ID]; ok {
		c.nodeSum -= hashNode(&old)
	}
	c.nodeSum += hashNode(&n)
	c.nodes[n.ID] = n
	at, there := slices.BinarySearchFunc(c.present, n.ID, func(m Node, id uint64) int { return cmp.Compare(m.ID, id) })
	present := append(make([]Node, 0, len(c.present)+1), c.present[:at]...)
	if n.State != NodeRemoved {
		present = append(present, n)
	}
	if there {
		at++
	}
	c.present = append(present, c.present[at:]...)
	c.version++
}

func (c *cluster) putRow(r Assignment) {
	c.rowSum += hashRow(&r) - hashRow(&c.rows[r.Group])
	c.rows[r.Group] = r
	c.version++
}

// list makes the list of those present, and the sums, from all nodes and rows.
func (c *cluster) list() {
	c.nodeSum, c.rowSum = c.sums()
	c.present = nil
	for _, n := range c.nodes {
		if n.State != NodeRemoved {
			c.present = append(c.present, n)
		}
	}
	slices.SortFunc(c.present, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
}
