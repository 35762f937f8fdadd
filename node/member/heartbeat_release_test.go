package member

import (
	"encoding/hex"
	"reflect"
	"testing"

	"carillon/ring"
	"carillon/timer"
)

// TestHeartbeatOfReleases: this build decodes the heartbeat of each release so far to the values
// that were sent. It writes the last of each value; a build that writes another adds its own.
func TestHeartbeatOfReleases(t *testing.T) {
	said := heartbeat{
		WallMs: 5000, Clock: heartbeatClock{Known: true, AheadMs: -7, Steps: 2, Sure: true}, Starts: 2, Cordoned: true, Unhealthy: "x", Leads: []timer.ShardID{1, 5},
		Limits:  ring.AllocationReport{WallMs: 5007, Seq: 2<<32 + 7, Received: []ring.ReportRef{{Node: 3, Seq: 9}}, Parts: []ring.Part{{Topic: 3, Leases: 1}, {Topic: 1 << 31, Leases: 4000}}},
		LowDisk: timer.LowDiskError{Node: 9, Name: "n9", Path: "/d", Free: 100, Limit: 300},
	}
	unlisted := heartbeat{WallMs: 5000, Clock: heartbeatClock{Known: true}, Starts: 1, Leads: []timer.ShardID{3}, Limits: ring.AllocationReport{WallMs: 5000, Seq: 1<<32 + 2, Unlisted: true}}
	releases := []struct {
		level, frame string
		said         *heartbeat
		written      bool // by this build
	}{
		{"1", "b1904e020101780d02000102010400008780808020010309020301fdffffff07a01f0964ac02026e39022f64", &said, true},
		{"1", "b1904e010000000000000103000482808080100000", &unlisted, true},
	}
	for _, r := range releases {
		frame, err := hex.DecodeString(r.frame)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeHeartbeat(frame); err != nil || !reflect.DeepEqual(got, r.said) {
			t.Errorf("of level %s: %+v, %v, want %+v", r.level, got, err, r.said)
		}
		if now := hex.EncodeToString(r.said.encode()); r.written && now != r.frame {
			t.Errorf("written as %s", now)
		}
	}
}
