package ring

import (
	"math/rand/v2"
	"slices"
	"testing"

	"carillon/internal/placement"
	"carillon/timer"
)

// fakeCluster is a cluster in which only placement happens: a real State, the plan, and groups that
// bring their membership to their rows when those that it takes are alive.
type fakeCluster struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	rng     *rand.Rand
	s       *State
	rings   Rings
	nowMs   int64
	down    map[uint64]int64 // since when
	unfit   map[uint64]bool
	lowDisk map[uint64]bool
	wrong   []placement.WrongReplica    // those that are still members report it
	first   map[timer.ShardID][]Replica // the founders of the groups
	conf    map[timer.ShardID][]Replica // the groups' true membership
	// The replicas that there are, by id: with the group's beginnings, or empty.
	made  map[timer.ShardID]map[uint64]bool
	lived map[timer.ShardID]bool // the groups that have had a leader
	moved int                    // replicas that came to be
	bytes map[timer.ShardID]int64
	rate  int64
	lossy bool // every third command is lost
}

func newFakeCluster(t *testing.T, seed uint64, shards, replicas int) *fakeCluster {
	t.Helper()
	tw := newFoundedCluster(t, seed, 1, shards, replicas)
	tw.see(1)
	return tw
}

// newFoundedCluster is a cluster of so many founders, none of which has seen a shard's row yet.
func newFoundedCluster(t *testing.T, seed uint64, founders, shards, replicas int) *fakeCluster {
	t.Helper()
	tw := &fakeCluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), s: NewState(nil, nil), nowMs: 1, down: map[uint64]int64{}, unfit: map[uint64]bool{}, lowDisk: map[uint64]bool{},
		first: map[timer.ShardID][]Replica{}, conf: map[timer.ShardID][]Replica{}, made: map[timer.ShardID]map[uint64]bool{}, lived: map[timer.ShardID]bool{MetaGroup: true},
	}
	tw.do(FoundCommand("c", shards, replicas, nodes(founders)))
	for _, r := range tw.s.Rows() {
		tw.first[r.Group], tw.conf[r.Group], tw.made[r.Group] = r.Replicas, r.Replicas, map[uint64]bool{}
	}
	return tw
}

// see has nodes that are there look at rows, and make their replicas as a host does.
func (fc *fakeCluster) see(chance float64) {
	for _, row := range fc.s.Rows() {
		if fc.first[row.Group] == nil { // a shard is divided
			fc.first[row.Group], fc.conf[row.Group], fc.made[row.Group] = row.Replicas, row.Replicas, map[uint64]bool{}
		}
		if row.Unmoved && !sameNodes(row.Founders(), fc.first[row.Group]) {
			fc.t.Fatalf("%+v has forgotten some of its founders %+v", row, fc.first[row.Group])
		}
		host, made := row.ForHost(), fc.made[row.Group]
		founders := host.Founders
		if row.Epoch == 1 {
			founders = host.Members
		}
		isFounder := func(m placement.Member) bool { return slices.Contains(founders, m) }
		for _, m := range slices.Concat(host.Members, founders) {
			if _, there := made[m.Replica]; !there && fc.alive(m.Node) && fc.rng.Float64() <= chance {
				made[m.Replica] = isFounder(m)
				if _, there := onNode(fc.conf[host.From], m.Node); host.From != 0 && !there {
					made[m.Replica] = false // it has nothing to be made of
				}
			}
		}
	}
}

// leads reports whether the group can have a leader: most of its members are there and have their
// replicas, and one knows of the beginnings.
func (fc *fakeCluster) leads(group timer.ShardID) bool {
	if group == MetaGroup {
		return fc.most(fc.conf[group], 0)
	}
	begun := fc.lived[group]
	for _, r := range fc.conf[group] {
		begun = begun || fc.made[group][r.ID] && fc.alive(r.Node)
	}
	leads := begun && fc.mostMade(group, fc.conf[group])
	fc.lived[group] = fc.lived[group] || leads
	return leads
}

// mostMade: most of these nodes are alive and have made their replicas.
func (fc *fakeCluster) mostMade(group timer.ShardID, replicas []Replica) bool {
	made := slices.DeleteFunc(slices.Clone(replicas), func(r Replica) bool {
		_, there := fc.made[group][r.ID]
		return !there || !fc.alive(r.Node)
	})
	return 2*len(made) > len(replicas)
}

func (fc *fakeCluster) do(c Command) Reply {
	fc.t.Helper()
	r := fc.s.applied(fc.nowMs, c.Encode())
	if r.Err != nil {
		fc.t.Fatalf("%+v: %v", c, r.Err)
	}
	return r
}

func (fc *fakeCluster) join(id uint64, zone string) {
	n := node(id)
	n.Zone = zone
	fc.do(Command{Verb: Register, Node: &n})
}

// joined has nodes without a zone join.
func (fc *fakeCluster) joined(ids ...uint64) {
	for _, id := range ids {
		fc.join(id, "")
	}
}

