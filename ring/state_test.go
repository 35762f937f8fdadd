package ring

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"carillon/internal/feature"
	"carillon/internal/placement"
	"carillon/test/testkit"
	"carillon/timer"

	"pgregory.net/rapid"
)

// apply runs a command that may be refused; then nothing may have changed.
func apply(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *State, c Command) Reply {
	t.Helper()
	before, version, hash := string(s.Save()), s.Version(), s.Hash()
	r := s.applied(1000, c.Encode())
	if changed := string(s.Save()) != before; changed != (s.Hash() != hash) {
		t.Fatalf("%+v: changed %t, hash %016x then %016x", c, changed, hash, s.Hash())
	}
	if r.Err != nil && string(s.Save()) != before {
		t.Fatalf("%+v was refused (%v) and changed the state", c, r.Err)
	}
	if changed := string(s.Save()) != before; c.Verb != Ensure && changed != (s.Version() != version) {
		t.Fatalf("%+v: changed %t, version %d then %d", c, changed, version, s.Version())
	}
	return r
}

func must(t *testing.T, s *State, c Command) Reply {
	t.Helper()
	r := apply(t, s, c)
	if r.Err != nil {
		t.Fatalf("%+v: %v", c, r.Err)
	}
	return r
}

func refused(t *testing.T, s *State, want error, c Command) {
	t.Helper()
	if r := apply(t, s, c); !errors.Is(r.Err, want) {
		t.Fatalf("%+v: %v, want %v", c, r.Err, want)
	}
}

func node(id uint64) Node {
	return Node{ID: id, Name: fmt.Sprintf("n%d", id), HTTP: "127.0.0.1:7700", Peer: fmt.Sprintf("127.0.0.1:%d", 7000+id), Starts: 1}
}

func nodes(n int) []Node {
	var out []Node
	for i := range n {
		out = append(out, node(uint64(i+1)))
	}
	return out
}

func founded(t *testing.T, shards, replicas, n int) *State {
	t.Helper()
	s := NewState(nil, nil)
	must(t, s, FoundCommand("c", shards, replicas, nodes(n)))
	return s
}

