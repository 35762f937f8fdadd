package member

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"carillon/ring"
	"carillon/test/memfs"
	"carillon/test/testkit"
	"carillon/timer"
)

// growingHost notes what it is told, and what the identity on disk says at that moment.
type growingHost struct {
	Host
	fsys   *memfs.FS
	shards int
	said   []string
}

func (h *growingHost) Shards() int                         { return h.shards }
func (h *growingHost) Leads(timer.ShardID) bool            { return false }
func (h *growingHost) Leader(timer.ShardID) (uint64, bool) { return 0, false }

func (h *growingHost) Grow(shards, parents int) {
	id, err := ReadIdentity(h.fsys, "data")
	h.said = append(h.said, fmt.Sprintf("grow %d/%d, on disk %d/%d %v", shards, parents, id.Shards, id.FirstShards, err))
	h.shards = shards
}

// grower is node 1 of a cluster of itself with two shards.
func grower(t *testing.T) (m *Member, h *growingHost) {
	t.Helper()
	s := certified(t)
	h = &growingHost{fsys: memfs.New(), shards: 2}
	s.cfg.FS, s.cfg.Dir, s.log = h.fsys, "data", slog.New(slog.DiscardHandler)
	s.identity.Store(&Identity{ClusterID: "c", NodeID: 1, Shards: 2, Replicas: 1})
	m = s.NewMember(nil, nil, nil)
	m.Attach(h)
	decide(t, m, ring.FoundCommand("c", 2, 1, []ring.Node{{ID: 1, Name: "n1"}}))
	return m, h
}

func numbers(m *Member) (now, first int, steady bool) {
	now, first = m.Shards()
	return now, first, m.Steady()
}

func decide(t *testing.T, m *Member, cmd ring.Command) {
	t.Helper()
	if r, err := m.State.Apply(1, cmd.Encode()); err != nil || r.(ring.Reply).Err != nil {
		t.Fatal(r, err)
	}
}

// TestNodeCountsWithMoreShards: the identity on disk has a number of shards before the host does.
// As long as it cannot be stored the host stays as it is, and no read of many shards is right.
func TestNodeCountsWithMoreShards(t *testing.T) {
	m, h := grower(t)
	counts := func(now, first int, steady bool) {
		t.Helper()
		if n, f, s := numbers(m); n != now || f != first || s != steady {
			t.Fatalf("it counts with %d shards, %d at first, steady %t; want %d, %d, %t", n, f, s, now, first, steady)
		}
	}
	if !m.followShards(t.Context()) || len(h.said) != 0 {
		t.Fatal(h.said)
	}
	counts(2, 2, true)
	decide(t, m, ring.Command{Verb: ring.SetShards, Shards: 8})
	counts(2, 2, false)
	if m.followShards(t.Context()) || len(h.said) != 0 { // there is no directory
		t.Fatal(h.said)
	}
	counts(2, 2, false)
	testkit.Must(t, h.fsys.MkdirAll("data"))
	if !m.followShards(t.Context()) {
		t.Fatal("it does not count with 4 shards")
	}
	counts(4, 2, true)
	for shard := timer.ShardID(1); shard <= 2; shard++ {
		decide(t, m, ring.Command{Verb: ring.Divide, Group: shard, Epoch: 1})
		if from := m.holder(shard + 2); from != shard {
			t.Errorf("the timers of shard %d are in %d", shard+2, from)
		}
		decide(t, m, ring.Command{Verb: ring.Reconciled, Group: shard + 2, Epoch: 1})
	}
	m.followShards(t.Context())
	counts(8, 2, true)
	h.shards = 16 // it has applied that a shard is divided before this node's copy has the number
	counts(8, 2, false)
	h.shards = 8
	for shard := timer.ShardID(1); shard <= 4; shard++ {
		decide(t, m, ring.Command{Verb: ring.Divide, Group: shard, Epoch: 1})
		decide(t, m, ring.Command{Verb: ring.Reconciled, Group: shard + 4, Epoch: 1})
	}
	m.followShards(t.Context())
	counts(8, 2, true)
	if want := []string{"grow 4/2, on disk 4/2 <nil>", "grow 8/4, on disk 8/2 <nil>", "grow 8/8, on disk 8/2 <nil>"}; !slices.Equal(h.said, want) {
		t.Errorf("%q, want %q", h.said, want)
	}
}

// TestStartWhileShardsDouble: a process that begins on a directory of a cluster that has grown does
// not read many shards before its host knows which of them are being divided.
func TestStartWhileShardsDouble(t *testing.T) {
	m, h := grower(t)
	testkit.Must(t, h.fsys.MkdirAll("data"))
	decide(t, m, ring.Command{Verb: ring.SetShards, Shards: 4})
	m.followShards(t.Context())
	again := m.NewMember(nil, nil, nil)
	again.Attach(h)
	if now, first, steady := numbers(again); now != 4 || first != 2 || steady {
		t.Fatal(now, first, steady)
	}
	again.State = m.State
	if !again.followShards(t.Context()) || h.said[len(h.said)-1] != "grow 4/2, on disk 4/2 <nil>" || len(h.said) != 2 {
		t.Fatal(h.said)
	}
	if now, first, steady := numbers(again); now != 4 || first != 2 || !steady {
		t.Fatal(now, first, steady)
	}
}

// TestStoredNumberOfShardsNeverShrinks: after a start a node's copy of the meta group's state can
// be older than what the process before had stored, and had records of in its log. Found by the
// simulator.
func TestStoredNumberOfShardsNeverShrinks(t *testing.T) {
	m, h := grower(t)
	testkit.Must(t, h.fsys.MkdirAll("data"))
	testkit.Must(t, m.Change(func(id *Identity) { id.Shards, id.FirstShards = 4, 2 }))
	if !m.followShards(t.Context()) || len(h.said) != 0 || m.Identity().Shards != 4 {
		t.Errorf("its host is told %q, and %d are stored", h.said, m.Identity().Shards)
	}
}
