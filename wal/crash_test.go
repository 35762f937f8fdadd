package wal

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

// powerCuts are ways of keeping and losing writes that were not synced.
var powerCuts = []memfs.CrashOptions{
	{},
	{KeepData: 100, KeepSize: 100, KeepNames: 100},
	{KeepNames: 100},
	{KeepData: 100, KeepSize: 100},
	{KeepData: 50, KeepSize: 100, KeepNames: 50},
	{KeepData: 50, KeepSize: 50, KeepNames: 100, BlockBytes: 4096},
	{KeepData: 70, KeepSize: 100, KeepNames: 100, Garbage: true},
}

// TestCrashMatrix cuts the power before every operation of a life with appends, turns, drops and a
// restart, under many ways of keeping and losing unsynced writes. Invariant I11: the records that
// come back are a prefix that holds all that was acknowledged.
func TestCrashMatrix(t *testing.T) {
	points := crashLife(t, nil)
	step := 1
	if testing.Short() {
		step = 7
	}
	for at := 1; at <= points; at += step {
		crashLife(t, func(n int, fsys *memfs.FS, acked, dropped int) {
			if n != at {
				return
			}
			for k, opt := range powerCuts {
				r := rand.New(rand.NewPCG(uint64(at), uint64(k)))
				what := fmt.Sprintf("crash before operation %d, way %d", at, k)
				survives(t, fsys.CrashClone(r, opt), what, acked, dropped)
			}
		})
	}
}

// survives reopens after a crash, appends, crashes the recovery at once, and reopens again.
func survives(t *testing.T, fsys *memfs.FS, what string, acked, dropped int) {
	t.Helper()
	for round := range 2 {
		g := &got{}
		s, err := Open(fsys, testDir, small(), collect(t, g))
		if err != nil {
			t.Fatalf("%s, round %d: %v", what, round, err)
		}
		if len(g.data) > 0 {
			for i, v := range g.data {
				if v != g.data[0]+i {
					t.Fatalf("%s: record %d after %d", what, v, g.data[i-1])
				}
			}
			if g.data[0] > dropped {
				t.Fatalf("%s: begins at %d, dropped were %d", what, g.data[0], dropped)
			}
		}
		if acked > dropped && (len(g.data) == 0 || g.data[len(g.data)-1] < acked-1) {
			t.Fatalf("%s, round %d: %d acknowledged, %d records back", what, round, acked, len(g.data))
		}
		if len(g.data) > 0 {
			next := g.data[len(g.data)-1] + 1
			appendAll(t, s, next, next+2)
			acked = next + 2
		}
		fsys = fsys.CrashClone(rand.New(rand.NewPCG(3, uint64(acked))), memfs.CrashOptions{})
	}
}

// crashLife runs the same life each time and calls at before each operation with the number of
// acknowledged records and of those that may be gone. It returns the number of operations.
func crashLife(t *testing.T, at func(n int, fsys *memfs.FS, acked, dropped int)) int {
	t.Helper()
	fsys := memfs.New()
	count, acked, dropped := 0, 0, 0
	busy := false
	fsys.SetHook(func(_ int, op memfs.Op, _ string) error {
		if busy || !op.Changes() {
			return nil
		}
		count++
		if at != nil {
			busy = true
			at(count, fsys, acked, dropped)
			busy = false
		}
		return nil
	})
	twoLives(t, fsys, testDir, func(a, d int) { acked, dropped = a, d })
	return count
}

// twoLives appends, turns segments and generations, drops some, stops, and does all of it again.
// Some writes are not synced before a change of segment, and one in each life is larger than a
// segment. It calls note with each new number of acknowledged records, and of those that may be
// gone.
func twoLives(t *testing.T, fsys vfs.FS, dir string, note func(acked, dropped int)) {
	t.Helper()
	acked, dropped := 0, 0
	for life := range 2 {
		s, err := Open(fsys, dir, small(), nil)
		must(t, err)
		for i := life * 70; i < (life+1)*70; i++ {
			sync := i%4 != 1 && i%9 < 6
			must(t, s.Submit(frameOf(i), sync, func(_ Position, err error) {
				if err == nil && sync {
					acked = i + 1
					note(acked, dropped)
				}
			}))
			if i%3 == 2 && (i%70 < 40 || i%70 > 60) {
				_, err := s.Step()
				must(t, err)
			}
			if i%35 == 30 {
				gens := s.Generations()
				dropped = int(gens[len(gens)-1].FirstSeq) - 1 // seq is at most record + 1
				note(acked, dropped)
				must(t, s.DropBefore(s.Generation()))
			}
		}
		must(t, s.Close())
	}
}

func TestKilledProcessKeepsWhatWasWritten(t *testing.T) {
	fsys := memfs.New()
	s, _ := mustOpen(t, fsys, small())
	for i := range 20 {
		must(t, s.Submit(frameOf(i), false, nil)) // never synced
		_, err := s.Step()
		must(t, err)
	}
	fsys.Kill()
	s, g := mustOpen(t, fsys, small())
	if len(g.data) != 20 {
		t.Fatalf("%d of 20 records", len(g.data))
	}
	_ = s
	// Replayed is promised: Open must have synced it.
	_, g = mustOpen(t, fsys.CrashClone(rand.New(rand.NewPCG(1, 2)), memfs.CrashOptions{}), small())
	if len(g.data) != 20 {
		t.Fatalf("%d of 20 replayed records outlive a power cut", len(g.data))
	}
}
