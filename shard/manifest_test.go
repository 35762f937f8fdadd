package shard

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"carillon/shard/record"
	"carillon/shard/repair"
	"carillon/timer"
	"carillon/wal"
)

// TestManifestIsWritten: a running host logs its manifest at each start and each new generation,
// and the manifest matches its log.
func TestManifestIsWritten(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.Log.SegmentBytes, c.Log.GenBytes = 4<<10, 16<<10 })
	for i := range 200 {
		r.add(fmt.Sprint("t", i), time.Hour)
		if i%10 == 0 {
			r.pass(50 * time.Millisecond)
		}
	}
	r.pass(time.Second)
	reads := []*repair.DryRun{repair.NewDryRun(0, nil), repair.NewDryRun(1, nil)}
	counted, gens := 0, map[uint64]bool{}
	_, err := wal.ScanDamaged(r.fs, filepath.Join("data", "wal", "0"), func(pos wal.Position, rec wal.Record) error {
		if rec.Type != wal.RecordNodeMeta {
			return record.Fold(rec, reads[rec.Shard])
		}
		c, err := record.DecodeManifest(rec.Data)
		if err != nil {
			return err
		}
		counted++
		gens[pos.Gen] = true
		byGroup := c.ByGroup()
		for id, read := range reads {
			now := byGroup(timer.ShardID(id))
			if now.Replica == 0 || now.Creation == nil {
				t.Errorf("manifest %d: %+v", counted, now)
			}
			if wrong := read.Wrong(now); wrong != nil || read.Fault() != nil {
				t.Errorf("manifest %d, group %d: %v %v", counted, id, wrong, read.Fault())
			}
		}
		return nil
	}, func(*wal.Damage) error { return nil })
	if err != nil || counted < 3 || len(gens) < 2 {
		t.Errorf("%d manifests in %d generations: %v", counted, len(gens), err)
	}
}

// TestLastManifestWaitsForNobody: the manifest of a host that stops goes to the log at once, where
// other replicas vote, too, and nothing else is to be written.
func TestLastManifestWaitsForNobody(t *testing.T) {
	r, _ := withFakePeers(t, true, nil)
	r.settle()
	w := r.host.workers[0]
	w.lastManifest()
	if w.frame != nil || len(w.inflight) == 0 {
		t.Errorf("%d frames are on their way to the log, and the open frame is %v", len(w.inflight), w.frame)
	}
}
