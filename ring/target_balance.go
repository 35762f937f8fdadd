package ring

import (
	"cmp"
	"slices"
)

// spread is a swap that brings a row into one more zone.
func (l *layout) spread() (change, bool) {
	for i := range l.rows {
		row := &l.rows[i]
		if row.pinned || len(row.nodes) != l.want {
			continue
		}
		for k := len(row.nodes) - 1; k >= 0; k-- { // the preferred leader last
			from := row.nodes[k]
			s := l.load(from)
			if s == nil || !l.zoneUsed(row, s.zone, from) {
				continue
			}
			to := l.load(l.pick(i, from))
			if to != nil && !to.unfit && !l.zoneUsed(row, to.zone, 0) {
				return change{i, from, to.id}, true
			}
		}
	}
	return change{}, false
}

// level is a swap that takes from a node with too many replicas, or gives to one with too few. It
// never costs a row a zone. Its ends differ by two at least: so the sum of squares falls, and no
// move is ever undone by another.
func (l *layout) level() (change, bool) {
	if len(l.loads) < 2 {
		return change{}, false
	}
	total := 0
	for i := range l.loads {
		total += l.loads[i].load
	}
	low, high := tolerance(total, len(l.loads))
	order := make([]*nodeLoad, len(l.loads))
	for i := range l.loads {
		order[i] = &l.loads[i]
	}
	slices.SortStableFunc(order, func(x, y *nodeLoad) int { return cmp.Compare(x.load, y.load) })
	if order[0].load >= low && order[len(order)-1].load <= high {
		return change{}, false
	}
	held := l.held()
	for k := len(order) - 1; k > 0; k-- {
		from := order[k]
		for _, to := range order[:k] {
			if from.load-to.load < 2 || from.load <= high && to.load >= low {
				break // and so for all after it, which have more
			}
			if to.closed || to.unfit {
				continue
			}
			if i, ok := l.movable(held[l.index[from.id]], from, to); ok {
				return change{i, from.id, to.id}, true
			}
		}
	}
	return change{}, false
}

// held lists, for each node, the complete rows in which it is and that may be changed.
func (l *layout) held() [][]int {
	held := make([][]int, len(l.loads))
	for i := range l.rows {
		if row := &l.rows[i]; !row.pinned && len(row.nodes) == l.want {
			for _, n := range row.nodes {
				if k, ok := l.index[n]; ok {
					held[k] = append(held[k], i)
				}
			}
		}
	}
	return held
}

// movable finds the row of from that best moves to another node: one that evens the first ranks
// too, and of those one that the rings give to it.
func (l *layout) movable(rows []int, from, to *nodeLoad) (best int, ok bool) {
	lead := from.leads > to.leads
	bestScore := -1
	for _, i := range rows {
		row := &l.rows[i]
		if slices.Contains(row.nodes, to.id) {
			continue
		}
		if from.zone != to.zone && l.zoneUsed(row, to.zone, 0) && !l.zoneUsed(row, from.zone, from.id) {
			continue // it would lose a zone
		}
		rank := slices.Index(row.nodes, from.id)
		score := 2*boolInt((rank == 0) == lead) + boolInt(l.owner(i, rank) == to.id)
		if score > bestScore {
			best, bestScore = i, score
		}
	}
	return best, bestScore >= 0
}

// lead evens out first ranks, by changing the order within rows alone: one row whose first cannot
// lead, or a chain of rows that takes one first rank from a node with too many, or to one with too
// few, through others that stay as they are.
func (l *layout) lead() []change {
	edges := make([][]int, len(l.loads)) // rows by the seat that is first
	total, leaders := 0, 0
	for i := range l.rows {
		row := &l.rows[i]
		if row.pinned || len(row.nodes) == 0 {
			continue
		}
		if k, ok := l.index[row.nodes[0]]; ok && l.leads(k) {
			edges[k] = append(edges[k], i)
		} else if c, ok := l.promote(i); ok {
			return []change{c}
		}
	}
	for k := range l.loads {
		if l.leads(k) {
			total, leaders = total+l.loads[k].leads, leaders+1
		}
	}
	if leaders < 2 {
		return nil
	}
	low, high := tolerance(total, leaders)
	order := make([]int, 0, leaders)
	for k := range l.loads {
		if l.leads(k) {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(l.loads[y].leads, l.loads[x].leads) })
	if l.loads[order[0]].leads <= high && l.loads[order[len(order)-1]].leads >= low {
		return nil
	}
	for _, k := range order {
		if chain := l.chain(k, edges, low, high); chain != nil {
			return chain
		}
	}
	return nil
}

// leads reports whether a node may be first in a row.
func (l *layout) leads(k int) bool { return !l.loads[k].unfit && !l.loads[k].closed }

// promote puts the one first that leads least of those that can.
func (l *layout) promote(i int) (change, bool) {
	best := -1
	for _, n := range l.rows[i].nodes {
		if k, ok := l.index[n]; ok && l.leads(k) && (best < 0 || l.loads[k].leads < l.loads[best].leads) {
			best = k
		}
	}
	if best < 0 {
		return change{}, false
	}
	return change{row: i, from: l.rows[i].nodes[0], to: l.loads[best].id}, true
}

// chain searches breadth first from a node for one that leads two fewer, when one of both is out of
// bounds. The chain is returned from its far end, so that no node ever has more than it may.
func (l *layout) chain(start int, edges [][]int, low, high int) []change {
	via := make(map[int]change, len(l.loads))
	prev := map[int]int{start: -1}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		have, less := l.loads[start].leads, l.loads[at].leads
		if have-less >= 2 && (have > high || less < low) {
			var chain []change
			for k := at; k != start; k = prev[k] {
				chain = append(chain, via[k])
			}
			return chain
		}
		for _, i := range edges[at] {
			for _, n := range l.rows[i].nodes[1:] {
				k, ok := l.index[n]
				if _, seen := prev[k]; !ok || seen || !l.leads(k) {
					continue
				}
				prev[k], via[k] = at, change{row: i, from: l.loads[at].id, to: n}
				queue = append(queue, k)
			}
		}
	}
	return nil
}
