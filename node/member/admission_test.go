package member

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"carillon/internal/clocks"
	"carillon/node/task"
	"carillon/ring"
	"carillon/timer"
	"carillon/transport/peer"
)

// quiet is a discovery that sees nobody else.
type quiet struct{ self ring.Member }

func (q quiet) Addr() string { return q.self.Gossip }
func (q quiet) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}
func (q quiet) List() []ring.Member { return []ring.Member{q.self} }

// certified is node 1 of a cluster of n1, n2 and, removed, n3, whose nodes have certificates. It
// does not run.
func certified(t *testing.T) *Self {
	t.Helper()
	nodes := []ring.Node{{ID: 1, Name: "n1"}, {ID: 2, Name: "n2"}, {ID: 3, Name: "n3"}}
	clock := clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})
	s := &Self{cfg: Config{Name: "n1", NamesProven: true}, id: 1, gossip: quiet{ring.Member{ID: 1, Name: "n1"}},
		clock: clock, tasks: task.NewGoroutines(clock.Mono), liveness: newLiveness(0)}
	s.identity.Store(&Identity{ClusterID: "c", NodeID: 1})
	m := s.NewMember(nil, nil, nil)
	for i, cmd := range []ring.Command{
		ring.FoundCommand("c", 1, 1, nodes[:1]), {Verb: ring.Register, Node: &nodes[1]}, {Verb: ring.Register, Node: &nodes[2]},
		{Verb: ring.Remove, NodeID: 3},
	} {
		if r, err := m.State.Apply(int64(i), cmd.Encode()); err != nil || r.(ring.Reply).Err != nil {
			t.Fatal(r, err)
		}
	}
	s.SetMember(m)
	return s
}

// TestAdmitNamesWhoHasNotJoined: an operator reads why a node is refused that joins, or is refused
// by one; it passes by itself.
func TestAdmitNamesWhoHasNotJoined(t *testing.T) {
	for own, tt := range map[string]struct{ theirs, want string }{
		"":  {"c", "not yet: the node that refuses has not joined its cluster"},
		"c": {"", "not yet: it has not joined a cluster"},
		"d": {"c", `it belongs to cluster "c", the node that refuses to cluster "d": see --join of both`},
	} {
		s := certified(t)
		s.identity.Store(&Identity{ClusterID: own, NodeID: 1})
		if err := s.Admit(peer.Hello{Cluster: tt.theirs, Node: 2, Name: "n2", Lane: peer.LaneControl}); err == nil || err.Error() != tt.want {
			t.Errorf("%q, %q: %v", own, tt.theirs, err)
		}
	}
}

