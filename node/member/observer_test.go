package member

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/clocks"
	"carillon/node/task"
	"carillon/ring"
	"carillon/timer"
)

// TestNewLeaderIsReportedOnce: the heartbeat with which a node begins to lead a shard is news, the
// ones after it are not. Of the nodes that report a shard a silent one is asked last.
func TestNewLeaderIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := certified(t)
		var news []string
		m := s.NewMember(nil, nil, func(id timer.ShardID, node uint64) { news = append(news, fmt.Sprint(node, " leads ", id)) })
		for i, cmd := range []ring.Command{
			ring.FoundCommand("c", 4, 1, []ring.Node{{ID: 1, Name: "n1"}}), {Verb: ring.Register, Node: &ring.Node{ID: 2, Name: "n2"}},
			{Verb: ring.Register, Node: &ring.Node{ID: 3, Name: "n3"}},
		} {
			if r, err := m.State.Apply(int64(i), cmd.Encode()); err != nil || r.(ring.Reply).Err != nil {
				t.Fatal(r, err)
			}
		}
		s.SetMember(m)
		beat := func(node uint64, leads ...timer.ShardID) {
			h := heartbeat{WallMs: 1, Starts: 1, Leads: leads, Clock: heartbeatClock{Known: true}}
			if !s.Frame(node, h.encode()) {
				t.Fatal("not taken")
			}
		}
		want := func(silent bool, leaders []uint64, list ...string) {
			t.Helper()
			if !slices.Equal(news, list) {
				t.Errorf("news %q, want %q", news, list)
			}
			if got := m.LikelyLeaders(2); m.Silent(2) != silent || !slices.Equal(got[:len(leaders)], leaders) {
				t.Errorf("silent %v, likely leaders %v; want %v, %v", m.Silent(2), got, silent, leaders)
			}
			news = nil
		}
		pass := func(d time.Duration) { <-time.After(d) }
		beat(2, 1, 2)
		want(false, []uint64{2}, "2 leads 1", "2 leads 2")
		pass(heartbeatInterval)
		beat(2, 1, 2)
		beat(3, 4)
		want(false, []uint64{2}, "3 leads 4")
		pass(2 * heartbeatInterval)
		beat(3, 2, 4)
		want(true, []uint64{3, 2}, "3 leads 2")
		beat(2, 1, 2)
		want(false, []uint64{2, 3})
	})
}

// reporting is a node of a cluster whose nodes from the second on report that they lead shards.
func reporting(tb testing.TB, nodes, shards int) *Member {
	tb.Helper()
	clock := clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})
	s := &Self{id: 1, clock: clock, tasks: task.NewGoroutines(clock.Mono), liveness: newLiveness(0)}
	s.identity.Store(&Identity{ClusterID: "c", NodeID: 1})
	m := s.NewMember(nil, nil, nil)
	apply := func(cmd ring.Command) {
		if r, err := m.State.Apply(0, cmd.Encode()); err != nil || r.(ring.Reply).Err != nil {
			tb.Fatal(r, err)
		}
	}
	apply(ring.FoundCommand("c", shards, 1, []ring.Node{{ID: 1, Name: "n1"}}))
	s.SetMember(m)
	for node := 2; node <= nodes; node++ {
		apply(ring.Command{Verb: ring.Register, Node: &ring.Node{ID: uint64(node), Name: fmt.Sprint("n", node)}})
		h := heartbeat{WallMs: 1, Starts: 1, Clock: heartbeatClock{Known: true}}
		for id := node - 1; id <= shards; id += nodes - 1 {
			h.Leads = append(h.Leads, timer.ShardID(id))
		}
		s.Frame(uint64(node), h.encode())
	}
	return m
}

// BenchmarkLikelyLeaders is what a request costs whose leader no replica here knows.
func BenchmarkLikelyLeaders(b *testing.B) {
	for _, nodes := range []int{9, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			m := reporting(b, nodes, 16*nodes)
			for n := 0; b.Loop(); n++ {
				if got := m.LikelyLeaders(timer.ShardID(1 + n%(16*nodes))); len(got) == 0 {
					b.Fatal(got)
				}
			}
		})
	}
}

// TestLeadersFollowHeartbeats: which nodes list a shard is the same as by a look at all of their
// last heartbeats, whatever they list and however they come and go.
func TestLeadersFollowHeartbeats(t *testing.T) {
	const nodes, shards = 6, 5
	random := rand.New(rand.NewPCG(7, 9))
	l, now := newLiveness(0), time.Duration(0)
	for range 3000 {
		now += time.Duration(random.IntN(200)) * time.Millisecond
		node := uint64(1 + random.IntN(nodes))
		switch h := (heartbeat{Starts: uint32(random.IntN(3))}); random.IntN(12) {
		case 0:
			l.forget(node)
		case 1:
			l.touch(now, node, h.Starts)
		default:
			for id := timer.ShardID(1); id <= shards; id++ {
				if random.IntN(3) == 0 {
					h.Leads = append(h.Leads, id)
				}
			}
			l.receive(now, node, &h)
		}
		for id := timer.ShardID(1); id <= shards; id++ {
			var heard, silent []uint64
			for node := uint64(1); node <= nodes; node++ {
				s, ago, ok := l.last(now, node)
				switch leads := slices.Contains(s.last.Leads, id); {
				case !ok || !leads || ago >= downAfter:
				case ago < 2*heartbeatInterval:
					heard = append(heard, node)
				default:
					silent = append(silent, node)
				}
			}
			if got, want := l.leaders(now, id), append(heard, silent...); !slices.Equal(got, want) {
				t.Fatalf("shard %d: %v, want %v", id, got, want)
			}
		}
	}
}

// A node that is silent is not removed before it counts as down. Until then the refusal says for
// how long it is silent, and when to ask again.
func TestRemovalOfASilentNode(t *testing.T) {
	m := reporting(t, 3, 4)
	for _, tt := range []struct {
		node   uint64
		silent time.Duration
		want   string // "": it may be removed
	}{
		{2, 100 * time.Millisecond, "it was last heard 0.1 s ago: drain it first and wait until it is drained; if it is dead, ask again in 5 s, when it counts as down"},
		{2, 1300 * time.Millisecond, "it was last heard 1.3 s ago: drain it first and wait until it is drained; if it is dead, ask again in 4 s, when"},
		{2, 4990 * time.Millisecond, "ask again in 1 s, when"}, {2, downAfter, ""},
		{1, 0, "it answers: drain it first and wait until it is drained"},
	} {
		if tt.node == 2 {
			m.liveness.nodes[2].at = m.clock.Mono() - tt.silent
		}
		cmd := ring.Command{Verb: ring.Remove, NodeID: tt.node}
		err := m.decisions.checkRemoval(&cmd)
		if refused := errors.Is(err, ErrNotDrained); refused != (tt.want != "") || refused && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("node %d, silent for %v: %v, want … %s", tt.node, tt.silent, err, tt.want)
		}
		if cmd.Force = true; m.decisions.checkRemoval(&cmd) != nil {
			t.Errorf("node %d is not removed by force", tt.node)
		}
	}
}
