package ring

import (
	"slices"
	"testing"

	"carillon/timer"
)

// movingCluster is a fakeCluster whose moves take time: each node sends and receives so many bytes a
// second, which the moves share, and every step of a group takes overheadMs besides.
type movingCluster struct {
	*fakeCluster
	turns     int
	left      map[timer.ShardID]float64 // bytes of the row's present step
	startedMs map[timer.ShardID]int64
	epoch     map[timer.ShardID]uint32
	sent      float64          // bytes
	peak      map[uint64]int64 // the most that a node had under way, in one direction
	largest   int64            // of the shards
}

const (
	tickMs     = 100
	overheadMs = 600
)

func newMovingCluster(t *testing.T, shards, replicas int, size func(shard int) int64) *movingCluster {
	t.Helper()
	return newMovingClusterOf(t, replicas, shards, replicas, size)
}

func newMovingClusterOf(t *testing.T, founders, shards, replicas int, size func(shard int) int64) *movingCluster {
	t.Helper()
	m := &movingCluster{
		fakeCluster: newFoundedCluster(t, 1, founders, shards, replicas), left: map[timer.ShardID]float64{}, startedMs: map[timer.ShardID]int64{},
		epoch: map[timer.ShardID]uint32{}, peak: map[uint64]int64{},
	}
	m.bytes = map[timer.ShardID]int64{}
	for i := range shards {
		m.bytes[timer.ShardID(i+1)] = size(i)
		m.largest = max(m.largest, size(i))
	}
	m.see(1)
	m.rest()
	m.moved = 0
	return m
}

// turn is a second: a plan, and ten ticks of the moves. It reports whether nothing is left to do.
func (m *movingCluster) turn() (idle bool) {
	m.turns++
	commands, moves := Plan(m.s.View(), m.facts(), &m.rings)
	m.checkMoving(commands)
	for _, c := range commands {
		if c.Verb == Place {
			m.checkPlace(c)
		}
		m.do(c)
	}
	m.see(1)
	for range 1000 / tickMs {
		m.nowMs += tickMs
		m.tick()
	}
	none := [MoveKinds]int{}
	return len(commands) == 0 && moves.Waiting == none && moves.UnderWay == none && !slices.ContainsFunc(m.s.Rows(), func(r Assignment) bool { return !r.Settled })
}

func (m *movingCluster) tick() {
	type end struct {
		node uint64
		in   bool
	}
	busy, underWay := map[end]int{}, map[end]int64{}
	leaders := m.facts().Leaders
	ends := func(row *Assignment) (from, to end) {
		for _, r := range row.Replicas {
			if isNew(row, r) {
				return end{leaders[row.Group], false}, end{r.Node, true}
			}
		}
		return end{}, end{}
	}
	rows := slices.DeleteFunc(m.s.Rows(), func(r Assignment) bool { return r.Settled })
	for i := range rows {
		row := &rows[i]
		from, to := ends(row)
		if m.epoch[row.Group] != row.Epoch {
			m.epoch[row.Group], m.startedMs[row.Group], m.left[row.Group] = row.Epoch, m.nowMs, 0
			if to.node != 0 {
				m.left[row.Group] = float64(m.bytes[row.Group])
			}
		}
		for _, e := range []end{from, to} {
			if row.Group != MetaGroup && e.node != 0 {
				underWay[e] += m.bytes[row.Group]
				if m.left[row.Group] > 0 {
					busy[e]++
				}
			}
		}
	}
	for e, n := range underWay {
		m.peak[e.node] = max(m.peak[e.node], n)
	}
	for i := range rows {
		row := &rows[i]
		from, to := ends(row)
		if left := m.left[row.Group]; left > 0 {
			part := min(left, float64(MoveRate)*tickMs/1000/float64(max(busy[from], busy[to])))
			m.left[row.Group] -= part
			m.sent += part
		}
		if m.left[row.Group] <= 0 && m.nowMs-m.startedMs[row.Group] >= overheadMs && m.most(row.Replicas, 0) {
			m.conf[row.Group] = row.Replicas
			if row.Group != MetaGroup && to.node != 0 {
				m.moved++
			}
			m.do(Command{Verb: Reconciled, Group: row.Group, Epoch: row.Epoch})
		}
	}
}

