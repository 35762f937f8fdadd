package shard

import (
	"fmt"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/vfs"
	"carillon/shard/record"
	"carillon/timer"
	"carillon/wal"
)

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
	meta := wal.SnapshotMeta{Shard: uint32(row.Group), Index: m.Index, Term: m.Term, Hash: m.Hash, Conf: record.AppendMark(nil, m)}
	file, err := wal.CreateSnapshot(fsys, dir, meta)
	if err != nil {
		state.Abort()
		return err
	}
	defer file.Abort()
	for piece, done := []byte(nil), false; !done; {
		piece, done = state.Next(piece[:0], snapshotChunk)
		if _, err := file.Write(piece); err != nil {
			state.Abort()
			return err
		}
	}
	if !state.Sound() {
		return fmt.Errorf("shard %d: what was written is not what was restored: the memory of this machine fails", row.Group)
	}
	if err := file.Commit(); err != nil {
		return err
	}
	written, err := wal.OpenSnapshot(fsys, dir, meta.FileName())
	if err != nil {
		return err
	}
	defer written.Close()
	return check(written)
}
