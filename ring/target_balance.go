package ring

import (
	"cmp"
	"slices"
)

// balanceZones is a swap that spreads a row more evenly over the zones.
func (l *layout) balanceZones() (change, bool) {
	for i := range l.rows {
		row := &l.rows[i]
		if row.pinned || len(row.nodes) != l.want {
			continue
		}
		for k := len(row.nodes) - 1; k >= 0; k-- { // the preferred leader last
			from := row.nodes[k]
			s := l.load(from)
			if s == nil {
				continue
			}
			others := l.inZone(row.nodes, s.zone, from)
			if others == 0 {
				continue
			}
			to := l.load(l.pick(i, from))
			if to != nil && !to.lastResort && l.inZone(row.nodes, to.zone, 0) < others && l.hasRoom(i, to.id) {
				return change{i, from, to.id}, true
			}
		}
	}
	return change{}, false
}

// balanceReplicas is a swap that takes from a node with too many replicas, or gives to one with too
// few. It never has a row less even over the zones. Its ends differ by two at least: so the sum of
// squares falls, and no move is ever undone by another.
func (l *layout) balanceReplicas() (change, bool) {
	if len(l.loads) < 2 {
		return change{}, false
	}
	low, high := l.bounds()
	order := make([]*nodeLoad, len(l.loads))
	for i := range l.loads {
		order[i] = &l.loads[i]
	}
	slices.SortStableFunc(order, func(x, y *nodeLoad) int { return cmp.Compare(x.load, y.load) })
	if order[0].load >= low && order[len(order)-1].load <= high {
		return change{}, false
	}
	if l.held == nil {
		l.hold()
	}
	for k := len(order) - 1; k > 0; k-- {
		from := order[k]
		for _, to := range order[:k] {
			if from.load-to.load < 2 || from.load <= high && to.load >= low {
				break // and so for all after it, which have more
			}
			if to.closed || to.lastResort {
				continue
			}
			if i, ok := l.movable(from, to); ok {
				return change{i, from.id, to.id}, true
			}
		}
	}
	return change{}, false
}

// bounds are the loads between which a node is let alone.
func (l *layout) bounds() (low, high int) {
	total := 0
	for i := range l.loads {
		total += l.loads[i].load
	}
	return tolerance(total, len(l.loads))
}

// uneven is how many replicas have to move until all loads are within bounds, about.
func (l *layout) uneven() int {
	if len(l.loads) < 2 {
		return 0
	}
	over, under := 0, 0
	low, high := l.bounds()
	for i := range l.loads {
		over += max(0, l.loads[i].load-high)
		under += max(0, low-l.loads[i].load)
	}
	return max(over, under)
}

// hold makes held.
func (l *layout) hold() {
	l.held = make([][]int, len(l.loads))
	for i := range l.rows {
		if row := &l.rows[i]; !row.pinned && len(row.nodes) == l.want {
			for _, n := range row.nodes {
				if k, ok := l.index[n]; ok {
					l.held[k] = append(l.held[k], i)
				}
			}
		}
	}
}

// rehold keeps held when a row's place has changed hands.
func (l *layout) rehold(c change) {
	if l.held == nil {
		return
	}
	if k, ok := l.index[c.from]; ok {
		if at, found := slices.BinarySearch(l.held[k], c.row); found {
			l.held[k] = slices.Delete(l.held[k], at, at+1)
		}
	}
	if k, ok := l.index[c.to]; ok {
		at, _ := slices.BinarySearch(l.held[k], c.row)
		l.held[k] = slices.Insert(l.held[k], at, c.row)
	}
}

// hasRoom reports whether a row may get a replica on a node now.
func (l *layout) hasRoom(i int, to uint64) bool { return l.room == nil || l.room(i, to) }

// movable finds the row of from that best moves to another node: one that evens the first ranks
// too, and of those one that the rings give to it. Rows that cannot move any more leave held.
func (l *layout) movable(from, to *nodeLoad) (best int, ok bool) {
	k := l.index[from.id]
	l.held[k] = slices.DeleteFunc(l.held[k], func(i int) bool { return l.rows[i].pinned || !l.hasRoom(i, 0) })
	lead := from.leads > to.leads
	bestScore := -1
	for _, i := range l.held[k] {
		row := &l.rows[i]
		if slices.Contains(row.nodes, to.id) || !l.hasRoom(i, to.id) {
			continue
		}
		if from.zone != to.zone && l.inZone(row.nodes, to.zone, 0) > l.inZone(row.nodes, from.zone, from.id) {
			continue // it would be less even over the zones
		}
		rank := slices.Index(row.nodes, from.id)
		score := 2*boolInt((rank == 0) == lead) + boolInt(l.rings.owner(i, rank) == to.id)
		if score > bestScore {
			best, bestScore = i, score
		}
	}
	return best, bestScore >= 0
}

// balanceLeaders evens out first ranks, by changing the order within rows alone: one row whose
// first cannot lead, or a chain of rows that takes one first rank from a node with too many, or to
// one with too few, through others that stay as they are.
func (l *layout) balanceLeaders() []change {
	edges := make([][]int, len(l.loads)) // rows by the place in loads of the node that is first
	total := 0
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
	order := make([]int, 0, len(l.loads))
	for k := range l.loads {
		if l.leads(k) {
			total, order = total+l.loads[k].leads, append(order, k)
		}
	}
	if len(order) < 2 {
		return nil
	}
	low, high := tolerance(total, len(order))
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
