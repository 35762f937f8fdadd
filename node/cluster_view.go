package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"carillon/internal/feature"
	"carillon/node/member"
	"carillon/node/metrics"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// View implements backend.Engine.
func (e *engine) View() backend.ClusterView {
	v := backend.ClusterView{Version: e.p.cfg.Version, TestClock: e.p.testClock != nil}
	c, err := e.core()
	if err != nil {
		return v
	}
	v.ClusterID, _, v.Replicas = c.member.State.Cluster()
	v.ShardsNow, v.Resharding, v.Moves = c.member.State.Shards().Now, c.growth(), c.moves(e.p.running)
	upgrade := c.member.State.Upgrade()
	v.Level = uint32(upgrade.Level)
	if upgrade.Next > upgrade.Level {
		v.Upgrade = &backend.UpgradeView{Level: uint32(upgrade.Next), Lacking: upgrade.Lacking}
	}
	leader, peers := c.member.SeenLeaders(), c.peers()
	leads, replicas := map[uint64]int{}, map[uint64]int{}
	rows := c.member.State.Rows()
	for i := range rows {
		if rows[i].Group == ring.MetaGroup {
			continue
		}
		for _, r := range slices.Concat(rows[i].Replicas, rows[i].Leaving) {
			replicas[r.Node]++
		}
		by := c.leadOf(&rows[i], leader)
		s := c.shardRow(&rows[i], by, peers)
		leads[by.node]++
		v.Shards = append(v.Shards, s)
	}
	low := map[uint64]bool{}
	for _, disk := range c.host.LowDisks() {
		low[disk.Node] = true
	}
	for _, n := range c.member.State.Nodes() {
		view := c.nodeView(e.p, &n, peers)
		view.LowDisk = low[n.ID]
		view.Leads, view.Replicas = leads[n.ID], replicas[n.ID]
		v.Nodes = append(v.Nodes, view)
	}
	slices.SortFunc(v.Nodes, func(a, b backend.NodeView) int { return cmp.Compare(a.Name, b.Name) })
	v.Healthy = healthy(&v)
	return v
}

// healthy reports that nothing has to be waited for or seen to. A drained node is as it should be:
// it holds nothing, and may stay so. So is a cluster whose shards double: one after the other is
// being made or moved, and the view has how far that is.
func healthy(v *backend.ClusterView) bool {
	for i := range v.Nodes {
		if s := v.Nodes[i].State; s != backend.NodeAlive && s != backend.NodeDrained {
			return false
		}
	}
	return len(v.Shards) > 0 && !slices.ContainsFunc(v.Shards, func(s backend.ShardRow) bool {
		return s.State != backend.ShardOK && !(s.State == backend.ShardMoving && v.Resharding != nil)
	})
}

// lead is the node that leads a shard, or 0, and whether the shard then lacks a leader.
type lead struct {
	node  uint64
	lacks bool
}

// leadOf asks first whether the shard lacks a leader: one that is elected between the two questions
// is then seen by the second. It lacks one where nobody is known to lead it, and not only while its
// leadership goes from one node to another: where this node was never ready, its first leader is
// still to be elected. A node without a replica does not know.
func (c *core) leadOf(row *ring.Assignment, seen map[timer.ShardID]uint64) lead {
	lacks := !row.Names(c.p.self.ID()) || c.host.LacksLeader(row.Group, member.WasReady(c.member))
	return lead{c.leaderOf(row, seen), lacks}
}

// leaderOf is the node that leads a shard, by the leaders' own reports. A leader that was elected
// just now has not reported it yet: this node's replica may know it. A shard that was made just now
// is supposed to be led by the node that leads its parent.
func (c *core) leaderOf(row *ring.Assignment, seen map[timer.ShardID]uint64) uint64 {
	if node := seen[row.Group]; node != 0 {
		return node
	}
	if node, ok := c.host.Leader(row.Group); ok {
		return node
	}
	if r, on := c.member.State.Resharding(); on && int(row.Group) >= r.From+r.Done {
		return seen[row.From]
	}
	return 0
}

// unfit is why this node should not lead; "": it may.
func (c *core) unfit() string { return cmp.Or(c.p.self.Health.Why(), c.host.Fault()) }

// showState adds to the metrics whether this node does its part.
func (p *process) showState(m *metrics.Metrics) {
	gauge := func(name, help string, holds func() bool) {
		m.Gauge(name, help, func() int64 {
			if holds() {
				return 1
			}
			return 0
		})
	}
	gauge("carillon_ready", "1 while the node is ready, as GET /readyz says.", func() bool { return (&engine{p: p}).Ready() == nil })
	gauge("carillon_unfit", "1 while the node should not lead, and hands its shards over: for its clock, its disk or a key.", func() bool { return p.core.Load().unfit() != "" })
}

