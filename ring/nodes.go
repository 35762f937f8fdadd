package ring

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"carillon/internal/feature"
	"carillon/internal/placement"
	"carillon/timer"
)

// NodeState is the state that the cluster wants of a node. Whether the node is up is not in it:
// that is each observer's own knowledge.
type NodeState string

// The states. They are part of the log format.
const (
	NodeMember   NodeState = "member"
	NodeDraining NodeState = "draining" // its replicas are being moved away
	NodeDrained  NodeState = "drained"  // holds nothing but a copy of the meta group without a vote
	NodeRemoved  NodeState = "removed"  // kept so that its id never returns
)

// Bounds of a node's description of itself, and of the number of nodes.
const (
	MaxNodes      = 1_000
	maxNodeID     = 1 << 40 // exclusive: replica ids hold it above 24 bits of epoch
	maxZone       = 64
	maxVersion    = 64
	maxAddress    = 255
	maxTombstones = 10_000
)

// ErrBadNode is the root of the errors for a node that describes itself out of bounds.
var ErrBadNode = errors.New("the node's description is out of bounds")

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	textPattern = regexp.MustCompile(`^[!-~]*$`) // printable, no spaces
)

// Node is one process with a data directory. Values are immutable once published.
type Node struct {
	ID      uint64 `json:"id"` // random at the first start, below 2^40, never used again
	Name    string `json:"name"`
	HTTP    string `json:"http,omitempty"`
	Peer    string `json:"peer,omitempty"`
	Gossip  string `json:"gossip,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version,omitempty"`
	// The highest feature level that its build understands.
	Level  feature.Level `json:"level,omitempty"`
	Starts uint32        `json:"starts,omitempty"` // how often a process began on this directory
	// The start that the cluster takes for gone, until that process registers again; see fence.
	Fenced   uint32    `json:"fenced,omitempty"`
	State    NodeState `json:"state,omitempty"`
	JoinedMs int64     `json:"joined_ms,omitempty"`
	SinceMs  int64     `json:"since_ms,omitempty"` // when it came into its State
}

// validate checks the node's description of itself; State and times are the cluster's.
func (n *Node) validate() error {
	switch {
	case n.ID == 0 || n.ID >= maxNodeID:
		return fmt.Errorf("%w: id %d is not from 1 to 2^40-1", ErrBadNode, n.ID)
	case !namePattern.MatchString(n.Name):
		return fmt.Errorf("%w: name %q does not match %s", ErrBadNode, n.Name, namePattern)
	case len(n.Zone) > maxZone || !textPattern.MatchString(n.Zone):
		return fmt.Errorf("%w: zone %q is longer than %d or not printable", ErrBadNode, n.Zone, maxZone)
	case len(n.Version) > maxVersion || !textPattern.MatchString(n.Version):
		return fmt.Errorf("%w: version %q is longer than %d or not printable", ErrBadNode, n.Version, maxVersion)
	}
	for _, address := range []string{n.HTTP, n.Peer, n.Gossip} {
		if len(address) > maxAddress || !textPattern.MatchString(address) {
			return fmt.Errorf("%w: address %q is longer than %d or not printable", ErrBadNode, address, maxAddress)
		}
	}
	return nil
}

// Outdates is why a process with this start number is not the newest of its node; nil: it is.
func (n *Node) Outdates(starts uint32) error {
	if starts >= n.Starts {
		return nil
	}
	return fmt.Errorf("%w: this is start %d of it, and the cluster knows of start %d", ErrStale, starts, n.Starts)
}

// holds reports whether the node may be given replicas or keep them.
func (n *Node) holds() bool { return n.State == NodeMember }

