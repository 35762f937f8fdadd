package route

import (
	"errors"

	"carillon/timer"
)

// target is where a request's operations on one shard go.
type target struct {
	node  uint64 // in this round; 0: no node is known
	hint  uint64 // the leader, by the node that was asked last; 0: it does not know
	tries int
	asked bool // this node was asked, and did not lead; it is not asked again before it does
	round int  // in which node was chosen
}

// choose picks the node for a round.
func (t *target) choose(r *Router, id timer.ShardID) {
	hint := t.hint
	t.hint = 0
	switch {
	case r.leads(id):
		t.node = r.self
	case hint != 0 && hint != r.self:
		t.node = hint
	case !t.asked && r.takes(id):
		t.node, t.asked = r.self, true
	default:
		t.node = r.candidate(id, t.tries)
		t.tries++
	}
}

// takeLeaderHint keeps the leader that an error names; true when it names another node.
func (t *target) takeLeaderHint(err error) bool {
	moved, ok := errors.AsType[timer.NotLeaderError](err)
	if !ok || moved.Leader == t.node {
		return false
	}
	t.hint = moved.Leader
	return t.hint != 0
}

// candidate is the n-th of the nodes that may lead a shard, over and over: the leader as this
// node's replica knows it, then the likely ones.
func (r *Router) candidate(id timer.ShardID, n int) uint64 {
	leader := r.leader(id)
	if leader != 0 && n == 0 {
		return leader
	}
	var list []uint64
	if leader != 0 {
		list = append(list, leader)
	}
	for _, node := range r.cfg.Cluster.LikelyLeaders(id) {
		if node != 0 && node != r.self && node != leader {
			list = append(list, node)
		}
	}
	if len(list) == 0 {
		return 0
	}
	return list[n%len(list)]
}
