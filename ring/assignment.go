package ring

import (
	"errors"
	"fmt"
	"slices"

	"carillon/internal/placement"
	"carillon/timer"
)

// MetaGroup is the group that State is replicated by; the timer shards follow from 1.
const MetaGroup timer.ShardID = 0

// ErrBadPlacement is the root of the errors for a placement that no row can have.
var ErrBadPlacement = errors.New("the placement is not valid")

// Replica is one copy of a group.
type Replica struct {
	Node    uint64 `json:"node"`
	ID      uint64 `json:"id"`                // see placement.ReplicaID
	Learner bool   `json:"learner,omitempty"` // has no vote; the meta group's only
}

// NodeOfReplica is the node on which a replica is.
func NodeOfReplica(id uint64) uint64 { return id >> 24 }

// Assignment is the placement of one group as the cluster wants it. Values are immutable once
// published, slices and all.
type Assignment struct {
	Group timer.ShardID `json:"group"`
	Epoch uint32        `json:"epoch"` // grows with each change
	// By rank: the first is the preferred leader; learners come last.
	Replicas []Replica `json:"replicas"`

	// Leaving are the replicas that the group may still have until the row is settled. They keep
	// their data until then. Invariant: empty when Settled; never a replica that is in Replicas.
	Leaving []Replica `json:"leaving,omitempty"`
	Settled bool      `json:"settled,omitempty"` // the group's membership is Replicas

	// Unmoved: no move of a shard's row has been settled since the group was founded, so perhaps
	// the group does not exist yet: a node that is late may not have made its first replica. A row
	// of epoch 1 is unmoved without the flag. Invariant: while it holds, Replicas and Leaving have
	// all replicas that the group was founded with; see Founders.
	Unmoved bool `json:"unmoved,omitempty"`

	// From is the shard that this one was divided from, for ever; 0: none.
	From timer.ShardID `json:"from,omitempty"`
}

// dividing reports whether the shard is on its way out of the one that it is divided from.
func (a *Assignment) dividing() bool { return a.From != 0 && a.Epoch == 1 && !a.Settled }

// Founders are the replicas that the group was founded with. There are none once a move has been
// settled: then most of them had been made, and the leader sends everything to one that was not.
func (a *Assignment) Founders() []Replica {
	if a.Epoch > 1 && !a.Unmoved {
		return nil
	}
	var first []Replica
	for _, replica := range slices.Concat(a.Replicas, a.Leaving) {
		if replica.ID == placement.ReplicaID(replica.Node, 1) {
			first = append(first, replica)
		}
	}
	return first
}

// ForHost is the row as a host has to know it.
func (a *Assignment) ForHost() placement.Assignment {
	out := placement.Assignment{Group: a.Group, Epoch: a.Epoch, Settled: a.Settled, Members: membersOf(a.Replicas), From: a.From}
	if a.Unmoved {
		out.Founders = membersOf(a.Founders())
	}
	return out
}

func membersOf(replicas []Replica) []placement.Member {
	out := make([]placement.Member, len(replicas))
	for i, m := range replicas {
		out[i] = placement.Member{Node: m.Node, Replica: m.ID, Learner: m.Learner}
	}
	return out
}

// Replica finds the replica on a node.
func (a *Assignment) Replica(node uint64) (Replica, bool) {
	return onNode(a.Replicas, node)
}

// Names reports whether the row wants a replica on the node.
func (a *Assignment) Names(node uint64) bool {
	_, ok := onNode(a.Replicas, node)
	return ok
}

// Needs reports whether the group would miss the node: it has a vote, or may still have one.
func (a *Assignment) Needs(node uint64) bool {
	if replica, ok := onNode(a.Replicas, node); ok && !replica.Learner {
		return true
	}
	// A replica that is losing its vote is a learner here already.
	if a.Group == MetaGroup && !a.Settled {
		return a.Names(node)
	}
	_, leaving := onNode(a.Leaving, node)
	return leaving
}

// Nodes are the nodes of the replicas that vote, by rank.
func (a *Assignment) Nodes() []uint64 {
	nodes := make([]uint64, 0, len(a.Replicas))
	for _, replica := range a.Replicas {
		if !replica.Learner {
			nodes = append(nodes, replica.Node)
		}
	}
	return nodes
}

func onNode(replicas []Replica, node uint64) (Replica, bool) {
	for _, r := range replicas {
		if r.Node == node {
			return r, true
		}
	}
	return Replica{}, false
}

// next is the row with other replicas, one epoch on.
func (a *Assignment) next(to []Replica) (Assignment, error) {
	if a.Epoch >= placement.MaxEpoch {
		return Assignment{}, fmt.Errorf("%w: group %d has used up its epochs", ErrBadPlacement, a.Group)
	}
	n := Assignment{Group: a.Group, Epoch: a.Epoch + 1, Replicas: slices.Clone(to), From: a.From}
	// A founder of the meta group makes its replica by no row.
	n.Unmoved = a.Group != MetaGroup && (a.Unmoved || a.Epoch == 1)
	if err := n.validate(); err != nil {
		return Assignment{}, err
	}
	for _, replica := range n.Replicas {
		// A node keeps the replica that it has, or may still have.
		if a.replicaFor(replica.Node).ID != replica.ID {
			return Assignment{}, fmt.Errorf("%w: group %d has no replica %d on node %d, and a new one would be %d",
				ErrBadPlacement, a.Group, replica.ID, replica.Node, placement.ReplicaID(replica.Node, n.Epoch))
		}
	}
	same := a.Settled && len(n.Replicas) == len(a.Replicas)
	for _, replica := range slices.Concat(a.Replicas, a.Leaving) {
		kept, ok := onNode(n.Replicas, replica.Node)
		if !ok {
			n.Leaving = append(n.Leaving, replica)
		}
		same = same && ok && kept == replica
	}
	n.Settled = same // only the order is another: there is nothing to move
	return n, nil
}

func (a *Assignment) validate() error {
	voters := 0
	seen := make(map[uint64]bool, len(a.Replicas))
	for _, replica := range a.Replicas {
		switch {
		case replica.Node == 0 || replica.Node >= maxNodeID || NodeOfReplica(replica.ID) != replica.Node:
			return fmt.Errorf("%w: replica %d of group %d is not one of node %d", ErrBadPlacement, replica.ID, a.Group, replica.Node)
		case seen[replica.Node]:
			return fmt.Errorf("%w: group %d has node %d twice", ErrBadPlacement, a.Group, replica.Node)
		case replica.Learner && a.Group != MetaGroup:
			return fmt.Errorf("%w: group %d has a replica without a vote", ErrBadPlacement, a.Group)
		case !replica.Learner && voters != len(seen):
			return fmt.Errorf("%w: group %d lists a voter after a replica without a vote", ErrBadPlacement, a.Group)
		}
		seen[replica.Node] = true
		if !replica.Learner {
			voters++
		}
	}
	if voters == 0 {
		return fmt.Errorf("%w: group %d has no replica", ErrBadPlacement, a.Group)
	}
	return nil
}

// replicasOn makes the first replicas of a group.
func replicasOn(nodes []uint64, learners []uint64) []Replica {
	out := make([]Replica, 0, len(nodes)+len(learners))
	for _, n := range nodes {
		out = append(out, Replica{Node: n, ID: placement.ReplicaID(n, 1)})
	}
	for _, n := range learners {
		out = append(out, Replica{Node: n, ID: placement.ReplicaID(n, 1), Learner: true})
	}
	return out
}
