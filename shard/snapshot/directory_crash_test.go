package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"carillon/test/memfs"
	"carillon/wal"
)

const crashDir = "/data/snapshots"

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

// snapshotLife is one node's snapshots of shard 1, as a host has them: its own and those that peers
// send, of which it keeps the newest and the one before, until the replica is removed.
type snapshotLife struct {
	t      *testing.T
	fs     *memfs.FS
	dir    *Directory
	newest uint64 // that was committed; a restart needs it
	before uint64 // … before that
	next   uint64 // that is being written, or was the last one
	gone   bool   // the removal of all has returned
}

// stateAt is a state of some blocks, each snapshot's its own.
func stateAt(index uint64) []byte {
	b := make([]byte, 6000+index)
	r := rand.New(rand.NewPCG(index, 5))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func metaAt(index uint64) wal.SnapshotMeta {
	return wal.SnapshotMeta{Shard: 1, Index: index, Term: 1, Hash: index + 7, Conf: []byte("members")}
}

// start is what a host does before it loads snapshots.
func (l *snapshotLife) start() error {
	err := wal.PrepareSnapshotDir(l.fs, crashDir)
	if err == nil {
		l.dir, err = OpenDirectory(l.fs, crashDir)
	}
	return err
}

// write makes the next snapshot. One from a peer is read back before it is committed.
func (l *snapshotLife) write(fromPeer bool) error {
	l.next++
	w, err := wal.CreateSnapshot(l.fs, crashDir, metaAt(l.next))
	if err != nil {
		return err
	}
	defer w.Abort()
	for data := stateAt(l.next); len(data) > 0; {
		n := min(len(data), 1000)
		if _, err = w.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	if fromPeer {
		f, err := w.Seal()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	err = w.Commit()
	l.dir.Add(metaAt(l.next))
	if err != nil {
		return err
	}
	l.before, l.newest = l.newest, l.next
	return l.dir.Remove(1, false, func(s wal.SnapshotInfo) bool { return s.Index < l.newest && s.Index != l.before })
}

// live makes some snapshots, one of them in vain, starts again, makes more, and removes all.
func (l *snapshotLife) live() error {
	if err := l.start(); err != nil {
		return err
	}
	for n := range 4 {
		if err := l.write(n%2 == 1); err != nil {
			return err
		}
	}
	vain, err := wal.CreateSnapshot(l.fs, crashDir, metaAt(100))
	if err != nil {
		return err
	}
	vain.Abort()
	if _, err = wal.CreateSnapshot(l.fs, crashDir, metaAt(101)); err != nil { // and one that is not ended
		return err
	}
	if err := l.start(); err != nil {
		return err
	}
	for n := range 3 {
		if err := l.write(n%2 == 0); err != nil {
			return err
		}
	}
	if err := l.dir.Remove(1, true, func(wal.SnapshotInfo) bool { return true }); err != nil {
		return err
	}
	l.gone = true
	return nil
}

func readBack(fsys *memfs.FS, s wal.SnapshotInfo) error {
	f, err := wal.OpenSnapshot(fsys, crashDir, s.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err == nil && (!bytes.Equal(data, stateAt(s.Index)) || f.Meta().Hash != s.Index+7) {
		err = fmt.Errorf("%s has another state", s.Name)
	}
	return err
}

// survives starts after a power cut, twice, and makes snapshots there until all is as it was: what is
// listed is whole, the newest of it is the newest that was committed or the one after it, and old
// ones and halves of new ones go.
func (l *snapshotLife) survives(fsys *memfs.FS, what string) {
	l.t.Helper()
	again := &snapshotLife{t: l.t, fs: fsys, next: 1000}
	for round := range 2 {
		if err := again.start(); err != nil {
			l.t.Fatalf("%s: %v", what, err)
		}
		list := again.dir.Of(1)
		for _, s := range list {
			if err := readBack(fsys, s); err != nil {
				l.t.Fatalf("%s, start %d: a snapshot is listed and not whole: %v", what, round, err)
			}
		}
		removing := l.newest == 7 // the last one is there: what follows is the removal
		switch {
		case l.gone && len(list) > 0:
			l.t.Fatalf("%s: removed, and there again: %+v", what, list)
		case l.newest > 0 && !removing && (len(list) == 0 || list[0].Index < l.newest):
			l.t.Fatalf("%s: snapshot %d was committed; there are %+v", what, l.newest, list)
		case len(list) > 0 && list[0].Index > l.next:
			l.t.Fatalf("%s: snapshot %d was never committed", what, list[0].Index)
		}
		if len(list) > 0 {
			again.newest = list[0].Index
		}
		fsys = fsys.CrashClone(rand.New(rand.NewPCG(4, uint64(round))), memfs.CrashOptions{})
		again.fs = fsys
	}
	if err := again.start(); err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
	for range 2 {
		if err := again.write(false); err != nil {
			l.t.Fatalf("%s: %v", what, err)
		}
	}
	left, err := fsys.ReadDir(crashDir)
	if err != nil || len(left) != 2 {
		l.t.Fatalf("%s: after two more snapshots there are %+v, %v", what, left, err)
	}
}

// TestPowerCutAtEachStepOfASnapshot: see survives.
func TestPowerCutAtEachStepOfASnapshot(t *testing.T) {
	l := &snapshotLife{t: t, fs: memfs.New()}
	points, busy := 0, false
	cut := func(op memfs.Op, name string) {
		busy = true
		defer func() { busy = false }()
		points++
		for k, opt := range powerCuts {
			r := rand.New(rand.NewPCG(uint64(points), uint64(k)))
			l.survives(l.fs.CrashClone(r, opt), fmt.Sprintf("power cut %d, before %v of %s, way %d", points, op, filepath.Base(name), k))
		}
	}
	l.fs.SetHook(func(_ int, op memfs.Op, name string) error {
		if !busy && op.Changes() {
			cut(op, name)
		}
		return nil
	})
	if err := l.live(); err != nil {
		t.Fatal(err)
	}
	cut(memfs.OpOpen, "its end")
	t.Logf("%d power cuts", points)
}

// TestFailureAtEachStepOfASnapshot: an operation fails, the snapshot with it, and the process goes
// on, or ends; then the power is cut.
func TestFailureAtEachStepOfASnapshot(t *testing.T) {
	for _, failure := range []error{syscall.EIO, syscall.ENOSPC} {
		for _, op := range []memfs.Op{memfs.OpCreate, memfs.OpWrite, memfs.OpSync, memfs.OpRename, memfs.OpSyncDir, memfs.OpRemove} {
			for at := 1; ; at++ {
				l := &snapshotLife{t: t, fs: memfs.New()}
				l.fs.FailNth(op, at, failure)
				err := l.live()
				if err == nil {
					break // there are no more
				}
				for k, opt := range powerCuts {
					r := rand.New(rand.NewPCG(uint64(at), uint64(k)))
					l.survives(l.fs.CrashClone(r, opt), fmt.Sprintf("%v at %v %d, power cut %d", failure, op, at, k))
				}
				if l.dir == nil {
					continue
				}
				for range 3 { // no restart between
					if err := l.write(false); err != nil {
						t.Fatalf("%v at %v %d, and then: %v", failure, op, at, err)
					}
				}
				r := rand.New(rand.NewPCG(uint64(at), 9))
				c := l.fs.CrashClone(r, memfs.CrashOptions{})
				if err := readBack(c, wal.SnapshotInfo{Name: metaAt(l.newest).FileName(), Index: l.newest}); err != nil {
					t.Fatalf("%v at %v %d: of those after it: %v", failure, op, at, err)
				}
			}
		}
	}
}

// TestLeftoversOfPowerCutsDoNotGrow: the power is cut again and again while snapshots are written
// and removed, and names survive by chance.
func TestLeftoversOfPowerCutsDoNotGrow(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	l := &snapshotLife{t: t, fs: memfs.New()}
	for range 300 {
		if err := l.start(); err != nil {
			t.Fatal(err)
		}
		list := l.dir.Of(1)
		if len(list) > 4 {
			t.Fatalf("%+v", list)
		}
		if l.newest > 0 && (len(list) == 0 || list[0].Index < l.newest) {
			t.Fatalf("snapshot %d was committed; there are %+v", l.newest, list)
		}
		if len(list) > 0 {
			l.newest = list[0].Index
		}
		for left := r.IntN(12); left > 0; left-- {
			err := l.write(left%2 == 0)
			if err != nil {
				t.Fatal(err)
			}
		}
		at := 1 + r.IntN(20)
		end := fmt.Errorf("the power is cut")
		l.fs.SetHook(func(_ int, op memfs.Op, _ string) error {
			if !op.Changes() {
				return nil
			}
			if at--; at <= 0 {
				return end
			}
			return nil
		})
		_ = l.write(false)
		l.fs.SetHook(nil)
		l.fs = l.fs.CrashClone(r, powerCuts[r.IntN(len(powerCuts))])
	}
}

// TestDamagedSnapshotIsNamed, wherever the damage is, and the one before it is whole.
func TestDamagedSnapshotIsNamed(t *testing.T) {
	l := &snapshotLife{t: t, fs: memfs.New()}
	if err := l.start(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.write(false); err != nil {
			t.Fatal(err)
		}
	}
	name := metaAt(2).FileName()
	size := len(stateAt(2))
	for bit := int64(0); bit < int64(8*size); bit += 501 {
		c := l.fs.CrashClone(rand.New(rand.NewPCG(1, 1)), memfs.CrashOptions{})
		if err := c.FlipBit(filepath.Join(crashDir, name), bit); err != nil {
			t.Fatal(err)
		}
		d, err := OpenDirectory(c, crashDir)
		if err != nil || len(d.Of(1)) != 2 {
			t.Fatalf("%v, %v", d, err)
		}
		if err := readBack(c, d.Of(1)[0]); err == nil || !strings.Contains(err.Error(), name) {
			t.Fatalf("bit %d: %v", bit, err)
		}
		if err := readBack(c, d.Of(1)[1]); err != nil {
			t.Fatal(err)
		}
	}
}