// register lets a node join, or takes the changes of one that is known. It places nothing: that is
// the controller's.
func (c *cluster) register(nowMs int64, cmd *Command) Reply {
	if c.id == "" {
		return Reply{Err: ErrNotFounded}
	}
	if cmd.Node == nil {
		return Reply{Err: fmt.Errorf("%w: none is given", ErrBadNode)}
	}
	n := *cmd.Node
	n.Fenced = 0 // it is there
	if err := n.validate(); err != nil {
		return Reply{Err: err}
	}
	if cmd.ClusterID != "" && cmd.ClusterID != c.id {
		return Reply{Err: fmt.Errorf("%w: it names %s, this is %s", ErrOtherCluster, cmd.ClusterID, c.id)}
	}
	known, ok := c.nodes[n.ID]
	switch {
	case ok && known.State == NodeRemoved:
		return Reply{Node: &known, Err: ErrRemoved}
	case ok:
		if err := known.Outdates(n.Starts); err != nil {
			return Reply{Node: &known, Err: err}
		}
	}
	if n.level() < c.level {
		return Reply{Err: fmt.Errorf("%w: the cluster has agreed on feature level %d, the release %s on node %s has %d; start the newer release",
			ErrTooOld, c.level, n.Version, n.Name, n.level())}
	}
	other, taken := c.named(n.Name)
	taken = taken && other.ID != n.ID
	if taken && !cmd.Replace {
		return Reply{Node: &other, Err: fmt.Errorf("%w: node %d at %s has %s", ErrNameTaken, other.ID, other.Peer, n.Name)}
	}
	if taken {
		if err := c.survives(other.ID, cmd.Heard); err != nil {
			return Reply{Node: &other, Err: err}
		}
	}
	if !ok && !taken && len(c.present) >= MaxNodes {
		return Reply{Err: ErrTooManyNodes}
	}
	if ok {
		n.State, n.JoinedMs, n.SinceMs = known.State, known.JoinedMs, known.SinceMs
		if n == known {
			return Reply{Node: &n}
		}
	} else {
		n.State, n.JoinedMs, n.SinceMs = NodeMember, nowMs, nowMs
	}
	if taken {
		c.markRemoved(nowMs, other)
	}
	c.put(n)
	return Reply{Node: &n, Created: !ok}
}

// member returns a node that is not removed, or the reply to a command for another one.
func (c *cluster) member(id uint64) (n Node, no *Reply) {
	n, ok := c.nodes[id]
	switch {
	case c.id == "":
		return n, &Reply{Err: ErrNotFounded}
	case !ok:
		return n, &Reply{Err: ErrUnknownNode}
	case n.State == NodeRemoved:
		return n, &Reply{Node: &n, Err: ErrRemoved}
	}
	return n, nil
}

// setState drains a node, takes that back, or notes that it is done.
func (c *cluster) setState(nowMs int64, cmd *Command) Reply {
	n, no := c.member(cmd.NodeID)
	switch {
	case no != nil:
		return *no
	case n.State == cmd.State:
		return Reply{Node: &n}
	case cmd.State == NodeMember: // from draining or drained
	case cmd.State == NodeDraining && n.State == NodeMember:
		if !c.holder(n.ID) {
			return Reply{Node: &n, Err: fmt.Errorf("%w: none could take the replicas of %s", ErrLastNode, n.Name)}
		}
	case cmd.State == NodeDrained && n.State == NodeDraining:
		if err := c.needed(n.ID); err != nil {
			return Reply{Node: &n, Err: err}
		}
	default:
		return Reply{Node: &n, Err: fmt.Errorf("%w: it is %q, and was to be %q", ErrBadState, n.State, cmd.State)}
	}
	n.State, n.SinceMs = cmd.State, nowMs
	c.put(n)
	return Reply{Node: &n}
}

// remove ends a node's membership. The controller then moves its replicas to nodes that are up.
func (c *cluster) remove(nowMs int64, cmd *Command) Reply {
	n, ok := c.nodes[cmd.NodeID]
	switch {
	case c.id == "":
		return Reply{Err: ErrNotFounded}
	case !ok:
		return Reply{Err: ErrUnknownNode}
	case n.State == NodeRemoved:
		return Reply{Node: &n}
	case !c.holder(n.ID):
		return Reply{Node: &n, Err: ErrLastNode}
	}
	if err := c.needed(n.ID); err != nil && !cmd.Force && !cmd.Down {
		return Reply{Node: &n, Err: err}
	}
	if err := c.survives(n.ID, cmd.Heard); err != nil && !cmd.AcceptLoss {
		return Reply{Node: &n, Err: err}
	}
	c.markRemoved(nowMs, n)
	n = c.nodes[n.ID]
	return Reply{Node: &n}
}

