package shard

import (
	"fmt"
	"io"
	"math"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/vfs"
	"carillon/shard/record"
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
	if f.h.resolve(id) != f.h.group(id) { // it is yet to be divided from that one
		return nil, timer.NotLeaderError{}
	}
	err := f.h.read(id, false, func(*timerShard, int) bool {
		r := f.h.group(id)
		if r.files.Newest.Index >= index && r.files.sendable() {
			newest = wal.SnapshotMeta{Shard: uint32(id), Index: r.files.Newest.Index, Term: r.files.Newest.Term}
		} else if run := r.w.snapshot; run == nil || run.group != r || run.child != nil || run.mark.Index < index {
			r.snapshots.wanted = true
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
	r, wait := f.h.group(Meta), f.h.newWaiter(1)
	if err := r.w.box.put(&call{func(*worker) { state = r.machine.save() }, wait}, math.MaxInt); err != nil {
		wait.release()
		return nil, err
	}
	if f.h.await(wait); state == nil {
		return nil, timer.ErrStopped
	}
	return state, nil
}

// A shard is restored from a snapshot of a backup: its table is read, adapted to the new cluster,
// and written as the first snapshot of the new cluster's replica. Changes of the lost cluster after
// the backup are unknown. ADR 40 explains how the numbers that it gave out stay unique
// nevertheless.

// CreateLog creates an empty log in a directory in which groups are restored. Their state is in
// their snapshots, but without a log the directory would seem to have lost it.
func CreateLog(fsys vfs.FS, dir string) error {
	stream, err := wal.Open(fsys, streamDir(dir), wal.Options{}, nil)
	if err != nil {
		return err
	}
	return stream.Close()
}

// restoredIndex is where a restored group's log begins: its snapshot stands for the entries before.
const restoredIndex = foundingIndex + 1

// WriteRestored writes a restored state (of a *Table, or of the meta group's machine) to a new data
// directory, as the first snapshot of a group that has one replica. It then reads the snapshot back
// with check.
func WriteRestored(fsys vfs.FS, dir string, row Assignment, state timer.Saving, check func(io.Reader) error) error {
	dir = SnapshotsDir(dir)
	replica := row.Members[0].Replica
	m := record.Mark{Replica: replica, Index: restoredIndex, Term: foundingTerm, Hash: state.Hash(), Epoch: row.Epoch,
		Conf: &pb.ConfState{Voters: []uint64{replica}, AutoLeave: new(false)}}
	meta, err := writeState(fsys, dir, row.Group, m, 0, state)
	if err != nil {
		return err
	}
	written, err := wal.OpenSnapshot(fsys, dir, meta.FileName())
	if err != nil {
		return err
	}
	defer written.Close()
	return check(written)
}

// writeState writes a state as a group's first snapshot, and leaves so much of the disk free.
func writeState(fsys vfs.FS, dir string, id timer.ShardID, m record.Mark, keepFree uint64, state timer.Saving) (wal.SnapshotMeta, error) {
	meta := wal.SnapshotMeta{Shard: uint32(id), Index: m.Index, Term: m.Term, Hash: m.Hash, Conf: record.AppendMark(nil, m)}
	file, err := wal.CreateSnapshot(fsys, dir, meta)
	if err != nil {
		state.Abort()
		return meta, err
	}
	defer file.Abort()
	file.KeepFree(keepFree)
	for piece, done := []byte(nil), false; !done; {
		piece, done = state.Next(piece[:0], snapshotChunk)
		if _, err := file.Write(piece); err != nil {
			state.Abort()
			return meta, err
		}
	}
	if !state.Sound() {
		return meta, fmt.Errorf("shard %d: what was written is not what was there: the memory of this machine fails", id)
	}
	return meta, file.Commit()
}
