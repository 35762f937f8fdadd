package ring

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