// holder reports whether a node other than this one may hold replicas.
func (c *cluster) holder(but uint64) bool {
	return slices.ContainsFunc(c.present, func(n Node) bool { return n.ID != but && n.holds() })
}

// needed is ErrInUse with the first group that would miss the node.
func (c *cluster) needed(node uint64) error {
	for i := range c.rows {
		if c.needs(&c.rows[i], node) {
			return fmt.Errorf("%w: one of group %d, for example", ErrInUse, c.rows[i].Group)
		}
	}
	return nil
}

// needs reports whether a group would miss a node. A drained node had lost its vote in the meta group
// when it became that, so a later move of the group is not what takes its vote.
func (c *cluster) needs(r *Assignment, node uint64) bool {
	if r.Group == MetaGroup && c.nodes[node].State == NodeDrained {
		return slices.Contains(r.Nodes(), node)
	}
	return r.Needs(node)
}

// survives is ErrMajority with the first group that could be left without a majority of its
// replicas, if a node were gone for good. No command could give the group others then, and its
// timers would be lost. Nodes that the meta group's leader does not hear count as down.
//
// Only the group knows how far a move of it is. Until the move is settled the group can do without a
// replica that this very move makes, and without no other.
func (c *cluster) survives(node uint64, heard []uint64) error {
	there := func(id uint64) bool {
		n, known := c.nodes[id]
		return id != node && known && n.State != NodeRemoved && (len(heard) == 0 || slices.Contains(heard, id))
	}
	for i := range c.rows {
		r := &c.rows[i]
		if !c.needs(r, node) {
			continue
		}
		if replica, _ := r.Replica(node); !r.Settled && replica.ID != placement.ReplicaID(node, r.Epoch) {
			return fmt.Errorf("%w: group %d is being moved, and may need it for that", ErrMajority, r.Group)
		}
		voters, live := r.Nodes(), 0
		for _, id := range voters {
			if there(id) {
				live++
			}
		}
		if 2*live <= len(voters) {
			return fmt.Errorf("%w: of group %d, %d of %d would be there", ErrMajority, r.Group, live, len(voters))
		}
	}
	return nil
}

// awaits reports whether a group still has, or wants, a replica on a node that is removed and whose
// name another has now. That other node is to replace it first.
func (c *cluster) awaits(node Node) (group timer.ShardID, yes bool) {
	for i := range c.rows {
		r := &c.rows[i]
		for _, replica := range slices.Concat(r.Replicas, r.Leaving) {
			if old, ok := c.nodes[replica.Node]; ok && old.State == NodeRemoved && old.Name == node.Name && old.ID != node.ID {
				return r.Group, true
			}
		}
	}
	return 0, false
}

// markRemoved makes a node a tombstone, and forgets the oldest of too many.
func (c *cluster) markRemoved(nowMs int64, n Node) {
	n.State, n.SinceMs = NodeRemoved, nowMs
	c.put(n)
	if len(c.nodes)-len(c.present) <= maxTombstones {
		return
	}
	tombstones := c.removed()
	slices.SortFunc(tombstones, func(a, b Node) int { return cmp.Or(cmp.Compare(a.SinceMs, b.SinceMs), cmp.Compare(a.ID, b.ID)) })
	for _, old := range tombstones {
		if old.ID != n.ID && !slices.ContainsFunc(c.rows, func(r Assignment) bool { return r.Names(old.ID) || r.Needs(old.ID) }) {
			c.nodeSum -= hashNode(&old)
			delete(c.nodes, old.ID)
			return
		}
	}
}
