package ring

import (
	"slices"

	"carillon/timer"
)

// MoveRate is how many bytes a second a node sends for moves of replicas, and how many it receives.
// The transport keeps to it. The plan begins no more moves than that takes a while to send, so that
// moves that are more urgent need not wait for long.
const MoveRate = 64 << 20

// SmallMove is the size of a shard below which its moves cost the same.
const SmallMove = MoveRate / movesPerSecond

const (
	// moveWindow is for how many seconds of a node's rate moves may be under way, in each
	// direction. The controller's next turn comes before they are all done.
	moveWindow = 2
	// minMoves is how many may be under way of whatever size: the next one is on its way already
	// when one ends.
	minMoves = 2
	// movesPerSecond is what a small move costs: this part of a second's rate. A move also takes
	// writes to the logs, and an election.
	movesPerSecond = 8
)

// MoveKind is why replicas move.
type MoveKind int

// The kinds, the least urgent first. A move leaves room for those that are more urgent.
const (
	Balances MoveKind = iota // nodes get even shares, rows are spread over the zones, surplus goes
	Drains                   // away from nodes that are to go
	Repairs                  // rows have their replicas again, on live nodes

	MoveKinds
)

// String is the kind's name.
func (k MoveKind) String() string { return [...]string{"balance", "drain", "repair"}[k] }

// Moves are the replicas that move and that wait, with the causes.
type Moves struct {
	UnderWay [MoveKinds]int // replicas, or rows that get rid of one
	Bytes    int64          // of them, about
	Waiting  [MoveKinds]int // rows that need a step, and replicas that balance asks for
	Full     []uint64       // nodes that send or receive as much as they may, for which moves wait
	Awaited  []uint64       // nodes that are down or not fit: moves wait until they are well or replaced
	Joining  bool           // a node has joined just now: balance waits for others
}

// budget is what moves have each node send and receive: those under way, and those that a plan
// begins. O(nodes).
type budget struct {
	rate  int64
	nodes map[uint64]*traffic
}

// traffic is a node's part in moves.
type traffic struct{ out, in [MoveKinds]load }

type load struct {
	bytes int64
	moves int
}

func (b *budget) of(node uint64) *traffic {
	t := b.nodes[node]
	if t == nil {
		t = &traffic{}
		b.nodes[node] = t
	}
	return t
}

// full reports whether a direction has no room for a move of a kind. What is less urgent does not
// count: a repair shares the link with it.
func (b *budget) full(loads *[MoveKinds]load, kind MoveKind) bool {
	var sum load
	for _, l := range loads[kind:] {
		sum.bytes += l.bytes
		sum.moves += l.moves
	}
	return sum.moves >= minMoves && sum.bytes >= moveWindow*b.rate
}

// sender is the node that leads a row's group, or 0.
func (p *planner) sender(row *Assignment) uint64 {
	if leader := p.facts.Leaders[row.Group]; leader != 0 {
		return leader
	}
	for _, r := range row.Replicas {
		if p.alive(r.Node) && !isNew(row, r) {
			return r.Node
		}
	}
	return 0
}

// charge counts a move. A destination that is down receives nothing, and is sent nothing.
func (p *planner) charge(row *Assignment, to uint64, kind MoveKind) {
	p.moves.UnderWay[kind]++
	if to != 0 && !p.alive(to) {
		return
	}
	cost := p.budget.rate / movesPerSecond // without a new replica a move is small
	if to != 0 {
		cost = max(cost, p.facts.Bytes[row.Group])
		p.budget.of(to).in[kind].add(cost)
		p.moves.Bytes += p.facts.Bytes[row.Group]
	}
	p.budget.of(p.sender(row)).out[kind].add(cost)
}

func (l *load) add(bytes int64) {
	l.bytes += bytes
	l.moves++
}

// whyLeaves is why one of a group's replicas leaves its node. A replica that could stay is not
// repaired.
func (p *planner) whyLeaves(group timer.ShardID, replicas []Replica, node uint64) MoveKind {
	switch {
	case p.going(node):
		return Drains
	case p.alive(node) && !p.isWrong(group, replicas, node):
		return Balances
	default:
		return Repairs
	}
}

// underWay counts the moves of a row that is not settled. One that takes nothing from a live node
// is a repair.
func (p *planner) underWay(row *Assignment) {
	kind := Repairs
	for _, r := range row.Leaving {
		kind = min(kind, p.whyLeaves(row.Group, row.Leaving, r.Node))
	}
	some := false
	for _, r := range row.Replicas {
		if isNew(row, r) {
			p.charge(row, r.Node, kind)
			some = true
		}
	}
	if !some && len(row.Leaving) > 0 {
		p.charge(row, 0, kind)
	}
}

// fits reports whether the nodes have room for a move; to: the destination, or 0. Those that have
// not are recorded.
func (p *planner) fits(i int, to uint64, kind MoveKind) bool {
	row := &p.view.Rows[i+1]
	from := p.sender(row)
	fits := true
	for _, end := range []struct {
		node  uint64
		loads *[MoveKinds]load
	}{{from, &p.budget.of(from).out}, {to, &p.budget.of(to).in}} {
		if end.node != 0 && p.budget.full(end.loads, kind) {
			fits, p.refused = false, true
			if !slices.Contains(p.moves.Full, end.node) {
				p.moves.Full = append(p.moves.Full, end.node)
			}
		}
	}
	return fits
}

// begin proposes the layout's row of a shard.
func (p *planner) begin(i int, to uint64, kind MoveKind) {
	p.charge(&p.view.Rows[i+1], to, kind)
	p.place(i, false)
}

// replace has another node take the place of from in a row, or of none if from is 0; false: there
// is none. It waits where there is no room for it.
func (p *planner) replace(i int, from uint64, kind MoveKind) bool {
	if !p.fits(i, 0, kind) { // the one that sends has none: most are, after many deaths
		p.moves.Waiting[kind]++
		return true
	}
	to := p.layout.pick(i, from)
	switch {
	case to == 0:
		return false
	case !p.fits(i, to, kind):
		p.moves.Waiting[kind]++
		return true
	case from == 0:
		p.layout.add(i, to)
	default:
		p.layout.swap(change{i, from, to})
	}
	p.begin(i, to, kind)
	return true
}

// drop has a row do without a node's replica.
func (p *planner) drop(i int, from uint64, kind MoveKind) {
	if !p.fits(i, 0, kind) {
		p.moves.Waiting[kind]++
		return
	}
	p.layout.drop(i, from)
	p.begin(i, 0, kind)
}

// summary completes what the plan has counted.
func (p *planner) summary() Moves {
	m := &p.moves
	slices.Sort(m.Full)
	var unwell []uint64
	for i := range p.layout.loads {
		if l := &p.layout.loads[i]; l.closed || l.lastResort {
			unwell = append(unwell, l.id)
		}
	}
	if len(unwell) > 0 || m.Joining {
		p.uneven = p.layout.uneven()
	}
	m.Waiting[Balances] += p.uneven
	if p.uneven > 0 {
		m.Awaited = append(m.Awaited, unwell...)
		slices.Sort(m.Awaited)
		m.Awaited = slices.Compact(m.Awaited)
	}
	if m.Waiting == [MoveKinds]int{} {
		m.Full = nil
	}
	return *m
}
