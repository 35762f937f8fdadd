package timers

import (
	"math/rand/v2"
	"testing"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// manyShards is an engine of so many shards.
type manyShards struct {
	backend.Engine
	n int
}

func (s manyShards) Shards() int { return s.n }

// Adds without a name share a shard for a moment, and use all alike over time.
func TestShardOfTheMoment(t *testing.T) {
	const p = 4
	at := func(ms int64) timer.ShardID {
		return shardAt(&web.Node{Salt: 77}, p, ms)
	}
	const even = noonMs &^ 1
	if a, b := at(even), at(even+1); a != b {
		t.Errorf("one moment, two shards: %d and %d", a, b)
	}
	count := make([]int, p)
	const windows = 100_000
	for i := range int64(windows) {
		count[at(noonMs+2*i)-1]++
	}
	for shard, n := range count {
		if fair := windows / p; n < fair*9/10 || n > fair*11/10 {
			t.Errorf("shard %d was chosen %d times of %d, fair were %d", shard+1, n, windows, fair)
		}
	}
}

// TestIdsLeaveWithTheirShardsHalves: the number of shards grows. Of timers without a name each new
// shard gets as many as of others.
func TestIdsLeaveWithTheirShardsHalves(t *testing.T) {
	const p, later = 4, 64
	n := &web.Node{Settings: web.Settings{Engine: manyShards{n: p}, Rand: rand.New(rand.NewPCG(1, 2)).Uint64}, Salt: 77}
	topic := &timer.Topic{Name: "orders"}
	count := make([]int, later)
	const windows = 100_000
	for i := range int64(windows) {
		var tr timerRequest
		tr.assignID(n, noonMs+2*i)
		if got, want := timer.ShardOf(topic, tr.id, p), shardAt(n, p, noonMs+2*i); got != want {
			t.Fatalf("%s is in shard %d, want %d", tr.id, got, want)
		}
		count[timer.ShardOf(topic, tr.id, later)-1]++
	}
	for shard, n := range count {
		if fair := windows / later; n < fair*8/10 || n > fair*12/10 {
			t.Errorf("shard %d has %d of %d, fair were %d", shard+1, n, windows, fair)
		}
	}
}