func (fc *fakeCluster) alive(id uint64) bool {
	n, ok := fc.s.Node(id)
	_, down := fc.down[id]
	return ok && n.State != NodeRemoved && !down
}

func (fc *fakeCluster) facts() Observations {
	f := Observations{NowMs: fc.nowMs, Nodes: map[uint64]NodeFacts{}, Bytes: fc.bytes, MoveRate: fc.rate}
	for _, n := range fc.s.Nodes() {
		facts := NodeFacts{Alive: fc.alive(n.ID), LowDisk: fc.lowDisk[n.ID]}
		if !facts.Alive {
			facts.DownForMs = fc.nowMs - fc.down[n.ID]
		}
		if fc.unfit[n.ID] {
			facts.Unfit = "its clock is off"
		}
		f.Nodes[n.ID] = facts
	}
	f.Leaders = map[timer.ShardID]uint64{}
	for _, row := range fc.s.Rows() {
		for _, r := range fc.conf[row.Group] {
			if f.Leaders[row.Group] == 0 && fc.alive(r.Node) {
				f.Leaders[row.Group] = r.Node
			}
		}
	}
	for _, r := range fc.wrong {
		if slices.ContainsFunc(fc.conf[r.Group], func(o Replica) bool { return o.ID == r.Replica }) && fc.alive(NodeOfReplica(r.Replica)) {
			f.Wrong = append(f.Wrong, r)
		}
	}
	return f
}

// most: a majority of those that vote are alive, one aside.
func (fc *fakeCluster) most(replicas []Replica, aside uint64) bool {
	live, all := 0, 0
	for _, r := range replicas {
		if !r.Learner {
			all++
			live += boolInt(r.Node != aside && fc.alive(r.Node))
		}
	}
	return 2*live > all
}

// reconcile lets groups come to their rows, some of those that can at a time.
func (fc *fakeCluster) reconcile(chance float64) {
	for _, row := range fc.s.Rows() {
		if row.Settled || fc.rng.Float64() > chance {
			continue
		}
		had := fc.conf[row.Group]
		ready := fc.leads(row.Group) && fc.most(row.Replicas, 0) && (row.Group == MetaGroup || fc.mostMade(row.Group, row.Replicas))
		fresh := 0
		for _, r := range row.Replicas {
			if !slices.ContainsFunc(had, func(o Replica) bool { return o.ID == r.ID }) {
				_, made := fc.made[row.Group][r.ID]
				// A voter first catches up; one that is to learn only is taken in whether it is
				// there or not.
				ready = ready && (r.Learner || fc.alive(r.Node) && (made || row.Group == MetaGroup))
				fresh++
			}
		}
		if !ready {
			continue
		}
		fc.conf[row.Group] = row.Replicas
		if row.Group != MetaGroup {
			fc.moved += fresh
		}
		fc.do(Command{Verb: Reconciled, Group: row.Group, Epoch: row.Epoch})
	}
}

// step is a second: a plan, of which every command must be one that the state takes, and the steps
// of the groups meanwhile.
func (fc *fakeCluster) step(chance float64) (idle bool) {
	fc.nowMs += 1000
	commands, moves := Plan(fc.s.View(), fc.facts(), &fc.rings)
	fc.checkMoving(commands)
	for _, c := range commands {
		if c.Verb == Place {
			fc.checkPlace(c)
		}
		if fc.lossy && fc.rng.IntN(3) == 0 {
			continue
		}
		fc.do(c)
	}
	fc.see(chance)
	fc.reconcile(chance)
	return len(commands) == 0 && !moves.Joining
}

func (fc *fakeCluster) steps(n int, chance float64) {
	for range n {
		fc.step(chance)
	}
}

// checkPlace: one replica at a time, and no live one less but where that was asked for.
func (fc *fakeCluster) checkPlace(c Command) {
	fc.t.Helper()
	row, _ := fc.s.Row(c.Group)
	if !row.Settled && !c.Force {
		fc.t.Fatalf("%+v touches a row that moves: %+v", c, row)
	}
	_, _, replicas := fc.s.Cluster()
	// Fewer are wanted than there are.
	lost, came, liveLost, asked := 0, 0, 0, len(row.Nodes()) > replicas
	for _, r := range row.Replicas {
		if now, ok := onNode(c.To, r.Node); !ok || now.Learner && !r.Learner {
			lost++
			n, _ := fc.s.Node(r.Node)
			asked = asked || n.State != NodeMember || slices.Contains(fc.wrong, placement.WrongReplica{Group: c.Group, Replica: r.ID})
			liveLost += boolInt(fc.alive(r.Node) && !(c.Force && isNew(&row, r)))
		}
	}
	for _, r := range c.To {
		if was, ok := onNode(row.Replicas, r.Node); !ok || was.Learner && !r.Learner {
			came++
			liveLost -= boolInt(fc.alive(r.Node))
		}
	}
	if lost > 1 || came > 1 {
		fc.t.Fatalf("%+v changes more than one replica of %+v", c, row)
	}
	if shrinks := c.Group == MetaGroup && lost > came; liveLost > 0 && !asked && !shrinks {
		fc.t.Fatalf("%+v leaves fewer live replicas than %+v", c, row)
	}
	if before, after := fc.most(row.Replicas, 0), fc.most(c.To, 0); before && !after {
		fc.t.Fatalf("%+v has no live majority, %+v had", c, row)
	}
}