func (c *core) nodeView(p *process, n *ring.Node, peers peers) backend.NodeView {
	v := backend.NodeView{Name: n.Name, HTTP: n.HTTP, Zone: n.Zone, Version: n.Version, Level: uint32(max(n.Level, feature.LevelFirst)), State: backend.NodeAlive}
	if n.ID == p.self.ID() {
		v.Unfit, v.Starts, v.ClockOffsetMs = c.unfit(), c.member.Identity().Starts, new(int64)
	} else {
		seen := peers.seen[n.ID]
		v.Unfit, v.Starts, v.SilentMs = seen.Unhealthy, seen.Starts, seen.Silent.Milliseconds()
		if seen.ClockKnown {
			v.ClockOffsetMs = &seen.ClockOffsetMs
		}
		switch seen.Presence {
		case member.Suspect:
			v.State = backend.NodeSuspect
		case member.Down:
			v.State = backend.NodeDown
		}
	}
	if v.State == backend.NodeAlive || v.State == backend.NodeSuspect {
		switch n.State {
		case ring.NodeDraining:
			v.State = backend.NodeDraining
		case ring.NodeDrained:
			v.State = backend.NodeDrained
		}
	}
	return v
}

func (c *core) shardRow(row *ring.Assignment, by lead, peers peers) backend.ShardRow {
	s := backend.ShardRow{Shard: row.Group, Epoch: row.Epoch, Replicas: make([]string, 0, len(row.Replicas)), Full: c.full(row),
		State: shardState(row, by, peers)}
	if n, ok := c.member.State.Node(by.node); ok {
		s.Leader = n.Name
	}
	for _, r := range row.Replicas {
		n, ok := c.member.State.Node(r.Node)
		if !ok {
			n.Name = fmt.Sprintf("%010x", r.Node)
		}
		s.Replicas = append(s.Replicas, n.Name)
	}
	return s
}

// shardState is how a shard is. A row that has not got all its replicas yet, or not again, is
// degraded like one whose replica is not heard: one more loss may stop it.
func shardState(row *ring.Assignment, by lead, peers peers) backend.ShardState {
	there, alive := 0, 0
	for _, r := range row.Replicas {
		if peers.there(r.Node) {
			there++
		}
		if peers.alive(r.Node) {
			alive++
		}
	}
	switch {
	case by.node == 0 && 2*there <= len(row.Replicas):
		return backend.ShardNoQuorum
	case !row.Settled:
		return backend.ShardMoving
	case alive < max(len(row.Replicas), peers.each) || by.node != 0 && !peers.alive(by.node) || by.node == 0 && by.lacks:
		return backend.ShardDegraded
	}
	return backend.ShardOK
}

// full reports that this node has a replica of the shard that holds as much as one can.
func (c *core) full(row *ring.Assignment) bool {
	if !row.Names(c.member.ID()) || int(row.Group) > c.host.Shards() { // it is yet to be made here
		return false
	}
	_, full := c.host.Size(row.Group)
	return full
}

// peers are how this node sees each member at one moment, itself included: all parts of a view are
// to agree.
type peers struct {
	seen map[uint64]member.PeerView
	each int // replicas that a shard should have: as many as are wanted, or one for each node that may hold one
}

func (c *core) peers() peers {
	p := peers{seen: map[uint64]member.PeerView{c.p.self.ID(): {}}}
	for _, n := range c.member.State.Nodes() {
		if n.ID != c.p.self.ID() {
			p.seen[n.ID] = c.member.Peer(n.ID)
		}
		if n.State == ring.NodeMember {
			p.each++
		}
	}
	_, _, wanted := c.member.State.Cluster()
	p.each = min(p.each, wanted)
	return p
}

// there reports that a node is not known to be down. A process that has just begun has not heard the
// others yet.
func (p peers) there(node uint64) bool {
	v, known := p.seen[node]
	return known && v.Presence != member.Down
}

// alive reports that a node is neither suspect nor down.
func (p peers) alive(node uint64) bool {
	v, known := p.seen[node]
	return known && v.Presence == member.Alive
}

// Shard implements backend.Backup.
func (c *core) Shard(id timer.ShardID) (backend.ShardView, bool) {
	if id == shard.Meta {
		return backend.ShardView{}, false
	}
	row, ok := c.member.State.Row(id)
	if !ok {
		return backend.ShardView{}, false
	}
	v := backend.ShardView{ShardRow: c.shardRow(&row, c.leadOf(&row, c.member.SeenLeaders()), c.peers())}
	for _, g := range c.host.Groups() {
		if g.Group == id && g.Replica != 0 {
			v.Known, v.Term, v.Applied, v.Timers, v.Hash = true, g.Term, g.Applied, int64(g.Timers), g.Hash
		}
	}
	return v, true
}

// ownWords is a refusal as the API knows it, in the words of the one that refuses.
type ownWords struct {
	error
	kind error
}

func (w ownWords) Unwrap() error { return w.kind }

// clusterError is a fault of the meta group as the API knows it.
func clusterError(err error) error {
	switch {
	case errors.Is(err, ring.ErrUnknownNode), errors.Is(err, ring.ErrRemoved):
		return backend.ErrUnknownNode
	case errors.Is(err, ring.ErrInUse):
		return backend.ErrNotDrained
	case errors.Is(err, member.ErrNotDrained):
		return ownWords{err, backend.ErrNotDrained}
	case errors.Is(err, ring.ErrMajority):
		return fmt.Errorf("%w: %s", backend.ErrMajority, err)
	case errors.Is(err, ring.ErrBadShards):
		return ownWords{err, backend.ErrBadShards}
	case errors.Is(err, ring.ErrResharding):
		return ownWords{err, backend.ErrResharding}
	case errors.Is(err, ring.ErrLastNode), errors.Is(err, member.ErrNoOtherNode):
		return backend.ErrNoOtherNode
	}
	return err
}
