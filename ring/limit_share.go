package ring

import (
	"slices"

	"carillon/timer"
)

// shareView is how many shards each node leads, as one node knows it.
type shareView struct {
	shards int
	nodes  []uint64 // those that lead any, by id
	leads  []int64  // how many each
	me     int      // this node's place among them; -1: it leads none
}

func newShareView(shards int, counts map[uint64]int64, self uint64) *shareView {
	v := &shareView{shards: shards}
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

// share is this node's part of a rate.
func (v *shareView) share() float64 {
	if v == nil || v.me < 0 {
		return 0
	}
	return float64(v.leads[v.me]) / float64(v.shards)
}

// rate is this node's part of a topic's rate in a turn: the share of its shards; or, with fewer at
// once than nodes that lead, all of one at once in its turn, and nothing in others'.
func (v *shareView) rate(t *timer.Topic, turn int64) (perSecond float64, burst int) {
	r := &t.Policy.Rate
	burst = v.units(t, r.Burst, turn)
	switch {
	case v == nil || r.Burst >= len(v.nodes):
		return r.PerSecond * v.share(), burst
	case burst == 0:
		return 0, 0
	}
	return r.PerSecond / float64(r.Burst), burst
}

// units is this node's part of n.
func (v *shareView) units(t *timer.Topic, n int, turn int64) int {
	if v == nil || v.me < 0 {
		return 0
	}
	if n < len(v.nodes) {
		if v.hasTurn(t, n, turn) {
			return 1
		}
		return 0
	}
	return divide(n, v.me, v.leads, int64(v.shards))
}

// divide is a node's part of n: one, and of the rest by its weight. The weights are sum at most.
func divide(n, node int, weights []int64, sum int64) int {
	rest := int64(n - len(weights))
	part := func(i int) int64 { return rest * weights[i] / sum }
	left := rest
	for i := range weights {
		left -= part(i)
	}
	own := 1 + part(node)
	if int64(node) < left {
		own++
	}
	return int(own)
}

// hasTurn reports whether one of the n units of a topic is this node's in a turn. The order shifts
// from round to round, so that leases that last as long as some turns do not keep the same nodes
// out for ever.
func (v *shareView) hasTurn(t *timer.Topic, n int, turn int64) bool {
	nodes := int64(len(v.nodes))
	first := (turn%nodes*int64(n) + turn/nodes + int64(t.ID)) % nodes
	return (int64(v.me)-first+nodes)%nodes < int64(n)
}