// checkMoving: each move that a plan starts finds room at both of its ends, next to those that are
// under way and those that the plan starts before it. Rows that have lost their majority do not
// count, so that those that have come back may be more.
func (fc *fakeCluster) checkMoving(commands []Command) {
	fc.t.Helper()
	p := newPlanner(fc.s.View(), fc.facts(), &fc.rings)
	for _, c := range commands {
		row, _ := fc.s.Row(c.Group)
		if c.Verb != Place || c.Group == MetaGroup || c.Force || sameNodes(row.Replicas, c.To) {
			continue
		}
		var to uint64
		after := row
		after.Epoch, after.Settled, after.Replicas, after.Leaving = row.Epoch+1, false, c.To, nil
		for _, r := range c.To {
			if _, had := onNode(row.Replicas, r.Node); !had {
				to = r.Node
			}
		}
		for _, r := range row.Replicas {
			if _, stays := onNode(c.To, r.Node); !stays {
				after.Leaving = append(after.Leaving, r)
			}
		}
		before := p.moves.UnderWay
		from := p.sender(&row)
		out, in := p.budget.of(from).out, p.budget.of(to).in
		p.underWay(&after)
		for kind := range MoveKinds {
			if p.moves.UnderWay[kind] == before[kind] {
				continue
			}
			if p.budget.full(&out, kind) || to != 0 && p.budget.full(&in, kind) {
				fc.t.Fatalf("%v %+v begins; node %d sends %+v, node %d receives %+v", kind, c, from, out, to, in)
			}
		}
	}
}

func sameNodes(a, b []Replica) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(r Replica) bool { _, ok := onNode(b, r.Node); return !ok })
}

// rest runs until there is nothing to do, and checks that this is where it should be.
func (fc *fakeCluster) rest() {
	fc.t.Helper()
	for range 3000 {
		settled := !slices.ContainsFunc(fc.s.Rows(), func(r Assignment) bool { return !r.Settled })
		if fc.step(0.5) && settled {
			fc.checkRest()
			return
		}
	}
	fc.t.Fatalf("no rest: %+v\nnodes %+v\nmembers of the meta group %+v\nrows %+v", plan(fc.s.View(), fc.facts()), fc.s.Nodes(), fc.conf[MetaGroup], fc.s.Rows())
}

// checkRest: every row is whole, even, and on nodes that may hold it; the meta group has its
// voters.
func (fc *fakeCluster) checkRest() {
	fc.t.Helper()
	fc.see(1)
	for _, r := range fc.s.Rows() {
		if fc.most(r.Replicas, 0) && !fc.leads(r.Group) {
			fc.t.Fatalf("there are most of %+v, but the group has no leader", r)
		}
	}
	var may []TargetNode
	_, _, replicas := fc.s.Cluster()
	facts := fc.facts()
	for _, n := range fc.s.Nodes() {
		if n.State == NodeMember && facts.Nodes[n.ID].DownForMs < defaultReplaceAfterMs {
			may = append(may, TargetNode{ID: n.ID, Zone: n.Zone})
		}
		if n.State == NodeDraining {
			fc.t.Fatalf("%s is still draining; rows %+v", n.Name, fc.s.Rows())
		}
	}
	rows := fc.s.Rows()
	layout := make([][]uint64, 0, len(rows))
	for _, r := range rows[1:] {
		layout = append(layout, r.Nodes())
	}
	if len(fc.unfit) == 0 && len(fc.lowDisk) == 0 {
		checkBalance(fc.t, layout, may, replicas)
	}
	if got, want := len(rows[0].Nodes()), MetaVoters(len(may)); got != want {
		fc.t.Fatalf("%d nodes vote in the meta group, want %d: %+v", got, want, rows[0])
	}
	for _, n := range fc.s.Nodes() {
		r, ok := rows[0].Replica(n.ID)
		if !ok || !r.Learner && n.State != NodeMember {
			fc.t.Fatalf("the meta group on %+v: %+v", n, rows[0])
		}
	}
	if len(rows[0].Replicas) != len(fc.s.Nodes()) {
		fc.t.Fatalf("the meta group has a replica too many: %+v", rows[0])
	}
}

// plan is the plan without what it counts.
func plan(v View, f Observations) []Command {
	commands, _ := Plan(v, f, &Rings{})
	return commands
}
