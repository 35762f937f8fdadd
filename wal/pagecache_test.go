package wal

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"carillon/test/memfs"
)

// TestRestartBelievesNoPageCache has one operation of a life fail, wherever it may. The next
// process begins on the same machine, so it reads pages that the disk does not have. Records that
// this process replays and acknowledges must outlive a power cut.
func TestRestartBelievesNoPageCache(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for _, op := range []memfs.Op{memfs.OpSync, memfs.OpSyncDir, memfs.OpWrite, memfs.OpCreate, memfs.OpRename, memfs.OpTruncate, memfs.OpMkdir, memfs.OpRemove} {
		t.Run(op.String(), func(t *testing.T) {
			for nth := 1; ; nth++ {
				fail := func() (fsys *memfs.FS, acked, dropped int, failed bool) {
					fsys = memfs.New()
					fsys.FailNth(op, nth, syscall.EIO)
					acked, dropped, err := failingLife(fsys)
					fsys.Kill()
					return fsys, acked, dropped, err != nil
				}
				fsys, acked, dropped, failed := fail()
				if !failed {
					if nth == 1 {
						t.Fatal("the life has no such operation")
					}
					return
				}
				what := fmt.Sprintf("%s %d fails", op, nth)
				secondLife(t, fsys, what, acked, dropped, 1)
				for k := range 24 { // the next start meets the same disk
					op, second := [...]memfs.Op{memfs.OpSync, memfs.OpSyncDir, memfs.OpWrite, memfs.OpRename}[k%4], 1+k/4
					fsys, acked, dropped, _ := fail()
					fsys.FailNth(op, second, syscall.EIO)
					_, _ = Open(fsys, testDir, small(), nil)
					fsys.Kill()
					secondLife(t, fsys, fmt.Sprintf("%s, then %s %d", what, op, second), acked, dropped, k/8%2)
				}
			}
		})
	}
}

// failingLife appends, turns and drops until something fails; it returns the acknowledged records.
func failingLife(fsys *memfs.FS) (acked, dropped int, err error) {
	s, err := Open(fsys, testDir, small(), nil)
	if err != nil {
		return 0, 0, err
	}
	for i := range 90 {
		if err := s.Submit(frameOf(i), true, func(_ Position, err error) {
			if err == nil {
				acked = i + 1
			}
		}); err != nil {
			return acked, dropped, err
		}
		if i%3 == 2 {
			if _, err := s.Step(); err != nil {
				return acked, dropped, err
			}
		}
		if i == 59 {
			gens := s.Generations()
			dropped = int(gens[len(gens)-1].FirstSeq) - 1
			if err := s.DropBefore(s.Generation()); err != nil {
				return acked, dropped, err
			}
		}
	}
	return acked, dropped, s.Close()
}

// secondLife opens on the same machine and appends, once or twice, and then has the power cut.
func secondLife(t *testing.T, fsys *memfs.FS, what string, acked, dropped, cutAfter int) {
	t.Helper()
	for round := range 3 {
		g := &got{}
		s, err := Open(fsys, testDir, small(), collect(t, g))
		if err != nil {
			t.Fatalf("%s, start %d: %v", what, round, err)
		}
		last := dropped
		if len(g.data) > 0 {
			if g.data[0] > dropped {
				t.Fatalf("%s, start %d: begins at record %d, %d may be gone", what, round, g.data[0], dropped)
			}
			last = g.data[len(g.data)-1] + 1
		}
		if last < acked {
			t.Fatalf("%s, start %d: %d acknowledged, %d records back", what, round, acked, last)
		}
		if round > cutAfter {
			return
		}
		appendAll(t, s, last, last+20)
		acked = last + 20
		fsys.Kill()
		if round == cutAfter {
			fsys = fsys.CrashClone(rand.New(rand.NewPCG(1, 1)), memfs.CrashOptions{})
		}
	}
}
