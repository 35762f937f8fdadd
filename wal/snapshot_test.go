package wal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

const snapDir = "data/snap"

func snapMeta(index uint64) SnapshotMeta {
	return SnapshotMeta{Shard: 3, Index: index, Term: 2, Hash: 77, Conf: []byte("conf state")}
}

// writeSnapshot writes data in pieces of random sizes and commits.
func writeSnapshot(t testing.TB, fsys vfs.FS, meta SnapshotMeta, data []byte) {
	t.Helper()
	w, err := CreateSnapshot(fsys, snapDir, meta)
	must(t, err)
	r := rand.New(rand.NewPCG(2, uint64(len(data))))
	for len(data) > 0 {
		n := min(len(data), 1+r.IntN(100_000))
		_, err := w.Write(data[:n])
		must(t, err)
		data = data[n:]
	}
	must(t, w.Commit())
	if err := w.Commit(); err == nil {
		t.Fatal("second commit")
	}
	w.Abort() // does nothing now
}

func readSnapshot(fsys vfs.FS, name string) (SnapshotMeta, []byte, error) {
	r, err := OpenSnapshot(fsys, snapDir, name)
	if err != nil {
		return SnapshotMeta{}, nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return r.Meta(), b, err
}

func TestSnapshotRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, n := range []int{0, 1, snapshotChunkBytes - 1, snapshotChunkBytes, snapshotChunkBytes + 1, 3*snapshotChunkBytes + 17} {
		fsys, data, meta := memfs.New(), randomBytes(r, n), snapMeta(9)
		writeSnapshot(t, fsys, meta, data)
		back, b, err := readSnapshot(fsys, meta.FileName())
		must(t, err)
		if !bytes.Equal(b, data) || !bytes.Equal(back.Conf, meta.Conf) || back.Hash != 77 || back.Index != 9 || back.Shard != 3 || back.Term != 2 {
			t.Fatalf("%d bytes came back as %d, meta %+v", n, len(b), back)
		}
		sr, err := OpenSnapshot(fsys, snapDir, meta.FileName())
		must(t, err)
		for _, at := range []int{0, n / 3, n / 2, n} {
			must(t, sr.SeekTo(int64(at)))
			b, err := io.ReadAll(sr)
			must(t, err)
			if !bytes.Equal(b, data[at:]) {
				t.Fatalf("after a seek to %d of %d: %d bytes", at, n, len(b))
			}
		}
		must(t, sr.Close())
	}
}

// TestSnapshotDamage: after any change, cut or addition, reading fails with the file's name, and
// the bytes read until then are right.
func TestSnapshotDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	data, meta := randomBytes(r, snapshotChunkBytes+5000), snapMeta(1)
	whole := memfs.New()
	writeSnapshot(t, whole, meta, data)
	path := filepath.Join(snapDir, meta.FileName())
	file, err := vfs.ReadFile(whole, path, nil, 1<<30)
	must(t, err)
	rounds := 450
	if testing.Short() {
		rounds = 200
	}
	for i := range rounds {
		fsys, changed := memfs.New(), bytes.Clone(file)
		switch i % 3 {
		case 0:
			damage(r, []string{"flip", "zeros", "garbage", "misplaced"}[r.IntN(4)], changed)
		case 1:
			changed = changed[:r.IntN(len(changed))]
		case 2:
			changed = append(changed, randomBytes(r, 1+r.IntN(60))...)
		}
		if bytes.Equal(changed, file) {
			continue
		}
		must(t, fsys.MkdirAll(snapDir))
		must(t, vfs.WriteSynced(fsys, path, changed))
		_, b, err := readSnapshot(fsys, meta.FileName())
		var c *CorruptionError
		if !errors.As(err, &c) || c.Segment != meta.FileName() {
			t.Fatalf("round %d: %v", i, err)
		}
		if !bytes.HasPrefix(data, b) {
			t.Fatalf("round %d: unverified bytes were returned", i)
		}
	}
}

func TestSnapshotsAreListedAndRemoved(t *testing.T) {
	fsys := memfs.New()
	for index := uint64(1); index <= 5; index++ {
		writeSnapshot(t, fsys, snapMeta(index), []byte("state"))
	}
	other := snapMeta(1)
	other.Shard = 1
	writeSnapshot(t, fsys, other, nil)
	w, err := CreateSnapshot(fsys, snapDir, snapMeta(6))
	must(t, err)
	_, err = w.Write([]byte("never committed"))
	must(t, err)
	must(t, PrepareSnapshotDir(fsys, snapDir))
	list, err := Snapshots(fsys, snapDir)
	must(t, err)
	if len(list) != 6 || list[0].Shard != 1 || list[1].Index != 5 || list[2].Index != 4 {
		t.Fatalf("left %+v", list)
	}
	for _, f := range files(t, fsys, snapDir) {
		if strings.HasSuffix(f, vfs.TempSuffix) {
			t.Fatalf("%s is left", f)
		}
	}
	must(t, fsys.Remove(filepath.Join(snapDir, snapMeta(5).FileName())))
	if _, err := OpenSnapshot(fsys, snapDir, snapMeta(5).FileName()); !errors.Is(err, ErrNoSnapshot) {
		t.Fatalf("removed: %v", err)
	}
}

