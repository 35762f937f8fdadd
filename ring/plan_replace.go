package ring

import "slices"

// The steps that replace replicas, whose node is silent, removed or draining, or whose state is
// wrong, and that take away those that are one too many.

// downFor reports whether a node has been down for at least ms, or was removed.
func (p *planner) downFor(node uint64, ms int64) bool {
	if p.nodes[node] == nil {
		return true
	}
	facts := p.facts.Nodes[node]
	return !facts.Alive && facts.DownForMs >= ms
}

// lost: to be replaced.
func (p *planner) lost(node uint64) bool { return p.downFor(node, p.facts.ReplaceAfterMs) }

// removed: not one of us any more.
func (p *planner) removed(node uint64) bool { return p.nodes[node] == nil }

// going: drained, or on the way to it.
func (p *planner) going(node uint64) bool { return p.nodes[node] != nil && !p.nodes[node].holds() }

// redirect gives another destination to moves whose own is gone. Without that they would hold up
// the others for as long. It does the same where the replicas that are to stay have died, so that
// they could not elect a leader without the one that leaves: their leader does not let that one go
// (mostCaughtUp of shard/membership.go).
func (p *planner) redirect() {
	for i := range p.layout.rows {
		row := &p.view.Rows[i+1]
		if row.Settled || p.layout.rows[i].stuck {
			continue
		}
		canChoose := p.survives(p.layout.rows[i].nodes, 0)
		for _, r := range row.Replicas {
			gone := p.downFor(r.Node, redirectAfterMs)
			if isNew(row, r) && (gone || p.going(r.Node)) || gone && !canChoose {
				p.redirectFrom(i, row, r.Node)
				break
			}
		}
	}
}

// redirectFrom gives a row another replica in the place of the one on from. It prefers, in this
// order, a replica of the row's former ones that is alive and may stay, a replica on a new node,
// and none, if most of the others are alive. Without a majority of those it keeps a former replica
// that should leave.
func (p *planner) redirectFrom(i int, row *Assignment, from uint64) {
	to, last := uint64(0), uint64(0) // former replicas: one that may stay, one that should leave
	for _, r := range row.Leaving {
		switch {
		case !p.alive(r.Node):
		case !p.going(r.Node):
			to = r.Node
		default:
			last = r.Node
		}
	}
	if to == 0 {
		to = p.layout.pick(i, from)
	}
	switch {
	case to != 0:
		p.layout.swap(change{i, from, to})
	case last != 0 && !p.survives(p.layout.rows[i].nodes, 0):
		p.layout.swap(change{i, from, last})
	case !p.removed(from) && !p.going(from):
		return // it may come back
	case p.survives(p.layout.rows[i].nodes, from):
		p.layout.drop(i, from)
	case p.alive(from):
		return // it leaves again once there is another
	case last == 0 && len(row.Replicas) > 1:
		p.layout.drop(i, from)
	case last != 0:
		p.layout.swap(change{i, from, last})
	default:
		return
	}
	p.place(i, true)
}

// shrink takes replicas from rows that have more than there should be: first of all those that
// would have to be replaced or moved anyway.
func (p *planner) shrink() {
	for _, i := range p.movable(func(i int) int { return -len(p.layout.rows[i].nodes) }) {
		nodes := p.layout.rows[i].nodes
		if len(nodes) <= p.view.Replicas {
			continue
		}
		if from := p.surplus(nodes); from != 0 {
			row := &p.view.Rows[i+1]
			p.drop(i, from, p.whyLeaves(row.Group, row.Replicas, from))
		}
	}
}

// surplus is the node that a row needs least, or 0: it prefers, in this order, a node that is gone
// or draining, is down, is not fit or has a low disk, shares its zone with most others, is not the preferred leader,
// has a high load.
// Most of the others must be alive.
func (p *planner) surplus(nodes []uint64) uint64 {
	worst, worstScore := uint64(0), [6]int{-1}
	for rank, n := range nodes {
		if !p.survives(nodes, n) {
			continue
		}
		score := [6]int{1, boolInt(!p.alive(n)), 0, 0, boolInt(rank > 0), 0}
		if s := p.layout.load(n); s != nil {
			score = [6]int{0, score[1], boolInt(s.lastResort), p.layout.inZone(nodes, s.zone, n), score[4], s.load}
		}
		if slices.Compare(score[:], worstScore[:]) >= 0 { // the last of equals
			worst, worstScore = n, score
		}
	}
	return worst
}

