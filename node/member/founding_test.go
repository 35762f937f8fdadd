package member

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"carillon/internal/clocks"
	"carillon/node/task"
	"carillon/ring"
	"carillon/test/memfs"
	"carillon/test/testkit"
	"carillon/transport/peer"
)

// founders are three nodes that found a cluster. They find each other by gossip, and answer each
// other.
type founders []*Self

// founderGossip is one founder's discovery, and its way to the others.
type founderGossip struct {
	Peers
	all founders
	at  int
	met map[uint64]bool
}

func (founderGossip) Ready() <-chan struct{} { return closed }
func (founderGossip) Addr() string           { return "here" }
func (g founderGossip) List() (list []ring.Member) {
	for _, s := range g.all {
		m := ring.Member{ID: s.id, Name: s.cfg.Name, Peer: s.cfg.Name, Expect: 3, Shards: 4, Replicas: 3}
		if m.Cluster = s.Identity().ClusterID; m.Cluster != "" {
			m.Expect = 0
		}
		list = append(list, m)
	}
	return list
}

func (g founderGossip) CallAddr(ctx context.Context, addr string, method uint8, body []byte) ([]byte, peer.Hello, error) {
	for _, s := range g.all {
		if s.cfg.Name == addr {
			answer, _, err := s.Call(ctx, g.all[g.at].Hello(), method, body)
			return answer, s.Hello(), err
		}
	}
	return nil, peer.Hello{}, peer.ErrNotSent
}

func (g founderGossip) Met(node uint64) (uint32, uint64, bool) { return 1, 1, g.met[node] }

func newTestFounders(t *testing.T) (list founders, met map[uint64]bool) {
	t.Helper()
	met = map[uint64]bool{}
	clock := clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})
	for i, name := range []string{"n1", "n2", "n3"} {
		fsys := memfs.New()
		testkit.Must(t, fsys.MkdirAll("data"))
		s := &Self{id: uint64(i + 1), log: slog.New(slog.DiscardHandler), clock: clock, tasks: task.NewGoroutines(clock.Mono), liveness: newLiveness(0),
			cfg: Config{Name: name, FS: fsys, Dir: "data", BootstrapExpect: 3, Shards: 4, Replicas: 3, Join: []string{"n1"}, Random: func(b []byte) { b[0] = byte(i) }}}
		s.identity.Store(&Identity{Version: identityVersion, NodeID: s.id, Starts: 1})
		list = append(list, s)
	}
	for i, s := range list {
		g := founderGossip{all: list, at: i, met: met}
		s.Connect(g, g)
	}
	return list, met
}

// TestFoundersStoreOnePlan: the one with the lowest id begins, and the others store its plan when they
// join, whoever answers them.
func TestFoundersStoreOnePlan(t *testing.T) {
	list, _ := newTestFounders(t)
	for _, at := range []int{1, 2} {
		if _, waiting, err := list[at].membershipStep(t.Context()); err != nil || waiting != "founding: waiting for node n1 (n1) to begin" {
			t.Errorf("%q, %v", waiting, err)
		}
	}
	for _, s := range list {
		testkit.Must(t, s.EnsureMembership(t.Context()))
		id, err := ReadIdentity(s.cfg.FS, "data")
		first := list[0].Identity()
		if err != nil || id.ClusterID != first.ClusterID || len(id.AcceptedPlan.Nodes) != 3 || memberOf(id.Meta, s.id) == 0 || id.Shards != 4 || id.Replicas != 3 {
			t.Errorf("%s: %+v, %v", s.cfg.Name, id, err)
		}
	}
	stranger := peer.Hello{Node: 9, Name: "n9"}
	body, _ := json.Marshal(ring.Node{ID: 9, Name: "n9"})
	if answer, _, err := list[0].Call(t.Context(), stranger, methodJoin, body); err == nil {
		t.Errorf("a node that is not in the plan gets %s", answer)
	}
}

// TestFoundedOnceAllHaveThePlan: the meta group gets its first entry only when all founders have
// connected to its leader. Once it is founded, no node gets the plan.
func TestFoundedOnceAllHaveThePlan(t *testing.T) {
	list, met := newTestFounders(t)
	s := list[0]
	testkit.Must(t, s.EnsureMembership(t.Context()))
	state := ring.NewState(nil, nil)
	m := newMember(s, state)
	host := &metaHost{state: state}
	m.Attach(host)
	s.SetMember(m)
	for _, node := range []uint64{0, 2} {
		met[node] = true
		if m.controller.foundState(t.Context()); host.made != 0 {
			t.Fatalf("founded with %v", met)
		}
	}
	met[3] = true
	m.controller.foundState(t.Context())
	if id, _, _ := state.Cluster(); id != s.Identity().ClusterID || len(state.Nodes()) != 3 {
		t.Errorf("founded is %q, of %v", id, state.Nodes())
	}
	if plan := s.unfounded(m); plan != nil {
		t.Errorf("the plan is given away: %v", plan)
	}
}
