package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

// turnLife is a stream whose turns find no room at one kind of operation while full is set.
type turnLife struct {
	*testing.T
	fs    *memfs.FS
	opt   Options
	s     *Stream
	now   time.Duration
	full  bool
	fault error  // while full
	lack  string // as it was reported last
	hits  int
	asked int
	acked int
	lost  int // refused for want of room
}

func newTurnLife(t *testing.T, op memfs.Op) *turnLife {
	l := &turnLife{T: t, fs: memfs.New(), opt: small(), fault: syscall.ENOSPC}
	l.opt.Monotonic = func() time.Duration { return l.now }
	l.opt.Observe.Full = func(lack string) { l.lack = lack }
	l.s, _ = mustOpen(t, l.fs, l.opt)
	l.fs.SetHook(func(_ int, o memfs.Op, name string) error {
		ofTheEnd := name == testDir || strings.HasPrefix(name, filepath.Join(testDir, endName))
		if l.full && o == op && !ofTheEnd {
			l.hits++
			return l.fault
		}
		return nil
	})
	return l
}

// step submits frames, lets time pass, and has the stream work.
func (l *turnLife) step(frames int) {
	l.Helper()
	for range frames {
		must(l, l.s.Submit(frameOf(l.asked), true, func(_ Position, err error) {
			switch {
			case err == nil:
				l.acked++
			case errors.Is(err, errNoRoom):
				l.lost++
			default:
				l.Error(err)
			}
		}))
		l.asked++
	}
	l.now += roomEvery
	_, err := l.s.Step()
	must(l, err)
}

// holds opens a copy and looks for all that was acknowledged.
func (l *turnLife) holds(fsys *memfs.FS) {
	l.Helper()
	_, g := mustOpen(l, fsys, small())
	if isPrefix(l, g.data); len(g.data) < l.acked {
		l.Fatalf("%d acknowledged, %d there", l.acked, len(g.data))
	}
}

// TestFullDiskInATurn: whatever step of a change of segment finds no room, the stream waits for it,
// and goes on by itself; closed meanwhile, or cut off, its contents are whole.
func TestFullDiskInATurn(t *testing.T) {
	for _, op := range []memfs.Op{memfs.OpMkdir, memfs.OpCreate, memfs.OpTruncate, memfs.OpRename, memfs.OpSyncDir} {
		t.Run(op.String(), func(t *testing.T) {
			l := newTurnLife(t, op)
			for round := range 12 {
				l.full = true
				before := l.hits
				for l.hits < before+3 {
					l.step(1 + round%3)
				}
				if l.acked == l.asked || !l.s.Full() {
					t.Fatalf("nothing waits: %d of %d acknowledged", l.acked, l.asked)
				}
				l.holds(lostAll(l.fs))
				l.holds(copyFS(l.fs))
				l.full = false
				if l.step(1); l.acked != l.asked || l.s.Full() {
					t.Fatalf("there is room: %d of %d acknowledged", l.acked, l.asked)
				}
			}
			l.full = true
			for before := l.hits; l.hits == before; {
				l.step(1)
			}
			if op == memfs.OpTruncate { // the last segment has to be cut for a clean end
				l.full = false
			}
			must(t, l.s.Close())
			if l.full && l.lost == 0 || l.acked+l.lost != l.asked || l.fs.OpenFiles() != 0 {
				t.Fatalf("%d acknowledged and %d refused of %d; %d files open", l.acked, l.lost, l.asked, l.fs.OpenFiles())
			}
			l.holds(copyFS(l.fs))
		})
	}
}

// TestLackIsNamed: what lacks is reported, also where that becomes another.
func TestLackIsNamed(t *testing.T) {
	l := newTurnLife(t, memfs.OpCreate)
	expect := func(want string) {
		t.Helper()
		for range 100 {
			if l.step(3); l.lack == want {
				return
			}
		}
		t.Fatalf("reported %q, want %q", l.lack, want)
	}
	l.full, l.fault = true, fmt.Errorf("%w: %w", syscall.ENOSPC, vfs.ErrNoInodes)
	expect("the disk has no inodes left")
	l.fault = syscall.ENOSPC
	expect("the disk is full")
	l.full = false
	expect("")
	must(t, l.s.Close())
}
