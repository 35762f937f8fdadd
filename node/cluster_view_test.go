package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"carillon/internal/vfs"
	"carillon/node/member"
	"carillon/ring"
	"carillon/test/testkit"
	"carillon/transport/api/backend"
)

// A drained node does not keep a cluster from being healthy, any other that is not alive does.
func TestHealthyWithADrainedNode(t *testing.T) {
	ok, moving := backend.ShardRow{State: backend.ShardOK}, backend.ShardRow{State: backend.ShardMoving}
	for _, tt := range []struct {
		state  backend.NodeState
		shards []backend.ShardRow
		want   bool
	}{
		{backend.NodeAlive, []backend.ShardRow{ok, ok}, true}, {backend.NodeDrained, []backend.ShardRow{ok, ok}, true},
		{backend.NodeDraining, []backend.ShardRow{ok}, false}, {backend.NodeSuspect, []backend.ShardRow{ok}, false}, {backend.NodeDown, []backend.ShardRow{ok}, false},
		{backend.NodeDrained, []backend.ShardRow{ok, moving}, false}, {backend.NodeAlive, []backend.ShardRow{moving, ok}, false}, {backend.NodeAlive, nil, false},
	} {
		v := backend.ClusterView{Nodes: []backend.NodeView{{State: backend.NodeAlive}, {State: tt.state}}, Shards: tt.shards}
		if healthy(&v) != tt.want {
			t.Errorf("%s, %v: healthy %v", tt.state, tt.shards, !tt.want)
		}
	}
	for _, state := range []backend.ShardState{backend.ShardMoving, backend.ShardDegraded, backend.ShardNoQuorum} {
		v := backend.ClusterView{Shards: []backend.ShardRow{ok, {State: state}}, Resharding: &backend.ReshardingView{}}
		if healthy(&v) != (state == backend.ShardMoving) {
			t.Errorf("a shard is %s while shards double: healthy %v", state, healthy(&v))
		}
	}
}

// TestFoundedIsHealthyWithLeaders: a cluster that was founded just now is healthy once each of its
// shards has a leader, and not while they are still to be elected.
func TestFoundedIsHealthyWithLeaders(t *testing.T) {
	n := startUnready(t, t.TempDir(), func(c *Config) { c.Shards = 64 })
	var v struct {
		Healthy bool
		Nodes   []struct{ Leads int }
	}
	for deadline := time.Now().Add(patience); !v.Healthy && time.Now().Before(deadline); {
		if code, body := n.call("GET", "/v1/cluster", ""); code != 200 || json.Unmarshal([]byte(body), &v) != nil {
			t.Fatal(code, body)
		}
	}
	if !v.Healthy || v.Nodes[0].Leads != 64 {
		t.Errorf("healthy %v, and leads %v", v.Healthy, v.Nodes)
	}
}

