package ring

import (
	"testing"
)

// TestFenceNeedsAMajority: of the meta group's voters, about the newest process, and none may speak
// for the process itself or twice.
func TestFenceNeedsAMajority(t *testing.T) {
	s := NewState(nil, nil)
	nodes := []Node{node(1), node(2), node(3), node(4), node(5)}
	for i := range nodes {
		nodes[i].Starts = 7
	}
	fence := func(starts uint32, refused ...uint64) Command {
		return Command{Verb: Fence, NodeID: 2, Starts: starts, Refused: refused}
	}
	refused(t, s, ErrNotFounded, fence(7, 1, 3, 4))
	must(t, s, FoundCommand("c", 4, 3, nodes))
	row, _ := s.Row(MetaGroup)
	if voters := row.Nodes(); len(voters) != 5 {
		t.Fatalf("voters %v", voters)
	}
	for _, few := range [][]uint64{nil, {1, 3}, {1, 3, 3, 3}, {1, 2, 3}, {1, 3, 9}} {
		refused(t, s, ErrNotGone, fence(7, few...))
	}
	refused(t, s, ErrNotGone, fence(6, 1, 3, 4))
	refused(t, s, ErrUnknownNode, Command{Verb: Fence, NodeID: 9, Starts: 7, Refused: []uint64{1, 3, 4}})
	version := s.Version()
	must(t, s, fence(7, 1, 3, 4))
	must(t, s, fence(7, 5, 3, 4)) // another asks
	if n, _ := s.Node(2); n.Fenced != 7 || s.Version() != version+1 {
		t.Errorf("fenced: %+v, version %d after %d", n, s.Version(), version)
	}
	again := NewState(nil, nil)
	if err := again.Load(s.Save()); err != nil || again.Hash() != s.Hash() || s.Audit() != nil {
		t.Errorf("read again: %v; %v", err, s.Audit())
	}
	must(t, s, Command{Verb: Register, Node: &nodes[1]}) // it lives
	if n, _ := s.Node(2); n.Fenced != 0 {
		t.Errorf("still fenced: %+v", n)
	}
	if s.NewestStart(2) != 7 || s.NewestStart(9) != 0 {
		t.Errorf("starts %d and %d", s.NewestStart(2), s.NewestStart(9))
	}
	must(t, s, Command{Verb: Remove, NodeID: 2, Force: true})
	refused(t, s, ErrRemoved, fence(7, 1, 3, 4))
}
