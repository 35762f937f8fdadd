package ring

import (
	"fmt"
	"slices"
)

// fence records that a majority of the meta group's voters finds a process gone. Those who wait for
// it may end leases of that process which they found before they asked: see docs/adr/0048. A
// process that lives takes it back when it registers.
func (c *cluster) fence(_ int64, cmd *Command) Reply {
	n, no := c.member(cmd.NodeID)
	switch {
	case no != nil:
		return *no
	case n.Starts != cmd.Starts:
		return Reply{Node: &n, Err: fmt.Errorf("%w: start %d of %s, which is at start %d", ErrNotGone, cmd.Starts, n.Name, n.Starts)}
	}
	voters, refused := c.rows[MetaGroup].Nodes(), 0
	for _, voter := range voters {
		refused += boolInt(voter != n.ID && slices.Contains(cmd.Refused, voter))
	}
	if 2*refused <= len(voters) {
		return Reply{Node: &n, Err: fmt.Errorf("%w: %d of %d voters", ErrNotGone, refused, len(voters))}
	}
	if n.Fenced != cmd.Starts {
		n.Fenced = cmd.Starts
		c.put(n)
	}
	return Reply{Node: &n}
}

// NewestStart is the newest process of a node that has registered; 0: none is known.
func (s *State) NewestStart(node uint64) uint32 {
	n, _ := s.Node(node)
	return n.Starts
}
