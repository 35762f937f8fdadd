// Package placement has the types by which the cluster assigns replicas to a host.
package placement

import "carillon/timer"

// Member is one replica of a group. The ids of replicas are never reused within a group.
type Member struct {
	Node    uint64
	Replica uint64
	Learner bool // has no vote (the meta group only)
}

// Assignment is where a group's replicas should be, as decided by the meta group. It is an intent.
// Raft's membership is where they are, and the group's leader makes it follow the assignment.
type Assignment struct {
	Group   timer.ShardID
	Epoch   uint32 // grows with every change; the group never goes back to an older one (I8)
	Members []Member
	Settled bool // raft's membership matches

	// Founders are the first members of the group, as long as one of them may still have to create
	// its replica, even if Members no longer has it. In epoch 1 they are Members.
	Founders []Member `json:",omitempty"`

	// From is the group that this one was divided from; 0: it was founded with the cluster. It is
	// kept for ever: a replica of such a group is never founded empty.
	From timer.ShardID `json:",omitempty"`
}

// MaxEpoch bounds epochs, which are the lower part of replica ids.
const MaxEpoch = 1<<24 - 1

// ReplicaID returns the raft id of the replica that an epoch puts on a node.
func ReplicaID(node uint64, epoch uint32) uint64 { return node<<24 | uint64(epoch&MaxEpoch) }

// On returns the replica on a node, or nil.
func On(members []Member, node uint64) *Member {
	for i := range members {
		if members[i].Node == node {
			return &members[i]
		}
	}
	return nil
}

// FirstMembers returns the first members of the group, or none if all that must have created their
// replicas.
func (a *Assignment) FirstMembers() []Member {
	if a.Epoch == 1 {
		return a.Members
	}
	return a.Founders
}

// WrongReplica is a replica whose state differs from that of most others, as its node reports.
type WrongReplica struct {
	Group   timer.ShardID
	Replica uint64
}
