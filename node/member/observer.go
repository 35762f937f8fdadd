package member

import (
	"maps"
	"slices"
	"time"

	"carillon/ring"
	"carillon/timer"
)

// observer is what this node knows of the others by their heartbeats: which of them are up, and
// what they lead.
type observer struct{ *local }

// LikelyLeaders lists the nodes that may lead a shard: first those that report it, silent ones
// last, then those of its row. Requests ask for it: its cost does not depend on the number of
// nodes.
func (o *observer) LikelyLeaders(id timer.ShardID) []uint64 {
	out := slices.DeleteFunc(o.liveness.leaders(o.clock.Mono(), id), func(node uint64) bool {
		n, ok := o.State.Node(node)
		return !ok || n.State == ring.NodeRemoved
	})
	if from := o.holder(id); from != id {
		for _, node := range o.LikelyLeaders(from) {
			if !slices.Contains(out, node) {
				out = append(out, node)
			}
		}
	}
	if row, ok := o.State.Row(id); ok {
		for _, r := range slices.Concat(row.Replicas, row.Leaving) {
			if !slices.Contains(out, r.Node) {
				out = append(out, r.Node)
			}
		}
	}
	return out
}

func (o *observer) leads() (ids []timer.ShardID) {
	shards, _ := o.Shards()
	for id := timer.ShardID(1); int(id) <= shards; id++ {
		if o.host.Leads(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// LeadingNodes lists the nodes that report that they lead something, this one included.
func (o *observer) LeadingNodes() (nodes []uint64) {
	now := o.clock.Mono()
	for _, n := range o.State.Nodes() {
		if n.ID == o.id {
			continue
		}
		if s, ago, ok := o.liveness.last(now, n.ID); ok && ago < downAfter && len(s.last.Leads) > 0 {
			nodes = append(nodes, n.ID)
		}
	}
	shards, _ := o.Shards()
	for id := timer.ShardID(1); int(id) <= shards; id++ {
		if o.host.Leads(id) {
			return append(nodes, o.id)
		}
	}
	return nodes
}

// LiveNodes lists the other members that are up now.
func (o *observer) LiveNodes() (nodes []uint64) {
	now := o.clock.Mono()
	for _, n := range o.State.Nodes() {
		if _, ago, ok := o.liveness.last(now, n.ID); ok && ago < suspectAfter && n.ID != o.id {
			nodes = append(nodes, n.ID)
		}
	}
	return nodes
}

// Silent reports that no heartbeat of another node has come for the time of two: before others take
// its shards over, as elections take longer.
func (o *observer) Silent(node uint64) bool {
	ago, _ := o.silence(node)
	return ago >= 2*heartbeatInterval
}

// Replicas are the nodes that are to have a replica of a shard.
func (o *observer) Replicas(id timer.ShardID) (nodes []uint64) {
	row, _ := o.State.Row(o.holder(id))
	for _, r := range row.Replicas {
		nodes = append(nodes, r.Node)
	}
	return nodes
}

// Leaders is which node leads which shard, by reports that are younger than downAfter.
func (o *observer) Leaders() map[timer.ShardID]uint64 { return o.leadersWithin(downAfter) }

// SeenLeaders is Leaders for readers of the cluster's state: the report of a live node counts
// before that of a suspect one, since others take over from that one.
func (o *observer) SeenLeaders() map[timer.ShardID]uint64 {
	leader := o.Leaders()
	maps.Copy(leader, o.leadersWithin(suspectAfter))
	return leader
}

func (o *observer) leadersWithin(age time.Duration) map[timer.ShardID]uint64 {
	leader := map[timer.ShardID]uint64{}
	mine := o.leads()
	now := o.clock.Mono()
	for _, n := range o.State.Nodes() {
		list := mine
		if n.ID != o.id {
			s, ago, ok := o.liveness.last(now, n.ID)
			if !ok || ago >= age {
				continue
			}
			list = s.last.Leads
		}
		for _, id := range list {
			if leader[id] != o.id { // this node knows best of itself
				leader[id] = n.ID
			}
		}
	}
	return leader
}

// isUp reports whether a node has sent a heartbeat lately.
func (o *observer) isUp(node uint64) bool {
	if node == o.id {
		return true
	}
	_, ago, ok := o.liveness.last(o.clock.Mono(), node)
	return ok && ago < downAfter
}

// isAlone reports whether there are other members and none of them is up.
func (o *observer) isAlone() bool {
	nodes := o.State.Nodes()
	for _, n := range nodes {
		if n.ID != o.id && o.isUp(n.ID) {
			return false
		}
	}
	return len(nodes) > 1
}

// Presence is how a node is seen.
type Presence uint8

// The states, by the age of the last heartbeat.
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

func (o *observer) Peer(node uint64) PeerView {
	var v PeerView
	now := o.clock.Mono()
	s, ago, ok := o.liveness.last(now, node)
	v.Silent, v.Starts = ago, s.last.Starts
	if ok && ago < downAfter {
		v.ClockOffsetMs, v.ClockKnown = s.offset(now, o.clock.State().RawMs)
		v.Unhealthy = s.last.Unhealthy
	}
	switch {
	case !ok && ago < downAfter:
		v.Presence = Suspect
	case !ok || ago >= downAfter:
		v.Presence = Down
	case ago >= suspectAfter:
		v.Presence = Suspect
	}
	return v
}

// silence is how long a node has sent nothing; ok: it has sent something before.
func (o *observer) silence(node uint64) (ago time.Duration, ok bool) {
	_, ago, ok = o.liveness.last(o.clock.Mono(), node)
	return ago, ok
}

// live lists the members that this node knows to be up, itself among them.
func (o *observer) live() []uint64 { return append(o.LiveNodes(), o.id) }

// ClockRight reports whether more than half of the members report that they trust their clock and
// are nodes for which right is true.
func (o *observer) ClockRight(right func(node uint64) bool) bool {
	now, heard := o.clock.Mono(), 0
	members := o.State.Nodes()
	for _, n := range members {
		s, ago, ok := o.liveness.last(now, n.ID)
		if n.ID != o.id && ok && ago < time.Second && s.last.Clock.Sure && right(n.ID) {
			heard++
		}
	}
	return 2*heard > len(members)
}

// LowDisks implements shard.Shortages: the other nodes' reports of their disks. A node that is down
// counts for nothing: it writes nothing, and may come back with room.
func (o *observer) LowDisks() []timer.LowDiskError { return o.liveness.lowDisks(o.clock.Mono()) }

// Tight implements shard.Shortages, as LowDisks does.
func (o *observer) Tight() []uint64 { return o.liveness.tight(o.clock.Mono()) }
