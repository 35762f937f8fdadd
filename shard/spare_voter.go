package shard

import (
	"slices"
	"time"
)

// A spare voter is a follower that its leader needs for no majority, as long as the others do their
// part: of three voters one, of five two. Its entries wait a moment for a frame that the node writes
// anyway, of groups that it leads or in which it is no spare voter. So a node of three syncs two
// thirds as often. Who is spare follows from the order of the voters after the leader, so that
// leader and followers agree without a word, and each node is spare for others as often.

// spareFor is the longest wait. An entry is committed so much later while a voter that is not spare
// is away.
const spareFor = 5 * time.Millisecond

// spare reports whether this replica is a spare voter. During a change of members nobody is, nor in
// the meta group: nodes wait for their copy of its state.
func (m *membership) spare(g *group) bool {
	if g.machine.prompt() {
		return false
	}
	voters := g.store.conf.Voters
	leader, own := slices.Index(voters, g.raft.BasicStatus().Lead), slices.Index(voters, g.replica)
	if leader < 0 || own < 0 || len(g.store.conf.VotersOutgoing) > 0 {
		return false
	}
	after := (own - leader + len(voters)) % len(voters) // the leader
	return after > len(voters)/2
}

// waitsForOthers reports whether the open frame has only entries of spare voters, and goes on
// waiting for others.
func (w *worker) waitsForOthers() bool {
	return w.out.frame != nil && !w.out.prompt && w.now.Mono < w.out.openedAt+spareFor
}
