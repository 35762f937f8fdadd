package wal

import (
	"testing"

	"carillon/test/memfs"
)

// TestSyncedIsOnDisk: the frames that Synced counts are there after a power cut that loses all that
// was not synced, and the next process counts no fewer. Frames that nobody waited for are not
// counted before a sync; they run on across generations that are dropped.
func TestSyncedIsOnDisk(t *testing.T) {
	fs := memfs.New()
	s, _ := mustOpen(t, fs, small())
	if s.Synced() != 0 {
		t.Errorf("%d frames of an empty log are on disk", s.Synced())
	}
	must(t, s.Submit(frameOf(0), false, nil))
	if _, err := s.Step(); err != nil || s.Synced() != 0 {
		t.Errorf("%d frames are on disk before a sync: %v", s.Synced(), err)
	}
	told := uint64(0)
	for i := 1; i < 300; i++ {
		must(t, s.Submit(frameOf(i), i%3 == 0, nil))
		if _, err := s.Step(); err != nil {
			t.Fatal(err)
		}
		if now := s.Synced(); now < told || i%3 == 0 && now != uint64(i+1) {
			t.Fatalf("frame %d: %d are on disk after %d", i, now, told)
		}
		told = s.Synced()
		if i%50 == 0 {
			gens := s.Generations()
			must(t, s.DropBefore(gens[len(gens)-1].Gen))
			next, _ := mustOpen(t, lostAll(fs), small())
			if next.Synced() < told {
				t.Fatalf("%d frames are there after a power cut, %d were on disk", next.Synced(), told)
			}
			must(t, next.Close())
		}
	}
	must(t, s.Close())
	next, _ := mustOpen(t, fs, small())
	if next.Synced() != 300 {
		t.Errorf("%d frames after a clean end, want 300", next.Synced())
	}
	must(t, next.Close())
}
