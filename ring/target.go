package ring

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

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
	ids := make([]uint64, len(b.loads))
	for k := range b.loads {
		ids[k] = b.loads[k].id
	}
	b.rings.use(ids, groups)
	for i := range b.rows {
		if i < len(current) {
			for _, n := range current[i] {
				if len(b.rows[i].nodes) < b.want && b.load(n) != nil && !slices.Contains(b.rows[i].nodes, n) {
					b.add(i, n)
				}
			}
		}
	}
	for i := range b.rows {
		for len(b.rows[i].nodes) < b.want {
			b.add(i, b.pick(i, 0))
		}
	}
	for _, next := range []func() (change, bool){b.balanceZones, b.balanceReplicas} {
		for c, ok := next(); ok; c, ok = next() {
			b.swap(c)
		}
	}
	for order := b.balanceLeaders(); len(order) > 0; order = b.balanceLeaders() {
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
	slices.SortFunc(sorted, func(a, b TargetNode) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(sorted, func(a, b TargetNode) bool { return a.ID == b.ID })
}

// layout is the placement of all shards while steps are chosen on it: TargetFrom runs it until
// nothing is left to do, Plan for as many steps as nodes have room for. Each step improves it, in
// this order of worth: more replicas, rows more even over the zones, more even loads. That is why
// it ends, and why a plan that is cut short and begun again comes to rest too.
type layout struct {
	loads []nodeLoad // by node id
	index map[uint64]int
	rows  []shardAssignment
	want  int // replicas of a row

	rings *Rings // of the nodes that may hold replicas
	// By node, the complete rows in which it is and that may change; made when loads are first
	// evened out, from when on swap alone may change the layout. O(rows).
	held [][]int
	// room reports whether a row may get a replica on a node now; node 0: whether it may get any.
	// It does not become true again. nil: it may.
	room func(row int, node uint64) bool
}

// nodeLoad is a node that counts: it may hold replicas, and the load is shared among all such.
type nodeLoad struct {
	id          uint64
	zone        string
	closed      bool // takes nothing now: it is down
	unfit       bool // should not lead
	lastResort  bool // takes something only where nobody else can
	load, leads int  // replicas here, and those of the first rank
}

type shardAssignment struct {
	nodes   []uint64 // by rank; some may have no nodeLoad
	pinned  bool     // not to be changed (again)
	stuck   bool     // and will not change: its group has lost its majority
	leaving []uint64 // may still hold data of it: not to be given a new replica
}

func newLayout(nodes []TargetNode, groups, replicas int) *layout {
	sorted := sortedTargets(nodes)
	b := &layout{rings: &Rings{}, index: make(map[uint64]int, len(sorted)), rows: make([]shardAssignment, max(groups, 0)), want: max(0, min(replicas, len(sorted)))}
	for i, n := range sorted {
		zone := n.Zone
		if zone == "" {
			zone = "\x00" + strconv.FormatUint(n.ID, 10)
		}
		b.loads = append(b.loads, nodeLoad{id: n.ID, zone: zone})
		b.index[n.ID] = i
	}
	return b
}

func (l *layout) load(node uint64) *nodeLoad {
	if i, ok := l.index[node]; ok {
		return &l.loads[i]
	}
	return nil
}

// add puts a node at the end of a row.
func (l *layout) add(i int, node uint64) {
	row := &l.rows[i]
	row.nodes = append(row.nodes, node)
	if s := l.load(node); s != nil {
		s.load++
		if len(row.nodes) == 1 {
			s.leads++
		}
	}
}

// swap gives a node's place in a row, rank and all, to another.
func (l *layout) swap(c change) {
	rank := slices.Index(l.rows[c.row].nodes, c.from)
	l.rows[c.row].nodes[rank] = c.to
	for node, by := range map[uint64]int{c.from: -1, c.to: 1} {
		if s := l.load(node); s != nil {
			s.load += by
			if rank == 0 {
				s.leads += by
			}
		}
	}
	l.rehold(c)
}

func (l *layout) drop(i int, node uint64) {
	row := &l.rows[i]
	rank := slices.Index(row.nodes, node)
	row.nodes = slices.Delete(row.nodes, rank, rank+1)
	if s := l.load(node); s != nil {
		s.load--
		s.leads -= boolInt(rank == 0)
	}
	if s := l.load(row.nodes[0]); s != nil && rank == 0 {
		s.leads++
	}
}

// first changes places between a row's preferred leader and another of its nodes.
func (l *layout) first(i int, node uint64) {
	nodes := l.rows[i].nodes
	rank := slices.Index(nodes, node)
	if s := l.load(nodes[0]); s != nil {
		s.leads--
	}
	nodes[0], nodes[rank] = nodes[rank], nodes[0]
	if s := l.load(node); s != nil {
		s.leads++
	}
}

// pick chooses the node that gets a new replica of a row, in the place of from or, with 0, at its
// end. 0: none can. It prefers, in this order, a node that is fit, is in a zone that has fewer of
// the row, would be left with too few, has room; then the ring of that rank, then rendezvous.
func (l *layout) pick(i int, from uint64) uint64 {
	row := &l.rows[i]
	low, full := tolerance(len(l.rows)*l.want, max(len(l.loads), 1))
	left, lack := len(l.rows)*l.want, 0 // replicas to place yet, and those that nodes need at least
	for k := range l.loads {
		left -= l.loads[k].load
		lack += boolInt(!l.loads[k].closed) * max(0, low-l.loads[k].load)
	}
	// A node is in some of the rows that are left already.
	scarce := left*(len(l.loads)-l.want+1) <= lack*len(l.loads)
	var zones []string // of the others in the row
	for _, n := range row.nodes {
		if s := l.load(n); s != nil && n != from {
			zones = append(zones, s.zone)
		}
	}
	var best []uint64 // those that are equally good
	var bestScore [4]int
	for k := range l.loads {
		s := &l.loads[k]
		if s.closed || slices.Contains(row.nodes, s.id) || slices.Contains(row.leaving, s.id) {
			continue
		}
		score := [4]int{boolInt(!s.lastResort), -countOf(zones, s.zone), boolInt(scarce && s.load < low), min(0, full-1-s.load)}
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
	if rank < l.want {
		if owner := l.rings.owner(i, rank); slices.Contains(best, owner) {
			return owner
		}
	}
	return slices.MaxFunc(best, func(x, y uint64) int { return cmp.Compare(rendezvous(i, x), rendezvous(i, y)) })
}

// inZone counts those of some nodes that are in a zone, without the one to set aside.
func (l *layout) inZone(nodes []uint64, zone string, aside uint64) (n int) {
	for _, id := range nodes {
		s := l.load(id)
		n += boolInt(id != aside && s != nil && s.zone == zone)
	}
	return n
}

func countOf(list []string, one string) (n int) {
	for _, s := range list {
		n += boolInt(s == one)
	}
	return n
}

func boolInt(v bool) int {
	if v {
		return 1
	}
	return 0
}
