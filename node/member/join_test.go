package member

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"carillon/ring"
	"carillon/transport/peer"
)

// TestRemovalMustBeProven: the word that the cluster has removed this node ends it only when the
// member that was asked says it, and has proven that it is a node.
func TestRemovalMustBeProven(t *testing.T) {
	asked := ring.Node{ID: 2, Name: "n2"}
	word := peer.Hello{Node: 2, Cluster: "c"}
	for name, tt := range map[string]struct {
		proven bool
		from   peer.Hello
		want   bool
	}{
		"with a key":         {true, word, true},
		"without":            {false, word, false},
		"another node":       {true, peer.Hello{Node: 3, Cluster: "c"}, false},
		"of another cluster": {true, peer.Hello{Node: 2, Cluster: "d"}, false},
		"of no cluster yet":  {true, peer.Hello{Node: 2}, false},
	} {
		s := certified(t)
		s.cfg.PeersProven, s.log = tt.proven, slog.New(slog.DiscardHandler)
		if got := s.member.Load().ending.believed(asked, tt.from, "was removed"); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestNewestPlaceCounts: a node that was given up asks for its place until a member has the new
// one: the first to answer may have an old copy.
func TestNewestPlaceCounts(t *testing.T) {
	s, _ := older(t)
	r := s.member.Load().registration
	cmd := ring.Command{Verb: ring.Register, Node: &ring.Node{ID: 4, Name: "n4"}}
	if _, err := r.State.Apply(9, cmd.Encode()); err != nil {
		t.Fatal(err)
	}
	rows := map[uint64]string{2: `{"epoch":3,"members":[{"node":1,"replica":1}]}`, 4: `{"epoch":7,"members":[{"node":1,"replica":300}]}`}
	s.Connect(scripted{answer: func(node uint64) (string, error) {
		return `{"cluster_id":"c","shards":1,"replicas":1,"meta":` + rows[node] + `}`, nil
	}}, crowd{of: 4})
	row, removed := r.askForPlace(t.Context())
	if removed || row == nil || row.Epoch != 7 {
		t.Errorf("removed %v, row %+v", removed, row)
	}
	rows[2], rows[4] = rows[4], rows[2]
	if row, _ := r.askForPlace(t.Context()); row == nil || row.Epoch != 7 {
		t.Errorf("row %+v", row)
	}
}

// crowd is a discovery that sees nodes 1 … of a cluster.
type crowd struct {
	quiet
	of int
}

func (c crowd) List() (list []ring.Member) {
	for id := range c.of {
		list = append(list, ring.Member{ID: uint64(id + 1), Name: fmt.Sprint("n", id+1), Peer: fmt.Sprint(id+1, ":7701"), Cluster: "c", State: ring.MemberAlive})
	}
	return list
}

// TestJoinAsksAllMembers: members whose copies of the cluster's state stand still never know of the
// joining node's place, and others refuse it. As the meta group may wait for that node, and they
// for the meta group, it hears of its place from any other.
func TestJoinAsksAllMembers(t *testing.T) {
	s, _ := older(t)
	s.id = 9
	if err := s.Change(func(id *Identity) { *id = Identity{NodeID: 9, Starts: 1} }); err != nil {
		t.Fatal(err)
	}
	s.SetMember(nil)
	asked := 0
	s.Connect(scripted{answer: func(node uint64) (string, error) {
		asked++
		switch {
		case node < 4:
			return "", errors.New("it has no disk left")
		case node < 6:
			return `{"cluster_id":"c","shards":1,"replicas":1}`, nil
		}
		return `{"cluster_id":"c","shards":1,"replicas":1,"meta":{}}`, nil
	}}, crowd{of: 6})
	s.cfg.BootstrapExpect, s.cfg.Join = 1, []string{"n1"}
	for step := 0; s.Identity().ClusterID == ""; step++ {
		before := asked
		_, _, err := s.membershipStep(t.Context())
		if err != nil || asked-before > joinTries {
			t.Fatalf("%v, %d were asked in one step", err, asked-before)
		}
		if step == 6 {
			t.Fatalf("after %d steps it has no place", step)
		}
	}
}

// TestNodeRegistersWhereItIsReached: a listener on every address of the machine is registered at
// the address of gossip.
func TestNodeRegistersWhereItIsReached(t *testing.T) {
	s := certified(t)
	s.Connect(nil, open{})
	s.SetAddresses("[::]:7700", "0.0.0.0:7701")
	if n, err := s.describe(); err != nil || n.HTTP != "10.0.0.1:7700" || n.Peer != "10.0.0.1:7701" {
		t.Errorf("%+v, %v", n, err)
	}
}
