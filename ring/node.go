package ring

import (
	"errors"
	"fmt"
	"regexp"

	"carillon/internal/feature"
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

// Outdates says why a process with so many starts is not the newest of its node.
func (n *Node) Outdates(starts uint32) error {
	if starts >= n.Starts {
		return nil
	}
	return fmt.Errorf("%w: this is start %d of it, and the cluster knows of start %d", ErrStale, starts, n.Starts)
}

// holds says whether the node may be given replicas or keep them.
func (n *Node) holds() bool { return n.State == NodeMember }
