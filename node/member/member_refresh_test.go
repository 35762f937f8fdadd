package member

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/node/task"
	"carillon/ring"
	"carillon/transport/peer"
)

// directory answers for each address which members its node knows.
type directory struct {
	Peers
	Gossip
	knows map[string][]ring.Node
	asked []string
}

func (d *directory) CallAddr(_ context.Context, addr string, _ uint8, _ []byte) ([]byte, peer.Hello, error) {
	d.asked = append(d.asked, addr)
	list, known := d.knows[addr]
	if !known {
		return nil, peer.Hello{}, peer.ErrNotSent
	}
	body, err := json.Marshal(list)
	return body, peer.Hello{Node: uint64(addr[0] - '0'), Cluster: "c"}, err
}

func (d *directory) List() []ring.Member {
	return []ring.Member{{ID: 4, Peer: "4", State: ring.MemberAlive, Cluster: "c"}}
}

// TestRefreshGoesOn: nodes 2 and 3 were away as this one was, and know no more than it does. It
// asks on until somebody knows the node that it met, and keeps that answer whatever others say
// later. Found by the simulator (seed 1191043): two such nodes asked each other alone, for ever.
func TestRefreshGoesOn(t *testing.T) {
	old := []ring.Node{{ID: 1, Name: "a", Peer: "1"}, {ID: 2, Name: "b", Peer: "2"}, {ID: 3, Name: "c", Peer: "3"}, {ID: 5, Name: "e", Peer: "5"}}
	d := &directory{knows: map[string][]ring.Node{"2": old, "3": old, "4": append(old, ring.Node{ID: 9, Name: "i", Peer: "9"})}}
	began := time.Now()
	mono := func() time.Duration { return time.Since(began) }
	s := &Self{id: 1, tasks: task.NewGoroutines(mono), peers: d, gossip: d, log: slog.New(slog.DiscardHandler), clock: clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()}), liveness: newLiveness(0)}
	s.identity.Store(&Identity{NodeID: 1, ClusterID: "c"})
	m := newMember(s, ring.NewState(nil, nil))
	s.member.Store(m)
	found := ring.FoundCommand("c", 4, 3, old)
	if r, err := m.State.Apply(1, found.Encode()); err != nil || r.(ring.Reply).Err != nil {
		t.Fatal(r, err)
	}
	for _, id := range []uint64{2, 3} {
		s.liveness.touch(s.clock.Mono(), id, 1)
	}
	m.refresher.refresh(t.Context())
	if len(d.asked) > 0 {
		t.Errorf("%v are asked though no unknown node was met", d.asked)
	}
	for n := range 6 {
		s.unknownPeer.Store(9)
		m.refresher.refresh(t.Context())
		if _, known := s.refreshedNode(9); known != (n >= 2) {
			t.Errorf("after %d refreshes that asked %v: known %v", n+1, d.asked, known)
		}
	}
}
