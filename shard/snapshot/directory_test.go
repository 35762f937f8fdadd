package snapshot

import (
	"errors"
	"path/filepath"
	"testing"

	"carillon/test/memfs"
	"carillon/wal"
)

// TestDirectory: it has what was there when it was opened and what has come since, each shard's for
// itself, until that is removed. What could not be removed is removed when it is called again.
func TestDirectory(t *testing.T) {
	fsys, path := memfs.New(), "/data/snapshots"
	write := func(meta wal.SnapshotMeta) {
		t.Helper()
		w, err := wal.CreateSnapshot(fsys, path, meta)
		if err == nil {
			err = w.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for index := range uint64(3) {
		write(wal.SnapshotMeta{Shard: 7, Index: 10 + index, Term: 1})
	}
	write(wal.SnapshotMeta{Shard: 9, Index: 5, Term: 1})
	d, err := OpenDirectory(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	want := func(shard uint32, indexes ...uint64) {
		t.Helper()
		list := d.Of(shard)
		for i := range list {
			if len(list) != len(indexes) || list[i].Index != indexes[i] {
				t.Fatalf("shard %d has %+v, want %d", shard, list, indexes)
			}
		}
		if len(list) != len(indexes) {
			t.Fatalf("shard %d has %+v, want %d", shard, list, indexes)
		}
	}
	want(7, 12, 11, 10)
	want(9, 5)
	want(8)
	if d.Highest() != 9 {
		t.Errorf("the highest is %d", d.Highest())
	}
	next := wal.SnapshotMeta{Shard: 7, Index: 20, Term: 2}
	d.Add(next) // it is not there
	want(7, 12, 11, 10)
	write(next)
	d.Add(next)
	d.Add(next)
	want(7, 12, 11, 10, 20)

	stuck := filepath.Join(path, wal.SnapshotMeta{Shard: 7, Index: 10, Term: 1}.FileName())
	broken := errors.New("not now")
	fsys.SetHook(func(_ int, op memfs.Op, name string) error {
		if op == memfs.OpRemove && name == stuck {
			return broken
		}
		return nil
	})
	old := func(s wal.SnapshotInfo) bool { return s.Index < 12 }
	if err := d.Remove(7, true, old); !errors.Is(err, broken) {
		t.Errorf("removed: %v", err)
	}
	fsys.SetHook(nil)
	if err := d.Remove(7, true, old); err != nil {
		t.Error(err)
	}
	want(7, 12, 20)
	if err := d.Remove(9, false, func(wal.SnapshotInfo) bool { return true }); err != nil {
		t.Error(err)
	}
	if list, err := wal.Snapshots(fsys, path); err != nil || len(list) != 2 || d.Highest() != 7 {
		t.Errorf("%+v are left, %v; the highest is %d", list, err, d.Highest())
	}
}
