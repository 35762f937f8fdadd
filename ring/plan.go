package ring

import (
	"cmp"
	"slices"

	"carillon/internal/placement"
	"carillon/timer"
)

// View is the part of a State at which Plan looks: one moment of it.
type View struct {
	Replicas int          // how many each shard should have
	Nodes    []Node       // those not removed, by id
	Rows     []Assignment // by group, the meta group's first
	Dividing int          // shards 1 … Dividing are to be divided, or are so already; 0: none
}

// Observations are what the controller knows in addition to the state. A node that is not in Nodes
// is down since just now: a new leader has heard no node yet.
type Observations struct {
	NowMs          int64 // when the facts were taken; times that matter are in them as durations
	Nodes          map[uint64]NodeFacts
	Wrong          []placement.WrongReplica // whose states differ from those of most others, by their nodes' own reports
	ReplaceAfterMs int64                    // how long a node must be down before others take its replicas; 0: 600,000
	// Leaders are the nodes that report that they lead a shard. Where none does, the first live
	// replica of its row counts as its leader.
	Leaders map[timer.ShardID]uint64
	Bytes   map[timer.ShardID]int64 // of shards that are large, about; those that are missing are small
	// MoveRate is how many bytes a second a node sends for moves, and how many it receives; 0:
	// MoveRate.
	MoveRate int64
}

// NodeFacts is how a node is now.
type NodeFacts struct {
	Alive     bool
	DownForMs int64
	// Why it should not lead, if it should not: its clock is off, its disk is slow. It should not
	// flicker.
	Unfit string
	// LowDisk: its disk is low. It could not receive a replica, and shards with a voter on it refuse
	// adds. It should not flicker.
	LowDisk bool
	// Unheard: it was in contact and has sent no heartbeat since. It may lack the cluster's state.
	Unheard bool
}

// lastResort reports whether a node gets a replica, or a vote, only where nobody else can.
func (f NodeFacts) lastResort() bool { return f.Unfit != "" || f.LowDisk || f.Unheard }

const (
	defaultReplaceAfterMs = 600_000

	// A move whose destination dies is given another after this: nothing is lost with it, and it
	// holds up others.
	redirectAfterMs = 30_000

	// joinedMs is for how long the last node that joined holds balance up.
	joinedMs = 3_000

	// maxOrders bounds the changes of rank in one plan: each moves a leadership.
	maxOrders = 16
)

// Plan gives the commands that the controller proposes now, in order of urgency: replicas that are
// one too many; replicas whose states are wrong or whose nodes are gone, and those that rows lack,
// by how few live ones a row has; replicas of nodes that are draining; the next shard to divide;
// zones, balance, and last the preferred leaders. At rest it is empty. A command that was lost or
// refused is in the next plan again. It is a pure function: rings only keep what the next plan would
// make again. A plan at rest takes O(rows + nodes).
//
// Moves begin as long as the nodes that send and receive them have room in their budgets.
//
// A row moves by one replica at a time. A row that is not settled is left alone, unless a node that
// it needs to get there has been down for half a minute. A row that has lost its majority is left
// alone in any case: its leader is needed for every step. No row shrinks because a node is down,
// for however long: only when fewer replicas are wanted.
func Plan(v View, f Observations, rings *Rings) ([]Command, Moves) {
	if len(v.Rows) == 0 {
		return nil, Moves{}
	}
	p := newPlanner(v, f, rings)
	p.finishDrains()
	p.planMeta()
	p.redirect()
	p.shrink()
	p.repair()
	p.drain()
	p.divide()
	if p.stable() {
		p.balance()
		p.order()
	}
	return p.commands, p.summary()
}

// planner is one run of Plan. Its layout has the timer shards' rows as they will be once the plan
// is carried out, and the loads of the nodes that may hold replicas and are not down for good.
type planner struct {
	view     View
	facts    Observations
	nodes    map[uint64]*Node
	layout   *layout
	budget   budget
	refused  bool // a move found no room
	uneven   int  // replicas that balance would move, but that wait
	moves    Moves
	commands []Command
}

func newPlanner(v View, f Observations, rings *Rings) *planner {
	f.ReplaceAfterMs = cmp.Or(f.ReplaceAfterMs, defaultReplaceAfterMs)
	p := &planner{view: v, facts: f, nodes: make(map[uint64]*Node, len(v.Nodes)), budget: budget{rate: cmp.Or(f.MoveRate, MoveRate), nodes: map[uint64]*traffic{}}}
	var usable []TargetNode
	var holders []uint64 // with those that are down for good: their deaths change no ring
	for i := range v.Nodes {
		n := &v.Nodes[i]
		p.nodes[n.ID] = n
		if !n.holds() {
			continue
		}
		if holders = append(holders, n.ID); !p.lost(n.ID) {
			usable = append(usable, TargetNode{ID: n.ID, Zone: n.Zone})
		}
	}
	p.layout = newLayout(usable, len(v.Rows)-1, v.Replicas)
	p.layout.rings = rings
	rings.use(holders, len(v.Rows)-1)
	for i := range p.layout.loads {
		s := &p.layout.loads[i]
		facts := f.Nodes[s.id]
		s.closed, s.unfit, s.lastResort = !p.alive(s.id), facts.Unfit != "", facts.lastResort()
	}
	for i := range p.layout.rows {
		row, on := &v.Rows[i+1], &p.layout.rows[i]
		for _, r := range row.Replicas {
			p.layout.add(i, r.Node)
		}
		for _, r := range row.Leaving {
			on.leaving = append(on.leaving, r.Node)
		}
		on.stuck = !p.majority(row)
		on.pinned = !row.Settled || on.stuck
		if !row.Settled && !on.stuck {
			p.underWay(row)
		}
	}
	// The shard that is being divided is left alone, and what comes of it.
	if last := &v.Rows[len(v.Rows)-1]; last.dividing() {
		p.layout.rows[last.From-1].pinned = true
	}
	return p
}