func TestFound(t *testing.T) {
	placed := 0
	s := NewState(nil, func() { placed++ })
	refused(t, s, ErrNotFounded, Command{Verb: Register, Node: &Node{ID: 9, Name: "x"}})
	refused(t, s, ErrNotFounded, Command{Verb: Reconciled, Group: 1, Epoch: 1})
	for _, bad := range []Command{
		FoundCommand("", 4, 3, nodes(1)), FoundCommand("c", 0, 3, nodes(1)), FoundCommand("c", 4, 0, nodes(1)), FoundCommand("c", 4, 8, nodes(1)),
		FoundCommand("c", 4, 3, nil), FoundCommand("c", 4, 3, append(nodes(2), node(1))), FoundCommand("c", MaxShards+1, 3, nodes(1)),
		{Verb: Found, ClusterID: "c", Shards: 2, Replicas: 1, Nodes: nodes(1), Layout: [][]int{{0}}},
		{Verb: Found, ClusterID: "c", Shards: 1, Replicas: 1, Nodes: nodes(1), Layout: [][]int{{1}}},
		{Verb: Found, ClusterID: "c", Shards: 1, Replicas: 1, Nodes: nodes(1), Layout: [][]int{{}}},
		{Verb: Found, ClusterID: "c", Shards: 1, Replicas: 1, Nodes: nodes(1), Layout: [][]int{{0, 0}}},
	} {
		if r := apply(t, s, bad); r.Err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	if placed != 0 {
		t.Error("told of a change that was not")
	}
	must(t, s, FoundCommand("c", 16, 3, nodes(4)))
	if id, shards, replicas := s.Cluster(); id != "c" || shards != 16 || replicas != 3 || placed != 1 || s.Version() != 1 {
		t.Fatalf("%s, %d shards, %d replicas, told %d times, version %d", id, shards, replicas, placed, s.Version())
	}
	rows := s.Rows()
	if len(rows) != 17 || len(rows[0].Replicas) != 4 || len(rows[0].Nodes()) != 3 || !rows[0].Replicas[3].Learner {
		t.Fatalf("%d rows, the first %+v", len(rows), rows[0])
	}
	for _, r := range rows[1:] {
		if len(r.Nodes()) != 3 || r.Epoch != 1 || !r.Settled || r.Replicas[0].ID != r.Replicas[0].Node<<24|1 {
			t.Fatalf("%+v", r)
		}
	}
	must(t, s, FoundCommand("c", 16, 3, nodes(4))) // given twice
	refused(t, s, ErrFounded, FoundCommand("d", 16, 3, nodes(4)))
}

// TestSavedState: a state is read as it was saved, before its cluster is founded and after. One
// that is damaged, incomplete or of another version changes nothing.
func TestSavedState(t *testing.T) {
	s := NewState(nil, nil)
	for _, name := range []string{"a", "b"} {
		must(t, s, Command{Verb: Ensure, Name: name})
	}
	again := NewState(nil, nil)
	if err := again.Load(s.Save()); err != nil || again.Hash() != s.Hash() || again.Version() != 0 {
		t.Fatalf("before the founding: %v\n%s", err, again.Save())
	}
	if _, ok := again.Row(0); ok {
		t.Fatal("there is a row before there is a cluster")
	}
	must(t, s, FoundCommand("c", 4, 3, nodes(1)))
	if r, ok := s.Row(4); !ok || len(r.Replicas) != 1 || r.Replicas[0].ID != 1<<24|1 {
		t.Fatalf("%+v", r)
	}
	if _, ok := s.Row(5); ok {
		t.Fatal("row 5 of 4")
	}
	if err := again.Load(s.Save()); err != nil || string(again.Save()) != string(s.Save()) {
		t.Fatalf("%v\n%s\n%s", err, again.Save(), s.Save())
	}
	if _, ok := again.Named("a"); !ok {
		t.Fatal("topic a is lost")
	}
	before := string(s.Save())
	lines := strings.SplitAfter(before, "\n") // head, topics 1 and 2, node, rows 0 to 4, end
	without := func(i int) string { return strings.Join(slices.Concat(lines[:i], lines[i+1:]), "") }
	swapped := func(i int) string {
		list := slices.Clone(lines)
		list[i], list[i+1] = list[i+1], list[i]
		return strings.Join(list, "")
	}
	for _, bad := range []string{"", lines[0], "{\"version\":3}\n{}", "{\"version\":3}\n{\"end\":{\"hash\":1}}", "{\"version\":3}\n" + lines[3],
		strings.Replace(before, `"version":3`, `"version":4`, 1), strings.Replace(before, `"version":3`, `"version":2`, 1),
		without(1), swapped(1), without(3), without(5), swapped(5), without(len(lines) - 2),
		strings.Replace(before, `"name":"n1"`, `"name":""`, 1), strings.Replace(before, `"shards":4`, `"shards":5`, 1)} {
		if err := s.Load([]byte(bad)); err == nil || string(s.Save()) != before {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestSetReplicas(t *testing.T) {
	refused(t, NewState(nil, nil), ErrNotFounded, Command{Verb: SetReplicas, Replicas: 3})
	s := founded(t, 4, 1, 3)
	for _, n := range []int{-1, 0, MaxReplicas + 1} {
		refused(t, s, ErrBadCluster, Command{Verb: SetReplicas, Replicas: n})
	}
	rows := s.Rows()
	for _, n := range []int{1, 3, 3, MaxReplicas, 2} {
		must(t, s, Command{Verb: SetReplicas, Replicas: n})
		if got := s.View().Replicas; got != n {
			t.Errorf("%d replicas, want %d", got, n)
		}
	}
	if !slices.EqualFunc(rows, s.Rows(), func(a, b Assignment) bool { return a.Epoch == b.Epoch }) {
		t.Error("rows have changed: that is the controller's")
	}
}

func TestRegister(t *testing.T) {
	s := founded(t, 4, 3, 3)
	three := node(5)
	if r := must(t, s, Command{Verb: Register, Node: &three}); !r.Created || r.Node.State != NodeMember || r.Node.JoinedMs != 1000 {
		t.Fatalf("%+v", r)
	}
	if row, _ := s.Row(0); row.Names(5) {
		t.Error("register placed a replica")
	}
	must(t, s, Command{Verb: Register, Node: &three}) // unchanged
	three.Starts, three.Peer, three.Version = 5, "127.0.0.1:9", "1.2.3"
	must(t, s, Command{Verb: Register, Node: &three})
	if n, ok := s.NodeNamed("n5"); !ok || n.Peer != "127.0.0.1:9" || n.JoinedMs != 1000 || n.State != NodeMember {
		t.Fatalf("%+v", n)
	}
	three.Starts = 4
	refused(t, s, ErrStale, Command{Verb: Register, Node: &three})
	for starts, want := range map[uint32]error{4: ErrStale, 5: nil, 6: nil} {
		if err := s.Outdated(5, starts); !errors.Is(err, want) {
			t.Errorf("start %d: %v", starts, err)
		}
	}
	if err := s.Outdated(99, 1); err != nil {
		t.Errorf("a stranger: %v", err)
	}
	four := node(4)
	refused(t, s, ErrOtherCluster, Command{Verb: Register, Node: &four, ClusterID: "d"})
	four.Name = "n1"
	refused(t, s, ErrNameTaken, Command{Verb: Register, Node: &four})
	must(t, s, Command{Verb: Register, Node: &four, Replace: true})
	if n, _ := s.Node(1); n.State != NodeRemoved {
		t.Fatalf("the one that was replaced: %+v", n)
	}
	if n, _ := s.NodeNamed("n1"); n.ID != 4 || len(s.Nodes()) != 4 || len(s.Removed()) != 1 {
		t.Fatalf("%+v of %d", n, len(s.Nodes()))
	}
	one := node(1)
	refused(t, s, ErrRemoved, Command{Verb: Register, Node: &one, Replace: true})
	refused(t, s, ErrBadNode, Command{Verb: Register})
	long := make([]byte, 65)
	for i := range long {
		long[i] = 'a'
	}
	for _, change := range []func(*Node){
		func(n *Node) { n.ID = 0 }, func(n *Node) { n.ID = 1 << 40 }, func(n *Node) { n.Name = "" }, func(n *Node) { n.Name = "-a" },
		func(n *Node) { n.Name = string(long[:64]) }, func(n *Node) { n.Zone = string(long) }, func(n *Node) { n.Version = string(long) },
		func(n *Node) { n.Peer = "a b" },
	} {
		n := node(7)
		change(&n)
		refused(t, s, ErrBadNode, Command{Verb: Register, Node: &n})
	}
	for i := uint64(100); len(s.Nodes()) < MaxNodes; i++ {
		n := node(i)
		s.Apply(0, (&Command{Verb: Register, Node: &n}).Encode())
	}
	n := node(9999)
	refused(t, s, ErrTooManyNodes, Command{Verb: Register, Node: &n})
	n.Name = "n5"
	must(t, s, Command{Verb: Register, Node: &n, Replace: true}) // takes the place of another
}

func TestNodeStates(t *testing.T) {
	s := founded(t, 4, 3, 1)
	state := func(id uint64, to NodeState) Command { return Command{Verb: SetState, NodeID: id, State: to} }
	refused(t, s, ErrLastNode, state(1, NodeDraining))
	refused(t, s, ErrLastNode, Command{Verb: Remove, NodeID: 1, Force: true})
	two := node(2)
	must(t, s, Command{Verb: Register, Node: &two})
	refused(t, s, ErrUnknownNode, state(3, NodeDraining))
	refused(t, s, ErrBadState, state(1, NodeDrained))
	refused(t, s, ErrBadState, state(1, NodeRemoved))
	must(t, s, state(1, NodeDraining))
	must(t, s, state(1, NodeDraining))
	refused(t, s, ErrLastNode, state(2, NodeDraining))
	must(t, s, state(1, NodeMember))
	must(t, s, state(1, NodeDraining))
	refused(t, s, ErrInUse, state(1, NodeDrained))
	refused(t, s, ErrInUse, Command{Verb: Remove, NodeID: 1})
	for g := range timer.ShardID(5) {
		to := []Replica{{Node: 2, ID: placement.ReplicaID(2, 2)}}
		if g == MetaGroup {
			to = append(to, Replica{Node: 1, ID: placement.ReplicaID(1, 1), Learner: true})
		}
		must(t, s, Command{Verb: Place, Group: g, Epoch: 1, To: to})
		// It is on the way, but still has the vote that the group needs.
		refused(t, s, ErrInUse, state(1, NodeDrained))
		must(t, s, Command{Verb: Reconciled, Group: g, Epoch: 2})
	}
	must(t, s, state(1, NodeDrained))
	must(t, s, Command{Verb: Remove, NodeID: 1})
	must(t, s, Command{Verb: Remove, NodeID: 1})
	refused(t, s, ErrRemoved, state(1, NodeMember))
}

// TestADrainedNodeCanGoWhileTheMetaGroupMoves: the meta group's next move, in which a drained node is a
// learner as before, does not make that node needed again.
func TestADrainedNodeCanGoWhileTheMetaGroupMoves(t *testing.T) {
	s := founded(t, 1, 3, 4)
	must(t, s, Command{Verb: SetState, NodeID: 1, State: NodeDraining})
	for {
		move := slices.IndexFunc(s.Rows(), func(r Assignment) bool { return r.Needs(1) })
		if move < 0 {
			break
		}
		r, _ := s.Row(timer.ShardID(move))
		to := slices.DeleteFunc(slices.Clone(r.Replicas), func(r Replica) bool { return r.Node == 1 })
		if r.Group == MetaGroup {
			own, _ := r.Replica(1)
			own.Learner = true
			to = append(to, own)
		}
		must(t, s, Command{Verb: Place, Group: r.Group, Epoch: r.Epoch, To: to})
		must(t, s, Command{Verb: Reconciled, Group: r.Group, Epoch: r.Epoch + 1})
	}
	must(t, s, Command{Verb: SetState, NodeID: 1, State: NodeDrained})
	r, _ := s.Row(MetaGroup) // voters come first
	to := slices.Clone(r.Replicas)
	to[len(r.Nodes())-1].Learner = true
	if r := must(t, s, Command{Verb: Place, Group: MetaGroup, Epoch: r.Epoch, To: to}); r.Row.Settled || !r.Row.Needs(1) {
		t.Fatalf("the test is about nothing: %+v", r.Row)
	}
	must(t, s, Command{Verb: Remove, NodeID: 1})
}

func TestRemoveByForce(t *testing.T) {
	s := founded(t, 4, 3, 3)
	must(t, s, Command{Verb: Remove, NodeID: 1, Force: true})
	if r, _ := s.Row(1); !r.Names(1) {
		t.Error("the row lost a replica without a step that its leader can take")
	}
	refused(t, s, ErrUnknownNode, Command{Verb: Remove, NodeID: 77})
	refused(t, s, ErrUnknownNode, Command{Verb: Place, Group: 1, Epoch: 1, To: []Replica{{Node: 99, ID: placement.ReplicaID(99, 2)}}})
}

func TestPlace(t *testing.T) {
	s := founded(t, 1, 2, 3)
	old, _ := s.Row(1)
	a, b := old.Replicas[0], old.Replicas[1]
	c := Replica{Node: 6 - a.Node - b.Node}
	c.ID = placement.ReplicaID(c.Node, 2)
	place := func(epoch uint32, to ...Replica) Command { return Command{Verb: Place, Group: 1, Epoch: epoch, To: to} }
	refused(t, s, ErrUnknownGroup, Command{Verb: Place, Group: 2, Epoch: 1})
	refused(t, s, ErrEpoch, place(0, a, c))
	refused(t, s, ErrEpoch, place(2, a, c))
	for _, bad := range [][]Replica{{}, {a, a}, {a, {Node: c.Node, ID: placement.ReplicaID(c.Node, 1)}}, {a, {Node: c.Node, ID: placement.ReplicaID(c.Node, 3)}}, {a, {Node: c.Node, ID: placement.ReplicaID(b.Node, 2)}},
		{a, {Node: b.Node, ID: placement.ReplicaID(b.Node, 2)}}, {a, {Node: c.Node, ID: c.ID, Learner: true}}} {
		refused(t, s, ErrBadPlacement, place(1, bad...))
	}
	if r := must(t, s, place(1, b, a)); !r.Row.Settled || r.Row.Epoch != 2 {
		t.Fatalf("another order: %+v", r.Row)
	}
	c.ID = placement.ReplicaID(c.Node, 3)
	if r := must(t, s, place(2, b, c)); r.Row.Settled || len(r.Row.Leaving) != 1 || r.Row.Leaving[0] != a || !r.Row.Needs(a.Node) {
		t.Fatalf("a swap: %+v", r.Row)
	}
	refused(t, s, ErrMoving, place(3, b, a))
	back := place(3, b, a)
	back.Force = true
	if r := must(t, s, back); r.Row.Settled || r.Row.Replicas[1] != a || len(r.Row.Leaving) != 1 || r.Row.Leaving[0] != c {
		t.Fatalf("the way back: %+v", r.Row)
	}
	refused(t, s, ErrEpoch, Command{Verb: Reconciled, Group: 1, Epoch: 3})
	if r := must(t, s, Command{Verb: Reconciled, Group: 1, Epoch: 4}); !r.Row.Settled || r.Row.Leaving != nil {
		t.Fatalf("%+v", r.Row)
	}
	must(t, s, Command{Verb: Reconciled, Group: 1, Epoch: 4})
}

// TestFoundersAreKnownUntilAMoveIsSettled: through all changes of a row, and after a restart too.
func TestFoundersAreKnownUntilAMoveIsSettled(t *testing.T) {
	s := founded(t, 1, 2, 4)
	first, _ := s.Row(1)
	a, b := first.Replicas[0], first.Replicas[1]
	var others []uint64
	for n := uint64(1); n <= 4; n++ {
		if !first.Names(n) {
			others = append(others, n)
		}
	}
	fresh := func(node uint64, epoch uint32) Replica {
		return Replica{Node: node, ID: placement.ReplicaID(node, epoch)}
	}
	c, d := fresh(others[0], 3), fresh(others[1], 4)
	check := func(what string, settled, known bool) {
		t.Helper()
		again := NewState(nil, nil)
		testkit.Must(t, again.Load(s.Save()))
		row, _ := again.Row(1)
		if row.Settled != settled || known != (len(row.Founders()) == 2 && sameNodes(row.Founders(), first.Replicas)) || !known && row.Founders() != nil {
			t.Errorf("%s: %+v has the founders %+v", what, row, row.Founders())
		}
		if host := row.ForHost(); len(host.Members) != len(row.Replicas) || row.Epoch > 1 && known != (len(host.Founders) == 2) {
			t.Errorf("%s: the host's row is %+v", what, host)
		}
	}
	check("founded", true, true)
	must(t, s, Command{Verb: Place, Group: 1, Epoch: 1, To: []Replica{b, a}})
	check("reordered", true, true)
	must(t, s, Command{Verb: Place, Group: 1, Epoch: 2, To: []Replica{b, c}})
	check("moved", false, true)
	must(t, s, Command{Verb: Place, Group: 1, Epoch: 3, To: []Replica{c, d}, Force: true})
	check("redirected", false, true)
	must(t, s, Command{Verb: Reconciled, Group: 1, Epoch: 4})
	check("settled", true, false)
	must(t, s, Command{Verb: Place, Group: 1, Epoch: 4, To: []Replica{d, c}})
	check("reordered again", true, false)

	meta, _ := s.Row(MetaGroup)
	must(t, s, Command{Verb: Place, Group: MetaGroup, Epoch: 1, To: append(meta.Replicas[1:len(meta.Replicas):len(meta.Replicas)], meta.Replicas[0])[:len(meta.Replicas)-1]})
	if meta, _ = s.Row(MetaGroup); meta.Epoch != 2 || meta.Unmoved || meta.Founders() != nil {
		t.Errorf("who founds the meta group makes its replica by no row: %+v", meta)
	}
}

// TestRowsAreValues: a reader's rows never change.
func TestRowsAreValues(t *testing.T) {
	s := founded(t, 2, 1, 2)
	rows, present := s.Rows(), s.Nodes()
	saved, _ := json.Marshal([]any{rows, present})
	to := []Replica{{Node: 3 - rows[1].Replicas[0].Node}}
	to[0].ID = placement.ReplicaID(to[0].Node, 2)
	must(t, s, Command{Verb: Place, Group: 1, Epoch: 1, To: to})
	must(t, s, Command{Verb: SetState, NodeID: 1, State: NodeDraining})
	if after, _ := json.Marshal([]any{rows, present}); string(after) != string(saved) {
		t.Fatalf("%s\n%s", saved, after)
	}
}

// TestReadersBesideApply is for the race detector: readers see whole values while commands are
// applied.
func TestReadersBesideApply(t *testing.T) {
	s := founded(t, 4, 1, 2)
	stop, done := make(chan struct{}), make(chan string)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			view := s.View()
			for _, r := range view.Rows {
				if err := r.validate(); err != nil || len(view.Nodes) < 2 {
					done <- fmt.Sprintf("%d nodes, %+v: %v", len(view.Nodes), r, err)
					return
				}
			}
			s.Save()
			s.Node(1)
			s.NodeNamed("n2")
			s.Cluster()
		}
	}()
	for i := range uint32(50) {
		row, _ := s.Row(1)
		to := []Replica{{Node: 3 - row.Replicas[0].Node}}
		to[0].ID = placement.ReplicaID(to[0].Node, row.Epoch+1)
		n := node(uint64(100 + i))
		for _, c := range []Command{{Verb: Place, Group: 1, Epoch: row.Epoch, To: to}, {Verb: Reconciled, Group: 1, Epoch: row.Epoch + 1}, {Verb: Register, Node: &n}} {
			if r := s.applied(0, c.Encode()); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	close(stop)
	if fault := <-done; fault != "" {
		t.Fatal(fault)
	}
}

func TestTombstonesAreBounded(t *testing.T) {
	s := founded(t, 1, 1, 1)
	for i := range uint64(maxTombstones + 5) {
		n := node(i + 2)
		n.Name = "same"
		if r := s.applied(int64(i), (&Command{Verb: Register, Node: &n, Replace: true}).Encode()); r.Err != nil {
			t.Fatal(r.Err)
		}
		if testing.Short() && i > 50 {
			return
		}
	}
	if n := len(s.Removed()); n != maxTombstones {
		t.Fatalf("%d tombstones", n)
	}
	if _, ok := s.Node(2); ok {
		t.Fatal("the oldest is still there")
	}
}

// TestAnyCommands: through any commands two copies agree, one that is loaded continues like the
// others, a refused command changes nothing, and rows and nodes stay well formed.
func TestAnyCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := NewState(nil, nil), NewState(nil, nil)
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			c := anyCommand(t, a)
			r := apply(t, a, c)
			if s := b.applied(1000, c.Encode()); fmt.Sprint(s.Err) != fmt.Sprint(r.Err) {
				t.Fatalf("%+v: %v here, %v there", c, r.Err, s.Err)
			}
			if rapid.IntRange(0, 9).Draw(t, "reload") == 0 {
				saved := b.Save()
				b = NewState(nil, nil)
				if err := b.Load(saved); err != nil {
					t.Fatalf("load %s: %v", saved, err)
				}
			}
			if err := a.Audit(); err != nil {
				t.Fatalf("after %+v: %v", c, err)
			}
			if string(a.Save()) != string(b.Save()) {
				t.Fatalf("after %+v:\n%s\n%s", c, a.Save(), b.Save())
			}
		}
	})
}

