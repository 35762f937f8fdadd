package shard

import (
	"math"

	"carillon/timer"
	"carillon/wal"
)

// A backup reads each shard's state from a snapshot file that covers every change acknowledged
// before the backup began. It uses the group's regular snapshots: the worker cuts one in slices, a
// goroutine writes the file, and the backup reads the file at its own pace.

// State is a group's state in a snapshot file.
type State struct {
	SnapshotSource // its body: see docs/formats/snapshot.md and meta.md
	Size           int64
	Hash           uint64
	Index          uint64 // last entry that the state includes
}

// OpenState opens the group's newest snapshot if it includes all entries up to index. Otherwise it
// returns nil without an error, and orders a snapshot unless a sufficient one is being written. The
// caller then asks again later.
func (f snapshotFiles) OpenState(id timer.ShardID, index uint64) (*State, error) {
	var newest wal.SnapshotMeta
	err := f.h.read(id, false, func(int) bool {
		g := f.h.groups[id]
		if g.files.newest >= index && g.files.sendable() {
			newest = wal.SnapshotMeta{Shard: uint32(id), Index: g.files.newest, Term: g.files.newestTerm}
		} else if run := g.w.snapshot; run == nil || run.group != g || run.mark.Index < index {
			g.snapshots.wanted = true
		}
		return true
	})
	if err != nil || newest.Index == 0 {
		return nil, err
	}
	file, err := wal.OpenSnapshot(f.h.cfg.FS, f.snapshotDir(), newest.FileName())
	if err != nil {
		return nil, err
	}
	return &State{SnapshotSource: file, Size: file.Size(), Hash: file.Meta().Hash, Index: newest.Index}, nil
}

// SaveMeta cuts this node's copy of the meta group's state. Any goroutine may use the returned
// Saving.
func (f snapshotFiles) SaveMeta() (state timer.Saving, err error) {
	g, wait := f.h.groups[Meta], f.h.newWaiter(1)
	if err := g.w.box.put(&call{func(*worker) { state = g.machine.save() }, wait}, math.MaxInt); err != nil {
		wait.release()
		return nil, err
	}
	if f.h.await(wait); state == nil {
		return nil, timer.ErrStopped
	}
	return state, nil
}
