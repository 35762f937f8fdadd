package node

import (
	"slices"
	"sync/atomic"

	"carillon/shard"
)

// turnMs is how long a node's turn lasts where a limit is smaller than the number of nodes that lead.
const turnMs = 1000

// maxBeatHeld bounds the topics in a beat; of a node that has more, the others take it that it holds leases of all.
const maxBeatHeld = 1024

// shares are this node's parts of what topics may do in the whole cluster. They follow from who leads what, which every node says four
// times a second:
//
//   - A rate is divided by the shards that a node leads, of those that the cluster has. What nobody leads is nobody's.
//   - Of leases at once each node that leads anything has one, and the rest is divided by the shards.
//   - Where there are fewer than such nodes, these take turns by the clock. A lease may outlast its turn: so whose turn it is waits
//     until every other node that is there has said, by a beat of the same turn or a later one, that it holds none. A node's
//     beats of a turn are a promise to take no lease in it that is not its own, so no clock needs to be right for this to hold.
//   - An ordered topic is all with the leader of its shard.
//
// So the sum never exceeds the whole, but in the moment in which leaderships move and before the leases of before have ended. It may
// well be less: a part that a node cannot use is not given to others.
type shares struct {
	core *core
	view atomic.Pointer[shareView]
}

// shareView is who leads how many shards, as of the last beat.
type shareView struct {
	shards int
	nodes  []uint64 // those that lead any, by id
	leads  []int64  // how many each
	me     int      // this node's place among them; -1: it leads none
	mine   []shard.ID
}

// look takes stock, after each beat.
func (s *shares) look(mine []shard.ID) {
	_, shards, _ := s.core.state.Cluster()
	_, leader := s.core.leaders()
	counts := map[uint64]int64{}
	for id, node := range leader {
		if int(id) <= shards {
			counts[node]++
		}
	}
	s.view.Store(newShareView(shards, counts, s.core.self, mine))
}

func newShareView(shards int, counts map[uint64]int64, self uint64, mine []shard.ID) *shareView {
	v := &shareView{shards: shards, mine: mine}
	for node := range counts {
		v.nodes = append(v.nodes, node)
	}
	slices.Sort(v.nodes)
	for _, node := range v.nodes {
		v.leads = append(v.leads, counts[node])
	}
	v.me = slices.Index(v.nodes, self)
	return v
}

// Share implements shard.Shares.
func (s *shares) Share(t *shard.Topic) float64 {
	v := s.view.Load()
	switch {
	case v == nil || v.me < 0:
		return 0
	case t.Policy.Ordered:
		return float64(v.whole(t, 1))
	}
	return float64(v.leads[v.me]) / float64(v.shards)
}

// AtOnce implements shard.Shares.
func (s *shares) AtOnce(t *shard.Topic, limit int) int {
	v, turn := s.view.Load(), s.core.p.clock.WallMs()/turnMs
	n := v.units(t, limit, turn)
	if n > 0 && !t.Policy.Ordered && limit < len(v.nodes) && !s.othersHoldNone(v, t, limit, turn) {
		return 0
	}
	return n
}

// Burst implements shard.Shares.
func (s *shares) Burst(t *shard.Topic, burst int) int {
	return s.view.Load().units(t, burst, s.core.p.clock.WallMs()/turnMs)
}

// whole is all of a limit for the leader of an ordered topic's shard.
func (v *shareView) whole(t *shard.Topic, n int) int {
	if slices.Contains(v.mine, shard.Place(t, "", v.shards)) {
		return n
	}
	return 0
}

// units is this node's part of n.
func (v *shareView) units(t *shard.Topic, n int, turn int64) int {
	switch {
	case v == nil || v.me < 0:
		return 0
	case t.Policy.Ordered:
		return v.whole(t, n)
	case n < len(v.nodes):
		if v.hasTurn(v.me, t, n, turn) {
			return 1
		}
		return 0
	}
	rest := int64(n - len(v.nodes))
	part := func(i int) int64 { return rest * v.leads[i] / int64(v.shards) }
	left := rest
	for i := range v.nodes {
		left -= part(i)
	}
	own := 1 + part(v.me)
	if int64(v.me) < left {
		own++
	}
	return int(own)
}

// hasTurn says whether one of the n units of a topic is a node's in a turn.
func (v *shareView) hasTurn(node int, t *shard.Topic, n int, turn int64) bool {
	nodes := int64(len(v.nodes))
	first := (turn%nodes*int64(n) + int64(t.ID)) % nodes
	return (int64(node)-first+nodes)%nodes < int64(n)
}

// othersHoldNone says whether no node but those whose turn it is holds a lease of a topic, as they say themselves.
func (s *shares) othersHoldNone(v *shareView, t *shard.Topic, n int, turn int64) bool {
	now := s.core.p.clock.Mono()
	for _, node := range s.core.state.Nodes() {
		if node.ID == s.core.self {
			continue
		}
		if at, leads := slices.BinarySearch(v.nodes, node.ID); leads && v.hasTurn(at, t, n, turn) {
			continue
		}
		h, ago, ok := s.core.p.pulse.last(now, node.ID)
		if ago < suspectFor && (!ok || !h.beat.freeOf(t.ID, turn)) {
			return false
		}
	}
	return true
}

// freeOf says whether a node that sent this beat has no lease of a topic, and takes none in that turn.
func (b *beat) freeOf(id shard.TopicID, turn int64) bool {
	_, held := slices.BinarySearch(b.Held, id)
	return b.WallMs/turnMs >= turn && !b.HeldMany && !held
}

// holding fills in what this node holds. The beat's clock has been read before: whoever takes a lease later finds the turn over.
func (b *beat) holding(host *shard.Host) {
	held, all := host.Holds(maxBeatHeld)
	slices.Sort(held)
	b.Held, b.HeldMany = held, !all
}

var _ shard.Shares = (*shares)(nil)
