package ring

import (
	"errors"
	"strings"
	"testing"

	"carillon/internal/placement"
	"carillon/timer"
)

// TestRemovalsLeaveMajorities: nobody is taken out of the cluster, by an operator or by an empty
// node of the same name, if a group were left without a majority of its replicas on nodes that are
// there.
func TestRemovalsLeaveMajorities(t *testing.T) {
	again := node(4)
	again.Name = "n1"
	for name, take := range map[string]Command{
		"removed":  {Verb: Remove, NodeID: 1, Force: true},
		"down":     {Verb: Remove, NodeID: 1, Down: true},
		"replaced": {Verb: Register, Node: &again, Replace: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := founded(t, 2, 3, 3)
			take.Heard = []uint64{1, 2}
			mayLose(t, s, 1, take.Heard, ErrMajority)
			refused(t, s, ErrMajority, take)
			if n, _ := s.Node(1); n.State != NodeMember {
				t.Errorf("%+v", n)
			}
			take.Heard = []uint64{2, 3}
			mayLose(t, s, 1, take.Heard, nil)
			must(t, s, take)
			mayLose(t, s, 1, take.Heard, nil) // it is removed
			mayLose(t, s, 2, take.Heard, ErrMajority)
			mayLose(t, s, 9, take.Heard, ErrUnknownNode)
			// The leader hears all that there are.
			refused(t, s, ErrMajority, Command{Verb: Remove, NodeID: 2, Force: true, Heard: []uint64{2, 3}})
			must(t, s, Command{Verb: Remove, NodeID: 2, Force: true, AcceptLoss: true, Heard: []uint64{3}})
		})
	}
}

// mayLose checks the answer to a node whose directory is damaged. It is the one to its removal.
func mayLose(t *testing.T, s *State, node uint64, heard []uint64, want error) {
	t.Helper()
	if err := s.MayLose(node, heard); !errors.Is(err, want) {
		t.Errorf("node %d: %v, want %v", node, err, want)
	}
}

// TestRemovalWhileAGroupMoves: nobody but the group knows how far its move is. It can do without
// the replica that is being made only.
func TestRemovalWhileAGroupMoves(t *testing.T) {
	s := founded(t, 1, 3, 3)
	four := node(4)
	must(t, s, Command{Verb: Register, Node: &four})
	must(t, s, Command{Verb: Place, Group: 1, Epoch: 1, To: []Replica{{Node: 2, ID: placement.ReplicaID(2, 1)}, {Node: 3, ID: placement.ReplicaID(3, 1)}, {Node: 4, ID: placement.ReplicaID(4, 2)}}})
	for id := uint64(1); id <= 3; id++ {
		r := apply(t, s, Command{Verb: Remove, NodeID: id, Force: true})
		if r.Err == nil || !strings.Contains(r.Err.Error(), "group 1 is being moved") {
			t.Errorf("node %d: %v", id, r.Err)
		}
	}
	must(t, s, Command{Verb: Remove, NodeID: 4, Force: true})
}

// TestWhoTakesANameFillsItsPlace: a group awaits its replica until it is settled without the one
// that is gone.
func TestWhoTakesANameFillsItsPlace(t *testing.T) {
	s := founded(t, 1, 3, 3)
	again := node(4)
	again.Name = "n1"
	must(t, s, Command{Verb: Register, Node: &again, Replace: true})
	awaited := func(want bool) {
		t.Helper()
		n, _ := s.NodeNamed("n1")
		if group, yes := s.Awaits(n); yes != want {
			t.Fatalf("group %d, %v", group, yes)
		}
		if n, _ = s.NodeNamed("n2"); n.ID != 2 {
			t.Fatal(n)
		}
		if _, yes := s.Awaits(n); yes {
			t.Error("another node fills it, too")
		}
	}
	for g := range timer.ShardID(2) {
		awaited(true)
		must(t, s, Command{Verb: Place, Group: g, Epoch: 1, To: []Replica{{Node: 2, ID: placement.ReplicaID(2, 1)}, {Node: 3, ID: placement.ReplicaID(3, 1)}, {Node: 4, ID: placement.ReplicaID(4, 2), Learner: g == 0}}})
		awaited(true)
		must(t, s, Command{Verb: Reconciled, Group: g, Epoch: 2})
	}
	awaited(false)
}