// TestManyNodesJoin: six empty nodes join three that have 256 shards. That took 124 turns when four
// shards moved at once. Hardly a replica moves that need not, no node has more under way than the
// window, and all is done in a quarter of a minute and little more than the time that three nodes
// need to send the bytes.
func TestManyNodesJoin(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  func(shard int) int64
		apart int // turns between two joins
	}{
		{"empty shards", func(int) int64 { return 0 }, 0},
		{"empty shards, nodes one after the other", func(int) int64 { return 0 }, 2},
		{"shards of 16 MB", func(int) int64 { return 16e6 }, 0},
		{"shards of 200 MB", func(int) int64 { return 200e6 }, 0},
		{"shards of many sizes", func(i int) int64 { return int64(i%5) * 100e6 }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMovingCluster(t, 256, 3, c.size)
			for id, idle := uint64(4), false; id <= 9 || !idle; {
				for ; id <= 9 && (c.apart == 0 || m.turns >= c.apart*int(id-4)); id++ {
					m.join(id, "")
				}
				if idle = m.turn(); m.turns > 5000 {
					t.Fatal("no end")
				}
			}
			m.checkRest()
			const least = 6 * (256 * 3 / 9) // the new nodes' shares
			t.Logf("%d s, %d moves of at least %d, %.0f MB", m.turns, m.moved, least, m.sent/1e6)
			if float64(m.moved) > 1.2*least {
				t.Errorf("%d replicas moved, %d is the least", m.moved, least)
			}
			if most := 1.2*m.sent/3/MoveRate + float64(15+5*c.apart); float64(m.turns) > most {
				t.Errorf("it took %d s, at most %.0f should do", m.turns, most)
			}
			for node, most := range m.peak {
				if bound := max(moveWindow*MoveRate+m.largest, minMoves*m.largest); most > bound {
					t.Errorf("node %d had %d bytes under way, at most %d should be", node, most, bound)
				}
			}
		})
	}
}

// TestWhatWaitsIsNamed: the plan counts what waits, and names the nodes for which it waits. At rest
// it has nothing to name.
func TestWhatWaitsIsNamed(t *testing.T) {
	m := newMovingCluster(t, 64, 3, func(int) int64 { return 0 })
	m.rate = movesPerSecond // of moves of a byte: 16 at once
	look := func() Moves {
		_, moves := Plan(m.s.View(), m.facts(), &m.rings)
		return moves
	}
	if moves := look(); moves.Waiting[Balances] > 0 || len(moves.Full)+len(moves.Awaited) > 0 || moves.Joining {
		t.Errorf("at rest: %+v", moves)
	}
	m.join(4, "")
	if moves := look(); !moves.Joining || moves.Waiting[Balances] < 40 || len(moves.Full)+len(moves.Awaited) > 0 {
		t.Errorf("a node has just joined: %+v", moves)
	}
	for range 4 {
		m.nowMs += 1000
	}
	if moves := look(); moves.Joining || moves.UnderWay[Balances] != 16 || moves.Waiting[Balances] < 24 || !slices.Equal(moves.Full, []uint64{4}) {
		t.Errorf("it is filled: %+v", moves)
	}
	m.down[2] = m.nowMs
	if moves := look(); moves.UnderWay[Balances] > 0 || moves.Waiting[Balances] < 40 || !slices.Equal(moves.Awaited, []uint64{2}) || len(moves.Full) > 0 {
		t.Errorf("a node is down: %+v", moves)
	}
	delete(m.down, 2)
	m.unfit[4] = true
	if moves := look(); moves.UnderWay[Balances] > 0 || moves.Waiting[Balances] < 40 || !slices.Equal(moves.Awaited, []uint64{4}) || len(moves.Full) > 0 {
		t.Errorf("the node that is to be filled is not fit: %+v", moves)
	}
}

// TestDrainSaysWhatItWaitsFor: a node is drained while another is down that could take its
// replicas, or without which they are needed. The drain waits for that one, and says so.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	for _, members := range []uint64{3, 4} {
		tw := newFakeCluster(t, 1, 16, 3)
		for id := uint64(2); id <= members; id++ {
			tw.join(id, "")
		}
		tw.rest()
		tw.down[members] = tw.nowMs
		tw.do(Command{Verb: SetState, NodeID: 1, State: NodeDraining})
		tw.steps(60, 1)
		_, moves := Plan(tw.s.View(), tw.facts(), &tw.rings)
		if moves.Waiting[Drains] == 0 || !slices.Equal(moves.Awaited, []uint64{members}) {
			t.Errorf("of %d nodes: %+v", members, moves)
		}
		delete(tw.down, members)
		tw.rest()
	}
}

// TestMoreReplicasSayWhatTheyWaitFor: more replicas are wanted than there are nodes up.
func TestMoreReplicasSayWhatTheyWaitFor(t *testing.T) {
	tw := newFakeCluster(t, 1, 16, 2)
	for id := uint64(2); id <= 4; id++ {
		tw.join(id, "")
	}
	tw.rest()
	tw.down[4] = tw.nowMs
	tw.do(Command{Verb: SetReplicas, Replicas: 4})
	tw.steps(60, 1)
	if _, moves := Plan(tw.s.View(), tw.facts(), &tw.rings); moves.Waiting[Repairs] == 0 || !slices.Equal(moves.Awaited, []uint64{4}) {
		t.Errorf("%+v", moves)
	}
	delete(tw.down, 4)
	tw.rest()
}