// repair takes away replicas whose states are wrong, and those on nodes that are down for long or
// removed, and adds replicas to rows that have fewer than there should be: those of the rows with
// the fewest live ones first. It gives a row that lacks an odd number its turn first: an even
// number bears no more failures than one replica less. Such rows wait for those that have lost
// something.
func (p *planner) repair() {
	urgency := func(i int) int {
		n := len(p.layout.rows[i].nodes)
		if from, _ := p.broken(i); from == 0 && n < p.layout.want {
			return n + p.view.Replicas*(n%2)
		}
		return p.live(i)
	}
	for _, i := range p.movable(urgency) {
		from, may := p.broken(i)
		switch {
		case from == 0 && len(p.layout.rows[i].nodes) >= p.layout.want:
		case p.replace(i, from, Repairs):
		case may:
			p.drop(i, from, Repairs)
		case from == 0: // only nodes that are down could take it
			p.moves.Waiting[Repairs]++
			p.awaitDown()
		}
	}
}

// broken is the replica of a row that has to be replaced, or 0: one whose state is wrong, or whose
// node is removed or lost. may: where no other node is to be had the row may do without it. A row
// does without one on a node that is only down in no case, and without a wrong one if most of the
// others are alive: it grows again by a new replica on the same node.
func (p *planner) broken(i int) (node uint64, may bool) {
	row, nodes := &p.view.Rows[i+1], p.layout.rows[i].nodes
	if len(p.facts.Wrong) > 0 {
		at := slices.IndexFunc(nodes, func(n uint64) bool { return p.isWrong(row.Group, row.Replicas, n) })
		if at >= 0 && (p.layout.pick(i, nodes[at]) != 0 || p.survives(nodes, nodes[at])) {
			return nodes[at], true
		}
	}
	if at := slices.IndexFunc(nodes, p.removed); at >= 0 {
		return nodes[at], len(nodes) > 1
	}
	if at := slices.IndexFunc(nodes, p.lost); at >= 0 {
		return nodes[at], false
	}
	return 0, false
}

func (p *planner) live(i int) int {
	live := 0
	for _, n := range p.layout.rows[i].nodes {
		live += boolInt(p.alive(n))
	}
	return live
}

// drain moves replicas away from nodes that are to go. Where no other node is to be had the row
// shrinks, if the others can continue without it; else it waits for nodes that are down.
func (p *planner) drain() {
	for _, i := range p.movable(p.live) {
		nodes := p.layout.rows[i].nodes
		at := slices.IndexFunc(nodes, p.going)
		switch {
		case at < 0 || p.replace(i, nodes[at], Drains):
		case !p.spare(nodes) && p.survives(nodes, nodes[at]):
			p.drop(i, nodes[at], Drains)
		default:
			p.moves.Waiting[Drains]++
			p.awaitDown()
		}
	}
}

// awaitDown names the nodes that are down as those that moves wait for.
func (p *planner) awaitDown() {
	p.moves.Awaited = p.moves.Awaited[:0]
	for i := range p.view.Nodes {
		if n := &p.view.Nodes[i]; n.holds() && !p.alive(n.ID) {
			p.moves.Awaited = append(p.moves.Awaited, n.ID)
		}
	}
}

// spare reports whether a node without a replica of the row may soon be able to take one: it is
// down, but not for good.
func (p *planner) spare(nodes []uint64) bool {
	return slices.ContainsFunc(p.layout.loads, func(s nodeLoad) bool { return !slices.Contains(nodes, s.id) })
}

// finishDrains marks the nodes as drained that hold nothing that a group would miss.
func (p *planner) finishDrains() {
	for i := range p.view.Nodes {
		n := &p.view.Nodes[i]
		if n.State != NodeDraining {
			continue
		}
		if !slices.ContainsFunc(p.view.Rows, func(r Assignment) bool { return r.Needs(n.ID) }) {
			p.commands = append(p.commands, Command{Verb: SetState, NodeID: n.ID, State: NodeDrained})
		}
	}
}
