package member

import (
	"fmt"
	"net"
	"net/netip"

	"carillon/ring"
	"carillon/transport/peer"
)

// Hello is how this node introduces itself to others. The transport adds what belongs to the
// connection.
func (s *Self) Hello() peer.Hello {
	id := s.Identity()
	return peer.Hello{Cluster: id.ClusterID, Node: s.id, Name: s.cfg.Name, Starts: id.Starts, Version: s.cfg.Version}
}

// Admit refuses the nodes that may not connect to this one. Unknown nodes may ask single questions.
// For other connections a node must be a member; while this node's copy of the members is empty,
// the cluster's id is all that it can check. A process that is not the first of its directory first
// asks each node what that knows of it: see confirmed.
func (s *Self) Admit(h peer.Hello) error {
	if err := s.misnamed(h); err != nil {
		return err
	}
	if h.Lane == peer.LaneOnce {
		return nil
	}
	id := s.Identity().ClusterID
	switch {
	case id == "":
		return errUnjoined
	case h.Cluster == "":
		return fmt.Errorf("%w: it has not joined a cluster", peer.ErrLater)
	case h.Cluster != id:
		return fmt.Errorf("it belongs to cluster %q, the node that refuses to cluster %q: see --join of both", h.Cluster, id)
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
		s.unknownPeer.Store(h.Node)
		return fmt.Errorf("node %010x is not a member", h.Node)
	case n.State == ring.NodeRemoved:
		return ring.ErrRemoved
	}
	if err := m.State.Outdated(h.Node, h.Starts); err != nil {
		return err
	}
	return s.confirmed(h.Node)
}

// misnamed refuses a node whose id is known under another name. It applies where nodes have
// certificates: a certificate proves the name, so one node cannot act for another.
func (s *Self) misnamed(h peer.Hello) error {
	if !s.cfg.NamesProven {
		return nil
	}
	if name := s.NameOf(h.Node); name != "" && name != h.Name {
		return fmt.Errorf("node %010x is %s, not %s", h.Node, name, h.Name)
	}
	return nil
}

// NameOf is a node's name: by the cluster's record, else by the founding plan, else by gossip; ""
// if none of them knows it.
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

// AddressOf is where a node listens for its peers.
func (s *Self) AddressOf(node uint64) string { return s.whereIs(node).Peer }

// HeardAt is where a node listens whose address is a name, if it does so where gossip reaches it. It
// is empty if there is no such address.
func (s *Self) HeardAt(node uint64) string { return heardAt(s.whereIs(node)) }

func heardAt(n ring.Node) string {
	name, port, err := net.SplitHostPort(n.Peer)
	if _, notIP := netip.ParseAddr(name); err != nil || notIP == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(n.Gossip)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(at.Addr().String(), port)
}

// whereIs has a node's addresses. Gossip learns of a change first; the cluster's record is there
// without gossip.
func (s *Self) whereIs(node uint64) ring.Node {
	for _, m := range s.gossip.List() {
		if m.ID == node && m.State == ring.MemberAlive {
			return ring.Node{Peer: m.Peer, Gossip: m.Gossip}
		}
	}
	if m := s.member.Load(); m != nil {
		if n, ok := m.State.Node(node); ok && n.State != ring.NodeRemoved {
			return n
		}
	}
	if n, ok := s.refreshedNode(node); ok {
		return n
	}
	n, _ := s.plannedNode(node)
	return n
}

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
