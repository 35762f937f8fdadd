package api

import "testing"

// Adds without a name share a shard for a moment, and use all alike over time.
func TestShardOfTheMoment(t *testing.T) {
	h := newHarness(t)
	s, p := h.server, h.engine.Shards()
	const even = noonMs &^ 1
	if a, b := s.shardAt(even), s.shardAt(even+1); a != b {
		t.Errorf("one moment, two shards: %d and %d", a, b)
	}
	count := make([]int, p)
	const windows = 100_000
	for i := range int64(windows) {
		count[s.shardAt(noonMs+2*i)-1]++
	}
	for shard, n := range count {
		if fair := windows / p; n < fair*9/10 || n > fair*11/10 {
			t.Errorf("shard %d was chosen %d times of %d, fair were %d", shard+1, n, windows, fair)
		}
	}
}
