package member

import (
	"fmt"

	"carillon/ring"
	"carillon/transport/peer"
)

// Hello is how this node introduces itself to others; the transport adds the connection's part.
func (s *Self) Hello() peer.Hello {
	id := s.Identity()
	return peer.Hello{Cluster: id.ClusterID, Node: s.id, Name: s.cfg.Name, Starts: id.Starts, Version: s.cfg.Version}
}

// Admit says which nodes may speak to this one: strangers only in single questions, others when
// they are members. As long as this node's copy of the members is empty, the cluster's id is all
// that it can ask for. For a node that has joined while this one was away, others confirm it.
func (s *Self) Admit(h peer.Hello) error {
	if err := s.misnamed(h); err != nil {
		return err
	}
	if h.Lane == peer.LaneOnce {
		return nil
	}
	id := s.Identity().ClusterID
	if id == "" || h.Cluster != id {
		return fmt.Errorf("it is of cluster %q, this node of %q", h.Cluster, id)
	}
	m := s.member.Load()
	if m == nil {
		return errNotYet
	}
	if known, _, _ := m.State.Cluster(); known == "" {
		return s.confirmed(h.Node)
	}
	n, ok := m.State.Node(h.Node)
	if !ok {
		_, ok = s.refreshedNode(h.Node)
	}
	switch {
	case !ok:
		s.unknownPeer.Store(true)
		return fmt.Errorf("node %010x is not a member", h.Node)
	case n.State == ring.NodeRemoved:
		return ring.ErrRemoved
	}
	if err := m.State.Outdated(h.Node, h.Starts); err != nil {
		return err
	}
	return s.confirmed(h.Node)
}

// misnamed refuses a node that speaks under an id that is known to have another name. It holds
// where there are certificates: a certificate proves the name, so one node's cannot speak for
// another.
func (s *Self) misnamed(h peer.Hello) error {
	if !s.cfg.NamesProven {
		return nil
	}
	if name := s.NameOf(h.Node); name != "" && name != h.Name {
		return fmt.Errorf("node %010x is %s, not %s", h.Node, name, h.Name)
	}
	return nil
}

// NameOf is a node's name as far as it is known: by the cluster's record, else by the founding
// plan, else by gossip.
func (s *Self) NameOf(node uint64) string {
	if node == s.id {
		return s.cfg.Name
	}
	if m := s.member.Load(); m != nil {
		if n, ok := m.State.Node(node); ok {
			return n.Name
		}
	}
	if n, ok := s.refreshedNode(node); ok {
		return n.Name
	}
	if n, ok := s.plannedNode(node); ok {
		return n.Name
	}
	for _, m := range s.gossip.List() {
		if m.ID == node {
			return m.Name
		}
	}
	return ""
}

// AddressOf is where a node listens for its peers: gossip knows it soonest, the cluster's own
// record always.
func (s *Self) AddressOf(node uint64) string {
	for _, m := range s.gossip.List() {
		if m.ID == node && m.State == ring.MemberAlive {
			return m.Peer
		}
	}
	if m := s.member.Load(); m != nil {
		if n, ok := m.State.Node(node); ok && n.State != ring.NodeRemoved {
			return n.Peer
		}
	}
	if n, ok := s.refreshedNode(node); ok {
		return n.Peer
	}
	n, _ := s.plannedNode(node)
	return n.Peer
}

// plannedNode is a node of the founding plan.
func (s *Self) plannedNode(node uint64) (ring.Node, bool) {
	if plan := s.Identity().AcceptedPlan; plan != nil {
		for _, n := range plan.Nodes {
			if n.ID == node {
				return n, true
			}
		}
	}
	return ring.Node{}, false
}
