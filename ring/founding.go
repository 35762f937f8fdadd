package ring

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"carillon/timer"
)

// FoundingPlan is the id and shape of a new cluster, and its first nodes.
//
// Founders are started with the same number of founders, and find each other by gossip. The one with
// the lowest id among exactly that many begins: it makes the plan, stores it, and then gossips that
// it belongs to the plan's cluster. The others get the plan from a node that has it, as they join,
// and store it too. The meta group's leader proposes the first entry once all nodes of the plan have
// connected to it, which only a node that has stored the plan can do.
//
// Invariant: a node stores at most one plan in its life, before it connects to others, and a cluster
// is founded when all nodes of its plan have stored it. So two plans that have a node in common are
// never both founded, even if messages are lost, repeated or reordered, or founders crash. Which node
// begins only makes it likely that there is one plan.
type FoundingPlan struct {
	ClusterID string `json:"cluster_id"`
	Shards    int    `json:"shards"`
	Replicas  int    `json:"replicas"`
	Nodes     []Node `json:"nodes"` // in order of id
}

// Has reports whether a node is in the plan. A nil plan has none.
func (p *FoundingPlan) Has(node uint64) bool {
	return p != nil && slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.ID == node })
}

// FoundingStep is what a founder does now: one of these.
type FoundingStep struct {
	Begin   *FoundingPlan // store it and belong to its cluster
	Join    string        // join this cluster: somebody has begun it, or it is an older one
	Waiting string        // what is missing, when nothing is wrong
	Trouble string        // why no cluster can be founded, and what the operator can do
}

