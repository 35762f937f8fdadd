package member

import (
	"maps"
	"testing"
	"time"

	"carillon/timer"
)

// TestShardSizesAreReported: a report arrives whole or not at all, counts until its node has been
// silent for a while, and is due once a second. A node without large shards has nothing to report.
func TestShardSizesAreReported(t *testing.T) {
	if encodeSizes(nil) != nil {
		t.Error("a node with small shards reports something")
	}
	want := map[timer.ShardID]int64{3: 5 << 30, 70: 8 << 20}
	frame := encodeSizes(want)
	got, ok := decodeSizes(frame[1:])
	if frame[0] != sizesFrame || !ok || !maps.Equal(got, want) {
		t.Fatalf("%x: %v, %v", frame, got, ok)
	}
	for cut := 1; cut < len(frame); cut++ {
		if got, ok := decodeSizes(frame[1:cut]); ok {
			t.Errorf("cut at %d: %v", cut, got)
		}
	}
	if _, ok := decodeSizes([]byte{0xFF, 0xFF, 0xFF, 0x7F}); ok {
		t.Error("a report of more shards than there can be is believed")
	}
	var s shardSizes
	s.record(time.Second, 7, want)
	s.record(3*time.Second, 8, map[timer.ShardID]int64{4: 9 << 20})
	if all := s.all(4 * time.Second); len(all) != 3 || all[3] != 5<<30 || all[4] != 9<<20 {
		t.Errorf("%v", all)
	}
	if all := s.all(time.Second + downAfter); len(all) != 1 || all[4] != 9<<20 {
		t.Errorf("after a while without the first node: %v", all)
	}
	if !s.due(time.Second) || s.due(time.Second+sizesInterval-1) || !s.due(time.Second+sizesInterval) {
		t.Error("a report is due once a second")
	}
}