// alive: heard of lately, and one of us.
func (p *planner) alive(node uint64) bool { return p.nodes[node] != nil && p.facts.Nodes[node].Alive }

// majority reports whether a group can change its membership: most of its voters are alive. In a
// row that is not settled these are the voters it had before, if the row still has them. A
// destination that has died must not count against the group, be it the present one or an earlier
// one.
func (p *planner) majority(row *Assignment) bool {
	live, all := 0, 0
	for _, replicas := range [2][]Replica{row.Replicas, row.Leaving} {
		for _, r := range replicas {
			if r.Learner || !row.Settled && isNew(row, r) {
				continue
			}
			all++
			live += boolInt(p.alive(r.Node))
		}
	}
	return 2*live > all || !row.Settled && 2*live > len(row.Nodes())
}

// isNew reports whether a replica came with the row's last change.
func isNew(row *Assignment, r Replica) bool {
	return row.Epoch > 1 && r.ID == placement.ReplicaID(r.Node, row.Epoch)
}

// isWrong reports whether a node has reported that the state of its replica of the group is wrong.
func (p *planner) isWrong(group timer.ShardID, replicas []Replica, node uint64) bool {
	r, ok := onNode(replicas, node)
	return ok && slices.Contains(p.facts.Wrong, placement.WrongReplica{Group: group, Replica: r.ID})
}

// survives reports whether most nodes of a row without one of them are alive.
func (p *planner) survives(nodes []uint64, without uint64) bool {
	live, all := 0, 0
	for _, n := range nodes {
		if n != without {
			all++
			live += boolInt(p.alive(n))
		}
	}
	return 2*live > all
}

// place proposes the layout's row of a shard.
func (p *planner) place(i int, force bool) {
	row, on := &p.view.Rows[i+1], &p.layout.rows[i]
	on.pinned = true
	to := make([]Replica, len(on.nodes))
	for k, n := range on.nodes {
		to[k] = row.replicaFor(n)
	}
	p.commands = append(p.commands, Command{Verb: Place, Group: row.Group, Epoch: row.Epoch, To: to, Force: force})
}

// replicaFor is the replica that a node has of the row, or would get with the next change.
func (a *Assignment) replicaFor(node uint64) Replica {
	for _, list := range [...][]Replica{a.Replicas, a.Leaving} {
		if had, ok := onNode(list, node); ok {
			return had
		}
	}
	return Replica{Node: node, ID: placement.ReplicaID(node, a.Epoch+1)}
}

// movable lists the rows that a step may change, those with the least weight first.
func (p *planner) movable(weight func(i int) int) []int {
	var rows []int
	weights := make([]int, len(p.layout.rows))
	for i := range p.layout.rows {
		if !p.layout.rows[i].pinned {
			rows, weights[i] = append(rows, i), weight(i)
		}
	}
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(weights[a], weights[b]) })
	return rows
}

// stable: the later steps can wait until no node that counts is down, every row that can has its
// replicas and no more, and no node has joined just now: others may follow, and replicas would move
// twice.
func (p *planner) stable() bool {
	p.moves.Joining = slices.ContainsFunc(p.view.Nodes, func(n Node) bool {
		ago := p.facts.NowMs - n.JoinedMs
		return n.JoinedMs > 0 && ago >= 0 && ago < joinedMs
	})
	if p.moves.Joining {
		return false
	}
	if slices.ContainsFunc(p.layout.loads, func(s nodeLoad) bool { return s.closed }) {
		return false
	}
	for i := range p.layout.rows {
		row := &p.layout.rows[i]
		if !row.stuck && (len(row.nodes) < p.layout.want || len(row.nodes) > p.view.Replicas || slices.ContainsFunc(row.nodes, p.going)) {
			return false
		}
	}
	return true
}

// balance spreads rows evenly over the zones, then evens out how many replicas nodes have.
func (p *planner) balance() {
	p.refused = false
	p.layout.room = func(i int, to uint64) bool { return p.fits(i, to, Balances) }
	for _, next := range []func() (change, bool){p.layout.balanceZones, p.layout.balanceReplicas} {
		for c, ok := next(); ok; c, ok = next() {
			p.layout.swap(c)
			p.begin(c.row, c.to, Balances)
		}
	}
	if p.refused {
		p.uneven = p.layout.uneven()
	}
}

// order evens out the preferred leaders, once nothing moves.
func (p *planner) order() {
	if slices.ContainsFunc(p.layout.rows, func(r shardAssignment) bool { return r.pinned && !r.stuck }) {
		return
	}
	for n := 0; n < maxOrders; {
		chain := p.layout.balanceLeaders()
		if len(chain) == 0 {
			return
		}
		for _, c := range chain {
			p.layout.first(c.row, c.to)
			p.place(c.row, false)
			n++
		}
	}
}