// TestFewerReplicasAreNoRepairs: a replica that is one too many is no repair, neither while rows get
// rid of it nor while they wait for that. It is one where its node is lost, and a drain where that is
// drained.
func TestFewerReplicasAreNoRepairs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *movingCluster)
		as     []MoveKind
	}{
		{"all are up", func(*movingCluster) {}, []MoveKind{Balances}},
		{"one drains", func(m *movingCluster) { m.drain(5) }, []MoveKind{Balances, Drains}},
		{"one is lost", func(m *movingCluster) { m.down[5] = m.nowMs - defaultReplaceAfterMs }, []MoveKind{Balances, Repairs}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMovingCluster(t, 256, 5, func(int) int64 { return 200e6 })
			c.change(m)
			for _, replicas := range []int{3, 1} {
				m.do(Command{Verb: SetReplicas, Replicas: replicas})
				seen, waited := [MoveKinds]int{}, 0
				for idle := false; !idle; idle = m.turn() {
					_, moves := Plan(m.s.View(), m.facts(), &m.rings)
					for kind := range MoveKinds {
						seen[kind] += moves.UnderWay[kind] + moves.Waiting[kind]
						waited += moves.Waiting[kind]
					}
				}
				for kind := range MoveKinds {
					// The node that is lost or drains has nothing left after the first time.
					if want := slices.Contains(c.as, kind) && (kind == Balances || replicas == 3); want != (seen[kind] > 0) {
						t.Errorf("%d replicas: moves by kind %v", replicas, seen)
					}
				}
				if waited == 0 {
					t.Errorf("%d replicas: nothing waits for room", replicas)
				}
			}
		})
	}
}

// TestRepairsComeFirst: nodes join and are filled with large shards when two others are lost. The
// next plan begins to replace replicas of both, those of the shards first that have lost two, as if
// nothing else moved; and while repairs wait for a node, nothing else begins there.
func TestRepairsComeFirst(t *testing.T) {
	m := newMovingCluster(t, 64, 5, func(int) int64 { return 200e6 })
	for id := uint64(6); id <= 8; id++ {
		m.join(id, "")
	}
	for !m.turn() {
	}
	for id := uint64(9); id <= 12; id++ {
		m.join(id, "")
	}
	for range 10 {
		m.turn()
	}
	_, before := Plan(m.s.View(), m.facts(), &m.rings)
	if before.UnderWay[Balances] < 8 || before.Waiting[Balances] == 0 || len(before.Full) == 0 || before.UnderWay[Repairs] > 0 {
		t.Fatalf("before: %+v", before)
	}
	m.down[2], m.down[7] = m.nowMs-defaultReplaceAfterMs, m.nowMs-defaultReplaceAfterMs
	live := func(nodes []uint64) (n int) {
		for _, id := range nodes {
			n += boolInt(m.alive(id))
		}
		return n
	}
	commands, after := Plan(m.s.View(), m.facts(), &m.rings)
	last, count, others := 0, map[int]int{}, false
	for _, c := range commands {
		if c.Verb != Place || c.Group == MetaGroup || c.Force {
			continue
		}
		row, _ := m.s.Row(c.Group)
		n := live(row.Nodes())
		if n == 5 {
			others = true
			continue
		}
		if others || n < last {
			t.Errorf("%+v with %d live replicas begins late", row, n)
		}
		last = n
		count[n]++
	}
	if after.Waiting[Repairs] == 0 || count[3] < 5 {
		t.Errorf("%v repairs by live replicas; %+v", count, after)
	}
	turns := m.turns
	for !m.turn() {
	}
	m.checkRest()
	t.Logf("%v by live replicas at once, %+v; all done after %d s", count, after, m.turns-turns)
}

// TestPlanSpreadsOverZones: no zone of three has most replicas of a shard, or most votes of the
// meta group, however nodes came and whatever zones they are started with later.
func TestPlanSpreadsOverZones(t *testing.T) {
	for seed := range uint64(10) {
		tw := newFakeCluster(t, seed, 32, 5)
		zones := map[uint64]string{}
		for id := uint64(2); id < 11; id++ {
			zones[id] = string(rune('a' + (id-2)/3))
			tw.join(id, zones[id])
			if id%2 == 0 {
				tw.restZoned()
			}
		}
		tw.drain(1)
		check := func() {
			t.Helper()
			tw.restZoned()
			for _, r := range tw.s.Rows() {
				in := map[string]int{}
				for _, n := range r.Nodes() {
					in[zones[n]]++
				}
				for zone, n := range in {
					if 2*n > len(r.Nodes()) {
						t.Fatalf("seed %d: of %+v, %d are in zone %s", seed, r, n, zone)
					}
				}
			}
		}
		check()
		for id := uint64(2); id < 11; id++ { // they are started again, one after the other
			zones[id] = string(rune('a' + id%3))
			tw.join(id, zones[id])
		}
		check()
	}
}
