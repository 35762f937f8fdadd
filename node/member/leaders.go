package member

import (
	"maps"
	"slices"
	"time"

	"carillon/timer"
)

// LikelyLeaders lists which nodes may lead a shard: those that say so, then those of its row.
func (m *Member) LikelyLeaders(id timer.ShardID) []uint64 {
	var out []uint64
	now := m.clock.Mono()
	for _, n := range m.State.Nodes() {
		if s, ago, ok := m.liveness.last(now, n.ID); ok && ago < suspectFor {
			if _, leads := slices.BinarySearch(s.last.Leads, id); leads {
				out = append(out, n.ID)
			}
		}
	}
	if row, ok := m.State.Row(id); ok {
		for _, r := range row.Replicas {
			if !slices.Contains(out, r.Node) {
				out = append(out, r.Node)
			}
		}
		for _, r := range row.Leaving {
			if !slices.Contains(out, r.Node) {
				out = append(out, r.Node)
			}
		}
	}
	return out
}

// leads are the timer shards that this node leads.
func (m *Member) leads() (ids []timer.ShardID) {
	_, shards, _ := m.State.Cluster()
	for id := timer.ShardID(1); int(id) <= shards; id++ {
		if m.host.Leads(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// LeadingNodes are the nodes that say that they lead something, this one included.
func (m *Member) LeadingNodes() (nodes []uint64) {
	now := m.clock.Mono()
	for _, n := range m.State.Nodes() {
		if n.ID == m.id {
			continue
		}
		if s, ago, ok := m.liveness.last(now, n.ID); ok && ago < suspectFor && len(s.last.Leads) > 0 {
			nodes = append(nodes, n.ID)
		}
	}
	_, shards, _ := m.State.Cluster()
	for id := timer.ShardID(1); int(id) <= shards; id++ {
		if m.host.Leads(id) {
			return append(nodes, m.id)
		}
	}
	return nodes
}

// HeardNodes are the other members that this node hears now.
func (m *Member) HeardNodes() (nodes []uint64) {
	now := m.clock.Mono()
	for _, n := range m.State.Nodes() {
		if _, ago, ok := m.liveness.last(now, n.ID); ok && ago < aliveFor && n.ID != m.id {
			nodes = append(nodes, n.ID)
		}
	}
	return nodes
}

// Replicas are the nodes that are to have a replica of a shard.
func (m *Member) Replicas(id timer.ShardID) (nodes []uint64) {
	row, _ := m.State.Row(id)
	for _, r := range row.Replicas {
		nodes = append(nodes, r.Node)
	}
	return nodes
}

// Leaders are which node leads which shard, as the nodes have said themselves within suspectFor.
func (m *Member) Leaders() map[timer.ShardID]uint64 { return m.leadersWithin(suspectFor) }

// SeenLeaders are the leaders of the shards for a reader of the cluster's state: the report of a
// node that is alive goes before that of a suspect one, since others take over from that one.
func (m *Member) SeenLeaders() map[timer.ShardID]uint64 {
	leader := m.Leaders()
	maps.Copy(leader, m.leadersWithin(aliveFor))
	return leader
}

func (m *Member) leadersWithin(age time.Duration) map[timer.ShardID]uint64 {
	leader := map[timer.ShardID]uint64{}
	mine := m.leads()
	now := m.clock.Mono()
	for _, n := range m.State.Nodes() {
		list := mine
		if n.ID != m.id {
			s, ago, ok := m.liveness.last(now, n.ID)
			if !ok || ago >= age {
				continue
			}
			list = s.last.Leads
		}
		for _, id := range list {
			if leader[id] != m.id { // this node knows best of itself
				leader[id] = n.ID
			}
		}
	}
	return leader
}

// Hears reports that a node is there.
func (m *Member) Hears(node uint64) bool {
	if node == m.id {
		return true
	}
	_, ago, ok := m.liveness.last(m.clock.Mono(), node)
	return ok && ago < suspectFor
}

// alone reports that there are other members and none of them is heard.
func (m *Member) alone() bool {
	nodes := m.State.Nodes()
	for _, n := range nodes {
		if n.ID != m.id && m.Hears(n.ID) {
			return false
		}
	}
	return len(nodes) > 1
}

// Presence is how a node is seen.
type Presence uint8

// Seen lately, not for a while, and not for so long that it counts as down.
const (
	Alive Presence = iota
	Suspect
	Down
)

// PeerView is another node as this one sees it.
type PeerView struct {
	Presence Presence
	Silent   time.Duration // since it was last heard, or since it is known
	// Of its process, the one that was heard last included; 0: it was never heard.
	Starts        uint32
	ClockKnown    bool
	ClockOffsetMs int64 // its clock less this node's
	Unhealthy     string
}

// Peer is how this node sees another.
func (m *Member) Peer(node uint64) PeerView {
	var v PeerView
	now := m.clock.Mono()
	s, ago, ok := m.liveness.last(now, node)
	v.Silent, v.Starts = ago, s.last.Starts
	if ok && ago < suspectFor {
		v.ClockOffsetMs, v.ClockKnown = s.offset(now, m.clock.State().RawMs)
		v.Unhealthy = s.last.Unhealthy
	}
	switch {
	case !ok && ago < suspectFor:
		v.Presence = Suspect
	case !ok || ago >= suspectFor:
		v.Presence = Down
	case ago >= aliveFor:
		v.Presence = Suspect
	}
	return v
}

// silence is how long a node was not heard; it was never heard unless ok.
func (s *Self) silence(node uint64) (ago time.Duration, ok bool) {
	_, ago, ok = s.liveness.last(s.clock.Mono(), node)
	return ago, ok
}
