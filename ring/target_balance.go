package ring

import (
	"cmp"
	"slices"
)

// spread is a swap that brings a row into one more zone.
func (b *layout) spread() (change, bool) {
	for i := range b.rows {
		row := &b.rows[i]
		if row.pinned || len(row.nodes) != b.want {
			continue
		}
		for k := len(row.nodes) - 1; k >= 0; k-- { // the preferred leader last
			from := row.nodes[k]
			s := b.load(from)
			if s == nil || !b.zoneUsed(row, s.zone, from) {
				continue
			}
			to := b.load(b.pick(i, from))
			if to != nil && !to.unfit && !b.zoneUsed(row, to.zone, 0) {
				return change{i, from, to.id}, true
			}
		}
	}
	return change{}, false
}

// level is a swap that takes from a node with too many replicas, or gives to one with too few. It
// never costs a row a zone. Its ends differ by two at least: so the sum of squares falls, and no
// move is ever undone by another.
func (b *layout) level() (change, bool) {
	if len(b.seats) < 2 {
		return change{}, false
	}
	total := 0
	for i := range b.seats {
		total += b.seats[i].load
	}
	low, high := tolerance(total, len(b.seats))
	order := make([]*nodeLoad, len(b.seats))
	for i := range b.seats {
		order[i] = &b.seats[i]
	}
	slices.SortStableFunc(order, func(x, y *nodeLoad) int { return cmp.Compare(x.load, y.load) })
	if order[0].load >= low && order[len(order)-1].load <= high {
		return change{}, false
	}
	held := b.held()
	for k := len(order) - 1; k > 0; k-- {
		from := order[k]
		for _, to := range order[:k] {
			if from.load-to.load < 2 || from.load <= high && to.load >= low {
				break // and so for all after it, which have more
			}
			if to.closed || to.unfit {
				continue
			}
			if i, ok := b.movable(held[b.index[from.id]], from, to); ok {
				return change{i, from.id, to.id}, true
			}
		}
	}
	return change{}, false
}

// held lists, for each seat, the whole rows in which it is and that may be changed.
func (b *layout) held() [][]int {
	held := make([][]int, len(b.seats))
	for i := range b.rows {
		if row := &b.rows[i]; !row.pinned && len(row.nodes) == b.want {
			for _, n := range row.nodes {
				if k, ok := b.index[n]; ok {
					held[k] = append(held[k], i)
				}
			}
		}
	}
	return held
}

// movable finds the row of from that best moves to another node: one that evens the first ranks
// too, and of those one that the rings give to it.
func (b *layout) movable(rows []int, from, to *nodeLoad) (best int, ok bool) {
	lead := from.leads > to.leads
	bestScore := -1
	for _, i := range rows {
		row := &b.rows[i]
		if slices.Contains(row.nodes, to.id) {
			continue
		}
		if from.zone != to.zone && b.zoneUsed(row, to.zone, 0) && !b.zoneUsed(row, from.zone, from.id) {
			continue // it would lose a zone
		}
		rank := slices.Index(row.nodes, from.id)
		score := 2*boolInt((rank == 0) == lead) + boolInt(b.owner(i, rank) == to.id)
		if score > bestScore {
			best, bestScore = i, score
		}
	}
	return best, bestScore >= 0
}

// lead evens out first ranks, by changing the order within rows alone: one row whose first cannot
// lead, or a chain of rows that takes one first rank from a node with too many, or to one with too
// few, through others that stay as they are.
func (b *layout) lead() []change {
	edges := make([][]int, len(b.seats)) // rows by the seat that is first
	total, leaders := 0, 0
	for i := range b.rows {
		row := &b.rows[i]
		if row.pinned || len(row.nodes) == 0 {
			continue
		}
		if k, ok := b.index[row.nodes[0]]; ok && b.leads(k) {
			edges[k] = append(edges[k], i)
		} else if c, ok := b.promote(i); ok {
			return []change{c}
		}
	}
	for k := range b.seats {
		if b.leads(k) {
			total, leaders = total+b.seats[k].leads, leaders+1
		}
	}
	if leaders < 2 {
		return nil
	}
	low, high := tolerance(total, leaders)
	order := make([]int, 0, leaders)
	for k := range b.seats {
		if b.leads(k) {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(b.seats[y].leads, b.seats[x].leads) })
	if b.seats[order[0]].leads <= high && b.seats[order[len(order)-1]].leads >= low {
		return nil
	}
	for _, k := range order {
		if chain := b.chain(k, edges, low, high); chain != nil {
			return chain
		}
	}
	return nil
}

// leads says whether a seat may have first ranks.
func (b *layout) leads(k int) bool { return !b.seats[k].unfit && !b.seats[k].closed }

// promote puts the one first that leads least of those that can.
func (b *layout) promote(i int) (change, bool) {
	best := -1
	for _, n := range b.rows[i].nodes {
		if k, ok := b.index[n]; ok && b.leads(k) && (best < 0 || b.seats[k].leads < b.seats[best].leads) {
			best = k
		}
	}
	if best < 0 {
		return change{}, false
	}
	return change{row: i, from: b.rows[i].nodes[0], to: b.seats[best].id}, true
}

// chain searches breadth first from a seat for one that leads two fewer, when one of both is out of
// bounds. The chain is given from its far end, so that no seat has more than it may at any moment.
func (b *layout) chain(start int, edges [][]int, low, high int) []change {
	via := make(map[int]change, len(b.seats))
	prev := map[int]int{start: -1}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		have, less := b.seats[start].leads, b.seats[at].leads
		if have-less >= 2 && (have > high || less < low) {
			var chain []change
			for k := at; k != start; k = prev[k] {
				chain = append(chain, via[k])
			}
			return chain
		}
		for _, i := range edges[at] {
			for _, n := range b.rows[i].nodes[1:] {
				k, ok := b.index[n]
				if _, seen := prev[k]; !ok || seen || !b.leads(k) {
					continue
				}
				prev[k], via[k] = at, change{row: i, from: b.seats[at].id, to: n}
				queue = append(queue, k)
			}
		}
	}
	return nil
}