// A certificate speaks for the node of its name only, and a removed node is not heard any more.
func TestAdmit(t *testing.T) {
	s := certified(t)
	as := func(id uint64, name string, lane peer.Lane) peer.Hello {
		return peer.Hello{Cluster: "c", Node: id, Name: name, Lane: lane}
	}
	for _, c := range []struct {
		h  peer.Hello
		no string
	}{
		{as(2, "n2", peer.LaneControl), ""},
		{as(2, "n2", peer.LaneOnce), ""},
		{as(9, "n9", peer.LaneOnce), ""}, // it wants to join
		{as(3, "n3", peer.LaneOnce), ""}, // it asks whether it was removed
		{as(9, "n9", peer.LaneControl), "not a member"},
		{as(3, "n3", peer.LaneControl), "removed"},
		{as(3, "n3", peer.LaneCall), "removed"},
		{as(3, "n3", peer.LaneBulk), "removed"},
		{as(2, "n3", peer.LaneControl), "is n2, not n3"},
		{as(2, "n3", peer.LaneOnce), "is n2, not n3"},
		{as(1, "n2", peer.LaneOnce), "is n1, not n2"},
		{as(3, "n2", peer.LaneOnce), "is n3, not n2"},
	} {
		if err := s.Admit(c.h); (err == nil) != (c.no == "") || err != nil && !strings.Contains(err.Error(), c.no) {
			t.Errorf("%+v: %v, want %q", c.h, err, c.no)
		}
	}
	if s.unknownPeer.Load() != 9 {
		t.Error("a stranger was not noticed")
	}
	// As others have it.
	s.refreshed.Store(&[]ring.Node{{ID: 9, Name: "n9", Peer: "10.0.0.9:7701"}, {ID: 2, Name: "other"}, {ID: 3, Name: "n3"}})
	for h, no := range map[peer.Hello]string{
		as(9, "n9", peer.LaneControl): "", as(9, "n8", peer.LaneOnce): "is n9, not n8", as(10, "n10", peer.LaneControl): "not a member",
		// The knowledge of its own copy counts.
		as(2, "other", peer.LaneControl): "is n2, not other", as(3, "n3", peer.LaneControl): "removed",
	} {
		if err := s.Admit(h); (err == nil) != (no == "") || err != nil && !strings.Contains(err.Error(), no) {
			t.Errorf("confirmed: %+v: %v, want %q", h, err, no)
		}
	}
	if got := s.AddressOf(9); got != "10.0.0.9:7701" {
		t.Error(got)
	}
	if _, err := s.answerMembers(as(3, "n3", peer.LaneOnce)); err == nil {
		t.Error("who was removed is told who the members are")
	}
	if list, err := s.answerMembers(as(2, "n2", peer.LaneOnce)); err != nil || strings.Count(string(list), `"id"`) != 2 {
		t.Errorf("%s %v", list, err)
	}
	s.cfg.NamesProven = false // then names are unproven
	if err := s.Admit(as(2, "renamed", peer.LaneControl)); err != nil {
		t.Error(err)
	}
}

// A question by itself, which strangers may ask as well, is no way to be heard as a member, nor to
// join in another's name.
func TestCallsOfStrangers(t *testing.T) {
	s := certified(t)
	for _, from := range []peer.Hello{
		{Node: 2, Name: "n2", Lane: peer.LaneOnce}, {Node: 9, Name: "n9", Lane: peer.LaneCall}, {Node: 3, Name: "n3", Lane: peer.LaneCall},
	} {
		for _, method := range []uint8{1, methodPropose} {
			if _, _, err := s.Call(t.Context(), from, method, nil); err == nil || !strings.Contains(err.Error(), "as a member") {
				t.Errorf("%+v calls %d: %v", from, method, err)
			}
		}
	}
	for _, n := range []ring.Node{{ID: 1, Name: "n1"}, {ID: 2, Name: "n1"}, {ID: 9, Name: "n1"}, {ID: 1, Name: "n2"}} {
		body, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Call(t.Context(), peer.Hello{Node: 2, Name: "n2", Lane: peer.LaneOnce}, methodJoin, body)
		if err == nil || !strings.Contains(err.Error(), "asks for node") || errors.Is(err, timer.ErrNoLeader) {
			t.Errorf("node 2 registers %+v: %v", n, err)
		}
	}
}

// TestWhereANodeIsHeard: only a node whose address is a name is looked for where gossip reaches it.
// One that has given an IP listens there alone.
func TestWhereANodeIsHeard(t *testing.T) {
	for _, tt := range [][3]string{
		{"n1.example:7701", "10.0.0.1:7702", "10.0.0.1:7701"}, {"n1:7701", "[fd00::1]:7702", "[fd00::1]:7701"},
		{"10.0.0.1:7701", "10.1.0.1:7702", ""}, {"[fd00::1]:7701", "10.1.0.1:7702", ""}, {"n1:7701", "", ""}, {"", "10.0.0.1:7702", ""},
	} {
		if got := heardAt(ring.Node{Peer: tt[0], Gossip: tt[1]}); got != tt[2] {
			t.Errorf("%q, gossip at %q: %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}
