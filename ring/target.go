package ring

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// TargetNode is a node that may hold replicas. Nodes without a zone are each in one of their own.
type TargetNode struct {
	ID   uint64
	Zone string
}

// Target lays out shards 1 … groups on nodes as if there were nothing yet: element i is the nodes
// of shard i+1 by rank, the first being the preferred leader.
//
// The node of rank r is the shard's owner in the r-th salted consistent-hash ring. One that is in
// the row already, is full, or is in a zone that the row has while others are to be had, is passed
// over for the next by rendezvous hashing. Replicas and first ranks per node come out within 1.25 ×
// the mean, or the mean + 1 where shards are few; only zones of unequal size may prevent that.
// Deterministic; independent of the order of nodes.
func Target(nodes []TargetNode, groups, replicas int) [][]uint64 {
	return TargetFrom(nil, nodes, groups, replicas)
}

// TargetFrom is Target for a cluster that has a layout: replicas that can stay stay, and only those
// move that balance asks for. Nodes of current that are not in nodes are gone.
func TargetFrom(current [][]uint64, nodes []TargetNode, groups, replicas int) [][]uint64 {
	b := newLayout(nodes, groups, replicas)
	for i := range b.rows {
		if i < len(current) {
			b.keep(i, current[i])
		}
	}
	for i := range b.rows {
		for len(b.rows[i].nodes) < b.want {
			b.add(i, b.pick(i, 0))
		}
	}
	for _, next := range []func() (change, bool){b.spread, b.level} {
		for c, ok := next(); ok; c, ok = next() {
			b.swap(c)
		}
	}
	for order := b.lead(); len(order) > 0; order = b.lead() {
		for _, c := range order {
			b.first(c.row, c.to)
		}
	}
	out := make([][]uint64, groups)
	for i := range out {
		out[i] = b.rows[i].nodes
	}
	return out
}

// metaRanks orders nodes for the meta group: the most preferred k, in as many zones as can be.
func metaRanks(nodes []TargetNode, k int) []uint64 {
	if k < 1 {
		return nil
	}
	return Target(nodes, 1, k)[0]
}

// change is one replica's move within a row, or with from == 0 its addition.
type change struct {
	row      int
	from, to uint64
}

// tolerance: loads are let alone while they are within 10 % of the mean, or next to it. A node that
// joins so gets at least nine tenths of its share and nothing moves twice for it.
func tolerance(total, nodes int) (low, high int) {
	floor, ceil := total/nodes, (total+nodes-1)/nodes
	return min(floor, (9*total+10*nodes-1)/(10*nodes)), max(ceil, 11*total/(10*nodes))
}

// rendezvous is a node's weight for a shard: the highest goes first.
func rendezvous(row int, node uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(row))
	binary.LittleEndian.PutUint64(b[8:], node)
	return xxhash.Sum64(b[:])
}

func sortedTargets(nodes []TargetNode) []TargetNode {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b TargetNode) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(sorted, func(a, b TargetNode) bool { return a.ID == b.ID })
}