func anyCommand(t *rapid.T, s *State) Command {
	c := Command{
		Verb:  rapid.SampledFrom([]Verb{Found, Register, Register, SetState, SetState, Remove, Place, Place, Place, Reconciled, Reconciled, SetReplicas, Ensure, Reseal}).Draw(t, "verb"),
		Force: rapid.Bool().Draw(t, "force"), Replace: rapid.Bool().Draw(t, "replace"),
		NodeID: uint64(rapid.IntRange(0, 6).Draw(t, "node")), Group: timer.ShardID(rapid.IntRange(0, 3).Draw(t, "group")),
		State: rapid.SampledFrom([]NodeState{NodeMember, NodeDraining, NodeDrained, NodeRemoved, "odd"}).Draw(t, "state"),
		Name:  "t", ClusterID: "c", Shards: 3, Replicas: rapid.IntRange(1, MaxReplicas+1).Draw(t, "replicas"), Nodes: nodes(2),
	}
	n := node(c.NodeID)
	n.Name, n.Starts = fmt.Sprintf("n%d", rapid.IntRange(1, 6).Draw(t, "name")), uint32(rapid.IntRange(1, 3).Draw(t, "starts"))
	c.Node = &n
	row, _ := s.Row(c.Group)
	c.Epoch = row.Epoch + uint32(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "epoch"))
	for range rapid.IntRange(0, 4).Draw(t, "replicas") {
		id := uint64(rapid.IntRange(1, 6).Draw(t, "on"))
		r, ok := row.Replica(id)
		if !ok {
			r = Replica{Node: id, ID: placement.ReplicaID(id, row.Epoch+1), Learner: c.Group == MetaGroup && rapid.Bool().Draw(t, "learner")}
		}
		c.To = append(c.To, r)
	}
	return c
}

func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"verb":"place","group":1,"epoch":1,"to":[{"node":1,"id":16777217}]}`))
	f.Add([]byte(`{"verb":"register","node":{"id":1,"name":"a"}}`))
	f.Add([]byte(`{"verb":"found","cluster":"c","shards":1,"replicas":1,"nodes":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := NewState(nil, nil)
		_, _ = s.Apply(0, data)
		if s.Version() == 0 {
			c := FoundCommand("c", 2, 2, nodes(3))
			s.applied(0, c.Encode())
		}
		before := string(s.Save())
		refused := s.Check(data)
		r, err := s.Apply(1, data)
		if err != nil && (!errors.Is(err, feature.ErrNewer) && !errors.Is(err, ErrMalformed) || refused == nil || string(s.Save()) != before) {
			t.Fatalf("%q cannot be applied (%v), the leader says %v", data, err, refused)
		}
		if err == nil && r.(Reply).Err != nil && string(s.Save()) != before {
			t.Fatalf("%q was refused (%v) and changed the state", data, r.(Reply).Err)
		}
		testkit.Must(t, s.Audit())
	})
}
