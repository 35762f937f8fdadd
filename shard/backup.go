package shard

import (
	"math"

	"carillon/timer"
	"carillon/wal"
)

// A backup has each shard as its leader has it at one moment: a snapshot that has all that was
// acknowledged before it was asked for. It is the one that the group keeps for itself: the worker
// cuts it in slices and a goroutine writes the file, as always, and whoever backs up reads that
// file, at any pace.

// State is a group's state in a file.
type State struct {
	SnapshotSource // its body: see docs/formats/snapshot.md and meta.md
	Size           int64
	Hash           uint64
	Index          uint64 // of the last entry that is in it
}

// OpenState opens the newest snapshot of a group if it has all entries up to index. nil without an
// error: there is none yet; it was ordered, and whoever asks again will find it.
func (h *Host) OpenState(id timer.ShardID, index uint64) (*State, error) {
	var newest wal.SnapshotMeta
	err := h.read(id, false, func(g *group, _ int) bool {
		if g.files.newest >= index && g.files.newestConf != nil && g.files.suspect == 0 {
			newest = wal.SnapshotMeta{Shard: uint32(id), Index: g.files.newest, Term: g.files.newestTerm}
		} else if run := g.w.snapshot; run == nil || run.group != g || run.mark.Index < index {
			g.wantSnapshot = true
		}
		return true
	})
	if err != nil || newest.Index == 0 {
		return nil, err
	}
	file, err := wal.OpenSnapshot(h.cfg.FS, h.snapshotDir(), newest.FileName())
	if err != nil {
		return nil, err
	}
	return &State{SnapshotSource: file, Size: file.Size(), Hash: file.Meta().Hash, Index: newest.Index}, nil
}

// SaveMeta cuts the meta group's state as this node has it. What it returns may be used on any
// goroutine.
func (h *Host) SaveMeta() (state Saving, err error) {
	g, wait := h.groups[Meta], h.newWaiter(1)
	if err := g.w.box.put(&call{func(*worker) { state = g.meta.machine.BeginSave() }, wait}, math.MaxInt); err != nil {
		wait.release()
		return nil, err
	}
	if h.await(wait); state == nil {
		return nil, timer.ErrStopped
	}
	return state, nil
}