// NextFounding is the next step of a founder without a plan, by its view of gossip, with or without
// itself. random makes a cluster id.
func NextFounding(self Member, members []Member, random func() string) FoundingStep {
	founders := []Member{self}
	for _, m := range members {
		switch {
		case m.ID == self.ID:
		case m.Cluster != "": // a dead node's cluster counts too: another one would hide its timers
			return FoundingStep{Join: m.Cluster}
		case m.State == MemberAlive && m.Expect > 0:
			founders = append(founders, m)
		}
	}
	if trouble := disagreement(founders); trouble != "" {
		return FoundingStep{Trouble: trouble}
	}
	if here := len(founders); here < self.Expect {
		return FoundingStep{Waiting: fmt.Sprintf("%d of %d founders are here", here, self.Expect)}
	}
	slices.SortFunc(founders, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	if first := &founders[0]; first.ID != self.ID {
		return FoundingStep{Waiting: fmt.Sprintf("waiting for node %s (%s) to begin", first.Name, cmp.Or(first.Peer, first.Gossip))}
	}
	plan := &FoundingPlan{ClusterID: random(), Shards: self.Shards, Replicas: self.Replicas}
	for _, m := range founders {
		n := m.node()
		n.State = NodeMember
		plan.Nodes = append(plan.Nodes, n)
	}
	return FoundingStep{Begin: plan}
}

// disagreement is why these nodes cannot found a cluster together. The first is this one.
func disagreement(founders []Member) string {
	self, names := &founders[0], map[string]*Member{}
	for i := range founders {
		m := &founders[i]
		if m.Expect != self.Expect || m.Shards != self.Shards || m.Replicas != self.Replicas {
			return fmt.Sprintf("node %s (%s) was started with --bootstrap-expect %d --shards %d --replicas %d, this node with %d, %d, %d: "+
				"start all founders with the same", m.Name, m.Gossip, m.Expect, m.Shards, m.Replicas, self.Expect, self.Shards, self.Replicas)
		}
		if other := names[m.Name]; other != nil {
			return fmt.Sprintf("two founders have the name %s (%s and %s): give each its own --name", m.Name,
				cmp.Or(other.Gossip, "this node"), cmp.Or(m.Gossip, "this node"))
		}
		names[m.Name] = m
	}
	if len(founders) <= self.Expect {
		return ""
	}
	var all []string
	for _, m := range founders {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	return fmt.Sprintf("%d nodes were started with --bootstrap-expect %d (%s): stop those that are too many; they can join later without --bootstrap-expect",
		len(founders), self.Expect, strings.Join(all, ", "))
}

// FoundCommand founds a cluster, with the placement laid out: every node that applies it later, of
// any build, has the same rows.
func FoundCommand(clusterID string, shards, replicas int, nodes []Node) Command {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return Command{Verb: Found, ClusterID: clusterID, Shards: shards, Replicas: replicas, Nodes: nodes,
		Layout: layOut(nodes, shards, replicas)}
}

// layOut names the nodes of each shard by their places in nodes.
func layOut(nodes []Node, shards, replicas int) [][]int {
	place := make(map[uint64]int, len(nodes))
	for i, n := range nodes {
		place[n.ID] = i
	}
	layout := make([][]int, 0, max(shards, 0))
	for _, row := range Target(targetNodes(nodes), shards, replicas) {
		places := make([]int, len(row))
		for i, id := range row {
			places[i] = place[id]
		}
		layout = append(layout, places)
	}
	return layout
}

func targetNodes(nodes []Node) []TargetNode {
	out := make([]TargetNode, len(nodes))
	for i, n := range nodes {
		out[i] = TargetNode{ID: n.ID, Zone: n.Zone}
	}
	return out
}

// found makes the cluster. Repeated by the same cluster it changes nothing and is no error: the
// proposer may not have heard that it took effect.
func (c *cluster) found(nowMs int64, cmd *Command) Reply {
	if c.id != "" {
		if c.id == cmd.ClusterID {
			return Reply{}
		}
		return Reply{Err: fmt.Errorf("%w: %s", ErrFounded, c.id)}
	}
	switch {
	case !namePattern.MatchString(cmd.ClusterID):
		return Reply{Err: fmt.Errorf("%w: its id %q does not match %s", ErrBadCluster, cmd.ClusterID, namePattern)}
	case cmd.Shards < 1 || cmd.Shards > MaxShards:
		return Reply{Err: fmt.Errorf("%w: %d shards; 1–%d are allowed", ErrBadCluster, cmd.Shards, MaxShards)}
	case cmd.Replicas < 1 || cmd.Replicas > MaxReplicas:
		return Reply{Err: fmt.Errorf("%w: %d replicas; 1–%d are allowed", ErrBadCluster, cmd.Replicas, MaxReplicas)}
	case len(cmd.Nodes) < 1 || len(cmd.Nodes) > MaxNodes:
		return Reply{Err: fmt.Errorf("%w: %d nodes; 1–%d are allowed", ErrBadCluster, len(cmd.Nodes), MaxNodes)}
	}
	names := map[string]bool{}
	nodes := make(map[uint64]Node, len(cmd.Nodes))
	for _, n := range cmd.Nodes {
		if err := n.validate(); err != nil {
			return Reply{Err: err}
		}
		if _, twice := nodes[n.ID]; twice || names[n.Name] {
			return Reply{Err: fmt.Errorf("%w: node %d, %s, is listed twice", ErrBadCluster, n.ID, n.Name)}
		}
		n.State, n.JoinedMs, n.SinceMs = NodeMember, nowMs, nowMs
		nodes[n.ID], names[n.Name] = n, true
	}
	rows, err := firstRows(cmd)
	if err != nil {
		return Reply{Err: err}
	}
	c.id, c.shards, c.replicas = cmd.ClusterID, cmd.Shards, cmd.Replicas
	c.nodes, c.rows = nodes, rows
	c.list()
	c.level = c.least() // it has nothing to go back to
	c.version++
	return Reply{}
}

// firstRows are the rows that a Found command lays out.
func firstRows(cmd *Command) ([]Assignment, error) {
	if len(cmd.Layout) != cmd.Shards {
		return nil, fmt.Errorf("%w: the layout has %d of %d shards", ErrBadCluster, len(cmd.Layout), cmd.Shards)
	}
	rows := make([]Assignment, 0, 1+cmd.Shards)
	rows = append(rows, firstMetaRow(cmd.Nodes))
	for i, places := range cmd.Layout {
		ids := make([]uint64, len(places))
		for rank, place := range places {
			if place < 0 || place >= len(cmd.Nodes) {
				return nil, fmt.Errorf("%w: the layout puts shard %d on node %d of %d", ErrBadCluster, i+1, place, len(cmd.Nodes))
			}
			ids[rank] = cmd.Nodes[place].ID
		}
		row := Assignment{Group: timer.ShardID(i + 1), Epoch: 1, Replicas: replicasOn(ids, nil), Settled: true}
		if err := row.validate(); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// firstMetaRow lets MetaVoters of the nodes vote, in as many zones as possible; the others learn.
func firstMetaRow(nodes []Node) Assignment {
	voters := Target(targetNodes(nodes), 1, MetaVoters(len(nodes)))[0]
	var learners []uint64
	for _, n := range nodes {
		if !slices.Contains(voters, n.ID) {
			learners = append(learners, n.ID)
		}
	}
	slices.Sort(learners)
	return Assignment{Group: MetaGroup, Epoch: 1, Replicas: replicasOn(voters, learners), Settled: true}
}

// MetaVoters is how many of so many nodes vote in the meta group: all up to three, then three, and
// five of five or more. An even number above two would bear no more failures than the odd one
// below.
func MetaVoters(nodes int) int {
	switch {
	case nodes <= 3:
		return nodes
	case nodes == 4:
		return 3
	default:
		return 5
	}
}
