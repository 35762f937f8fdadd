package ring

import (
	"cmp"
	"slices"
	"strconv"
)

// layout is the placement of all shards while steps are chosen on it: TargetFrom runs it until
// nothing is left to do, Plan for as many steps as may be under way at once. Each step improves it,
// in this order of worth: more replicas, more zones, more even loads. That is why it ends, and why
// a plan that is cut short and begun again comes to rest too.
type layout struct {
	seats []nodeLoad // by node id
	index map[uint64]int
	rows  []shardAssignment
	want  int // replicas of a row

	rings [][]uint64 // by rank, made when first asked for
}

// nodeLoad is a node that counts: it may hold replicas, and the load is shared among all such.
type nodeLoad struct {
	id          uint64
	zone        string
	closed      bool // takes nothing now: it is down
	unfit       bool // takes something only where nobody else can, and should not lead
	load, leads int  // replicas here, and those of the first rank
}

type shardAssignment struct {
	nodes   []uint64 // by rank; some may have no seat
	pinned  bool     // not to be changed (again)
	stuck   bool     // and will not change: its group has lost its majority
	leaving []uint64 // may still hold data of it: not to be given a new replica
}

func newLayout(nodes []TargetNode, groups, replicas int) *layout {
	sorted := sortedTargets(nodes)
	b := &layout{index: make(map[uint64]int, len(sorted)), rows: make([]shardAssignment, max(groups, 0)), want: max(0, min(replicas, len(sorted)))}
	for i, n := range sorted {
		zone := n.Zone
		if zone == "" {
			zone = "\x00" + strconv.FormatUint(n.ID, 10)
		}
		b.seats = append(b.seats, nodeLoad{id: n.ID, zone: zone})
		b.index[n.ID] = i
	}
	return b
}

func (b *layout) load(node uint64) *nodeLoad {
	if i, ok := b.index[node]; ok {
		return &b.seats[i]
	}
	return nil
}

// keep takes over as much of a row as has a seat and is wanted.
func (b *layout) keep(i int, nodes []uint64) {
	for _, n := range nodes {
		if len(b.rows[i].nodes) < b.want && b.load(n) != nil && !slices.Contains(b.rows[i].nodes, n) {
			b.add(i, n)
		}
	}
}

// add puts a node at the end of a row.
func (b *layout) add(i int, node uint64) {
	row := &b.rows[i]
	row.nodes = append(row.nodes, node)
	if s := b.load(node); s != nil {
		s.load++
		if len(row.nodes) == 1 {
			s.leads++
		}
	}
}

// swap gives a node's place in a row, rank and all, to another.
func (b *layout) swap(c change) {
	rank := slices.Index(b.rows[c.row].nodes, c.from)
	b.rows[c.row].nodes[rank] = c.to
	for node, by := range map[uint64]int{c.from: -1, c.to: 1} {
		if s := b.load(node); s != nil {
			s.load += by
			if rank == 0 {
				s.leads += by
			}
		}
	}
}

func (b *layout) drop(i int, node uint64) {
	row := &b.rows[i]
	rank := slices.Index(row.nodes, node)
	row.nodes = slices.Delete(row.nodes, rank, rank+1)
	if s := b.load(node); s != nil {
		s.load--
	}
	if rank > 0 {
		return
	}
	if s := b.load(node); s != nil {
		s.leads--
	}
	if s := b.load(row.nodes[0]); s != nil {
		s.leads++
	}
}

// first changes places between a row's preferred leader and another of its nodes.
func (b *layout) first(i int, node uint64) {
	nodes := b.rows[i].nodes
	rank := slices.Index(nodes, node)
	if s := b.load(nodes[0]); s != nil {
		s.leads--
	}
	nodes[0], nodes[rank] = nodes[rank], nodes[0]
	if s := b.load(node); s != nil {
		s.leads++
	}
}

// owner is the node to which the ring of that rank gives a row, or 0.
func (b *layout) owner(i, rank int) uint64 {
	for len(b.rings) <= rank {
		ids := make([]uint64, len(b.seats))
		for k := range b.seats {
			ids[k] = b.seats[k].id
		}
		b.rings = append(b.rings, ringOwners(ids, len(b.rows), len(b.rings)))
	}
	if b.rings[rank] == nil {
		return 0
	}
	return b.rings[rank][i]
}

// pick chooses the node that gets a new replica of a row, in the place of from or, with 0, at its
// end. 0: none can. It prefers, in this order, a node that is fit, brings another zone, has room;
// then the ring of that rank, then rendezvous.
func (b *layout) pick(i int, from uint64) uint64 {
	row := &b.rows[i]
	_, full := tolerance(len(b.rows)*b.want, max(len(b.seats), 1))
	var best []uint64 // those that are equally good
	var bestScore [3]int
	for k := range b.seats {
		s := &b.seats[k]
		if s.closed || slices.Contains(row.nodes, s.id) || slices.Contains(row.leaving, s.id) {
			continue
		}
		score := [3]int{boolInt(!s.unfit), boolInt(!b.zoneUsed(row, s.zone, from)), min(0, full-1-s.load)}
		c := slices.Compare(score[:], bestScore[:])
		if len(best) == 0 || c > 0 {
			best, bestScore = best[:0], score
			c = 0
		}
		if c == 0 {
			best = append(best, s.id)
		}
	}
	switch len(best) {
	case 0:
		return 0
	case 1:
		return best[0] // and no ring need be built
	}
	rank := len(row.nodes)
	if k := slices.Index(row.nodes, from); k >= 0 {
		rank = k
	}
	if rank < b.want {
		if owner := b.owner(i, rank); slices.Contains(best, owner) {
			return owner
		}
	}
	return slices.MaxFunc(best, func(x, y uint64) int { return cmp.Compare(rendezvous(i, x), rendezvous(i, y)) })
}

// zoneUsed says whether a row, one of its nodes aside, has a node in the zone.
func (b *layout) zoneUsed(row *shardAssignment, zone string, aside uint64) bool {
	return slices.ContainsFunc(row.nodes, func(n uint64) bool {
		s := b.load(n)
		return n != aside && s != nil && s.zone == zone
	})
}

func boolInt(v bool) int {
	if v {
		return 1
	}
	return 0
}