// TestSnapshotCrashAndFaults: a snapshot is there whole or not at all, and once Commit
// returned it is there.
func TestSnapshotCrashAndFaults(t *testing.T) {
	data := randomBytes(rand.New(rand.NewPCG(8, 8)), 3000)
	fsys := memfs.New()
	must(t, PrepareSnapshotDir(fsys, snapDir))
	r, busy := rand.New(rand.NewPCG(1, 9)), false
	fsys.SetHook(func(int, memfs.Op, string) error {
		if busy {
			return nil
		}
		busy = true
		defer func() { busy = false }()
		for range 8 {
			c := fsys.CrashClone(r, memfs.CrashOptions{KeepData: 50, KeepSize: 50, KeepNames: 50})
			if _, b, err := readSnapshot(c, snapMeta(1).FileName()); !errors.Is(err, ErrNoSnapshot) && (err != nil || !bytes.Equal(b, data)) {
				t.Errorf("half a snapshot after a crash: %v", err)
			}
		}
		return nil
	})
	writeSnapshot(t, fsys, snapMeta(1), data)
	fsys.SetHook(nil)
	_, b, err := readSnapshot(fsys.CrashClone(r, memfs.CrashOptions{}), snapMeta(1).FileName())
	must(t, err)
	if !bytes.Equal(b, data) {
		t.Fatal("committed, and changed by a crash")
	}
	for _, op := range []memfs.Op{memfs.OpWrite, memfs.OpSync, memfs.OpRename, memfs.OpSyncDir} {
		fsys.FailNth(op, 1, syscall.EIO)
		w, err := CreateSnapshot(fsys, snapDir, snapMeta(2))
		if err == nil {
			_, err = w.Write(data)
		}
		if err == nil {
			err = w.Commit()
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("%v failed: %v", op, err)
		}
	}
}

// TestTwoWritersOfOneSnapshot: a replica writes its own while a peer sends it the same one. Neither
// touches the other's file, whichever ends first, and however.
func TestTwoWritersOfOneSnapshot(t *testing.T) {
	for _, abort := range []bool{false, true} {
		fsys := memfs.New()
		data := randomBytes(rand.New(rand.NewPCG(3, 3)), 400<<10)
		one, err := CreateSnapshot(fsys, snapDir, snapMeta(1))
		must(t, err)
		two, err := CreateSnapshot(fsys, snapDir, snapMeta(1))
		must(t, err)
		half := len(data) / 2
		for _, part := range [][]byte{data[:half], data[half:]} {
			for _, w := range []*SnapshotWriter{one, two} {
				_, err := w.Write(part)
				must(t, err)
			}
		}
		if abort {
			one.Abort()
		} else {
			must(t, one.Commit())
			if _, b, err := readSnapshot(fsys, snapMeta(1).FileName()); err != nil || !bytes.Equal(b, data) {
				t.Fatalf("after the first commit: %v", err)
			}
		}
		must(t, two.Commit())
		if _, b, err := readSnapshot(lostAll(fsys), snapMeta(1).FileName()); err != nil || !bytes.Equal(b, data) {
			t.Fatalf("after the second commit: %v", err)
		}
	}
}

// TestSnapshotNameOutlivesAFailedSync: a snapshot that the next process finds is there for good,
// since that process drops log by it.
func TestSnapshotNameOutlivesAFailedSync(t *testing.T) {
	fsys := memfs.New()
	must(t, PrepareSnapshotDir(fsys, snapDir))
	w, err := CreateSnapshot(fsys, snapDir, snapMeta(1))
	must(t, err)
	fsys.FailNth(memfs.OpSyncDir, 1, syscall.EIO)
	if err := w.Commit(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	fsys.Kill()
	must(t, PrepareSnapshotDir(fsys, snapDir))
	list, err := Snapshots(fsys, snapDir)
	must(t, err)
	after, err := Snapshots(lostAll(fsys), snapDir)
	must(t, err)
	if len(list) != 1 || len(after) != len(list) {
		t.Fatalf("%d found, %d left after a power cut", len(list), len(after))
	}
}

// TestSnapshotNames: only the very names that are written are those of snapshots.
func TestSnapshotNames(t *testing.T) {
	want := SnapshotInfo{Name: "0000002a-00000000000000ff-ffffffffffffffff.snap", Shard: 42, Index: 255, Term: 1<<64 - 1}
	if i, ok := parseSnapshotName(want.Name); !ok || i != want {
		t.Errorf("%+v, %v, want %+v", i, ok, want)
	}
	for _, name := range []string{
		"", ".snap", "-.snap", "0000002a-00000000000000ff.snap", "0000002a-00000000000000ff-0000000000000001", "0000002A-00000000000000ff-0000000000000001.snap",
		"2a-ff-1.snap", "10000002a-00000000000000ff-0000000000000001.snap", "0000002a-00000000000000ff-00000000000000001.snap", "0000002a-00000000000000ff-0000000000000001-1.snap",
		"+000002a-00000000000000ff-0000000000000001.snap", "0x00002a-00000000000000ff-0000000000000001.snap", "0000002a-00000000000000ff-0000000000000001.snap.tmp",
	} {
		if i, ok := parseSnapshotName(name); ok {
			t.Errorf("%q is taken for %+v", name, i)
		}
	}
}
