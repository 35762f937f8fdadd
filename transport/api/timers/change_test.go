package timers

import (
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
		return shardAt(&web.Node{Settings: web.Settings{Engine: manyShards{n: p}}, Salt: 77}, ms)
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