// TestStateOfAShard: what its replicas are, and how they are heard, say how a shard is.
func TestStateOfAShard(t *testing.T) {
	heard, suspect, down := member.PeerView{Starts: 1}, member.PeerView{Starts: 1, Presence: member.Suspect}, member.PeerView{Starts: 1, Presence: member.Down}
	unheard := member.PeerView{Presence: member.Suspect} // as a process sees others in its first seconds
	for _, tt := range []struct {
		name     string
		replicas int // the nodes 1, 2, 3
		nodes    []member.PeerView
		moving   bool
		leader   uint64
		lacks    bool
		want     backend.ShardState
	}{
		{"all are heard", 3, []member.PeerView{heard, heard, heard}, false, 1, false, backend.ShardOK},
		{"one is silent", 3, []member.PeerView{heard, suspect, heard}, false, 1, false, backend.ShardDegraded},
		{"the leader is silent", 3, []member.PeerView{suspect, heard, heard}, false, 1, false, backend.ShardDegraded},
		{"it has no leader", 3, []member.PeerView{heard, heard, heard}, false, 0, true, backend.ShardDegraded},
		{"its leadership goes over", 3, []member.PeerView{heard, heard, heard}, false, 0, false, backend.ShardOK},
		{"two are down", 3, []member.PeerView{heard, down, down}, false, 0, true, backend.ShardNoQuorum},
		{"this process has just begun", 3, []member.PeerView{heard, unheard, unheard}, false, 0, true, backend.ShardDegraded},
		{"one of three was removed and not placed again", 2, []member.PeerView{heard, heard, heard}, false, 1, false, backend.ShardDegraded},
		{"it is being placed", 3, []member.PeerView{heard, heard, heard}, true, 1, false, backend.ShardMoving},
		{"two nodes cannot hold three", 2, []member.PeerView{heard, heard}, false, 1, false, backend.ShardOK},
		{"of four nodes three hold it", 3, []member.PeerView{heard, heard, heard, heard}, false, 1, false, backend.ShardOK},
	} {
		row := ring.Assignment{Settled: !tt.moving}
		for i := range tt.replicas {
			row.Replicas = append(row.Replicas, ring.Replica{Node: uint64(i + 1)})
		}
		seen := peers{seen: map[uint64]member.PeerView{}, each: min(3, len(tt.nodes))}
		for i, n := range tt.nodes {
			seen.seen[uint64(i+1)] = n
		}
		if got := shardState(&row, lead{tt.leader, tt.lacks}, seen); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// nearlyFull is a disk with a KiB left.
type nearlyFull struct{ vfs.FS }

func (nearlyFull) Free(string) (uint64, error) { return 1 << 10, nil }

// TestLowDiskShows in the view of the cluster: it is why adds are refused.
func TestLowDiskShows(t *testing.T) {
	cfg := Config{DataDir: t.TempDir(), HTTP: "127.0.0.1:0", Name: "n1", Shards: 1, Version: "test", Logger: slog.New(slog.DiscardHandler)}
	n, err := New(cfg)
	testkit.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.runOn(ctx, nearlyFull{vfs.OS{}}, &n.cfg) }()
	defer func() {
		stop()
		testkit.Must(t, <-done)
	}()
	until(t, "the node serves", func() bool { return n.AwaitReady(ctx) })
	r := &running{t: t, node: n, base: "http://" + n.Addr()}
	r.awaitBody(200, "/v1/cluster", `"low_disk":true`)
	if got := r.must(200, "POST", "/v1/cluster/shards?dry_run=true", `{"shards":2}`); !strings.Contains(got, `"waits_for":"disk"`) || !strings.Contains(got, `"shard":1`) {
		t.Errorf("a growth would wait for room on the disk: %s", got)
	}
	r.must(503, "POST", "/v1/topics/orders/timers", `{"delay":"1h","callback":{"url":"http://127.0.0.1:1/"}}`)
}

// TestDryRunOfAGrowthNamesTheLackOfMemory as the growth does once it is asked for.
func TestDryRunOfAGrowthNamesTheLackOfMemory(t *testing.T) {
	n := start(t, t.TempDir(), func(c *Config) { c.MemoryLimit = 256 << 20 })
	dryRun := func() string { return n.must(200, "POST", "/v1/cluster/shards?dry_run=true", `{"shards":8}`) }
	if got := dryRun(); strings.Contains(got, "waits_for") {
		t.Errorf("with memory to spare: %s", got)
	}
	full := make([]byte, 128<<20)
	runtime.GC() // the collector's figure is what a node goes by
	until(t, "the node lacks memory", func() bool { return strings.Contains(dryRun(), `"waits_for":"memory","shard":1`) })
	n.must(202, "POST", "/v1/cluster/shards", `{"shards":8}`)
	n.awaitBody(200, "/v1/cluster", `"waits_for":"memory"`)
	runtime.KeepAlive(full)
}

// A node by itself is a healthy cluster of one, which cannot be drained or removed.
func TestClusterOfOne(t *testing.T) {
	n := start(t, t.TempDir(), func(c *Config) { c.Name = "alone" })
	var v struct {
		ClusterID string `json:"cluster_id"`
		Version   string
		Healthy   bool
		Nodes     []struct {
			Name, HTTP, State string
			Leads, Replicas   int
			Offset            *int `json:"clock_offset_ms"`
		}
		Shards []struct {
			Shard, Epoch  int
			Leader, State string
			Replicas      []string
		}
	}
	if err := json.Unmarshal([]byte(n.must(200, "GET", "/v1/cluster", "")), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.ClusterID) != 32 || v.Version != "test" || !v.Healthy || len(v.Nodes) != 1 || len(v.Shards) != 4 {
		t.Fatalf("got %+v", v)
	}
	if a := v.Nodes[0]; a.Name != "alone" || a.HTTP != n.node.Addr() || a.State != "alive" || a.Leads != 4 || a.Replicas != 4 || a.Offset == nil {
		t.Errorf("node %+v", a)
	}
	for i, s := range v.Shards {
		if s.Shard != i+1 || s.Leader != "alone" || s.State != "ok" || len(s.Replicas) != 1 || s.Epoch == 0 {
			t.Errorf("shard %+v", s)
		}
	}
	n.must(200, "GET", "/v1/cluster/shards/4", "")
	n.must(404, "GET", "/v1/cluster/shards/5", "")
	// What a growth takes for good: 12 more replicas of 0.2 MB, and of the tables as much as their
	// handles take.
	var needs backend.GrowthNeeds
	err := json.Unmarshal([]byte(n.must(200, "POST", "/v1/cluster/shards?dry_run=true", `{"shards":16}`)), &needs)
	if more := needs.LastingBytes - 2_400_000; err != nil || more < 1000 || more > 50_000 {
		t.Error(needs, err)
	}
	for _, shards := range []string{"3", "-1", "2147483648"} {
		want := "there are 4, and there is no way back to fewer; ask for 8, 16, 32, … or 4096, not " + shards
		if got := n.must(422, "POST", "/v1/cluster/shards", `{"shards":`+shards+`}`); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	n.must(404, "GET", "/v1/cluster/shards/0", "")
	for _, ask := range [][2]string{{"POST", "/drain"}, {"DELETE", ""}, {"DELETE", "?force=true"}} {
		if got := n.must(409, ask[0], "/v1/cluster/nodes/alone"+ask[1], ""); !strings.Contains(got, "no other node") || !strings.Contains(got, "not_drained") {
			t.Errorf("%v: %s", ask, got)
		}
		n.must(404, ask[0], "/v1/cluster/nodes/nobody"+ask[1], "")
	}
	n.must(200, "POST", "/v1/cluster/nodes/alone/resume", "")
	n.must(404, "POST", "/v1/cluster/nodes/nobody/resume", "")
}
