package member

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"carillon/ring"
	"carillon/transport/peer"
)

// A node that was away does not know which nodes have joined meanwhile. One of these may lead the
// meta group, and only from that one could it learn of them. So it asks others for their list of
// nodes, and uses that until its own copy has more: the members that it hears, and those that gossip
// knows in its cluster, as a joining node does. Members that were away as well know no more than it
// does: it asks one after the other, one a second, until an answer has the node that it met.

const refreshInterval = time.Second

func (s *Self) answerMembers(from peer.Hello) ([]byte, error) {
	m := s.member.Load()
	if m == nil {
		return nil, errNotYet
	}
	if n, ok := m.State.Node(from.Node); !ok || n.State == ring.NodeRemoved {
		return nil, fmt.Errorf("node %010x is not a member of this cluster", from.Node)
	}
	return json.Marshal(m.State.Nodes())
}

// refreshedNode is a node as others have it that this node's own copy does not know yet.
func (s *Self) refreshedNode(node uint64) (ring.Node, bool) {
	if list := s.refreshed.Load(); list != nil {
		for _, n := range *list {
			if n.ID == node {
				return n, true
			}
		}
	}
	return ring.Node{}, false
}

// memberRefresh brings Self.refreshed up to date.
type memberRefresh struct {
	*local
	seen  *observer
	asked int // how many were asked
}

// refresh asks, where an unknown node has been met, one node after the other until one answers. The
// next refresh begins with the one after that.
func (m *memberRefresh) refresh(ctx context.Context) {
	unknown := m.unknownPeer.Swap(0)
	if unknown == 0 {
		return
	}
	from := m.refreshFrom()
	for range from {
		id := from[m.asked%len(from)]
		m.asked++
		addr := m.AddressOf(id)
		if addr == "" || id == m.id {
			continue
		}
		var list []ring.Node
		if from, err := ask(ctx, m.Self, addr, methodMembers, nil, &list); err == nil && from.Node == id && from.Cluster == m.Identity().ClusterID {
			if slices.ContainsFunc(list, func(n ring.Node) bool { return n.ID == unknown }) {
				m.refreshed.Store(&list)
			}
			return
		}
	}
}

// refreshFrom are the members that this node hears, and then the other nodes that gossip knows in
// this cluster.
func (m *memberRefresh) refreshFrom() (ids []uint64) {
	for _, n := range m.State.Nodes() {
		if n.ID != m.id && m.seen.isUp(n.ID) {
			ids = append(ids, n.ID)
		}
	}
	for _, n := range m.gossiped() {
		if _, member := m.State.Node(n.ID); !member || !m.seen.isUp(n.ID) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// others are the other members by this node's copy of the cluster's state, or those that gossip
// knows if the copy is still empty: the replica of the meta group that was to fill it may have been
// given up before it had anything.
func (l *local) others() []ring.Node {
	nodes := l.State.Nodes()
	if len(nodes) == 0 {
		return l.gossiped()
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n ring.Node) bool { return n.ID == l.id })
}

// gossiped are the other nodes that gossip knows in this cluster.
func (l *local) gossiped() (nodes []ring.Node) {
	for _, g := range l.gossip.List() {
		if g.ID != l.id && g.State == ring.MemberAlive && g.Cluster == l.Identity().ClusterID {
			nodes = append(nodes, ring.Node{ID: g.ID, Name: g.Name, Peer: g.Peer})
		}
	}
	return nodes
}
