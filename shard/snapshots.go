package shard

import (
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/vfs"
	"carillon/shard/record"
	"carillon/shard/retention"
	"carillon/shard/snapshot"
	"carillon/timer"
	"carillon/wal"
)

// When a snapshot is due.
const (
	snapshotLogBytes    = 32 << 20 // default of Config; a larger state needs as much log
	snapshotRetry       = 30 * time.Second
	wantedSnapshotRetry = 2 * time.Second // if a follower, perhaps needed for a majority, waits
	snapshotQueue       = 4               // chunks that wait for the writer
	// dropOlderAfter is how long after its newest snapshot an idle group gives up the older one. A
	// shard that has a leader is never idle, because of its canary.
	dropOlderAfter = 3 * canaryEvery
	// saveDividedAfter is how long after its division a shard of a growing cluster is saved. Within
	// that it may be divided again.
	saveDividedAfter = 10 * time.Second
)

// filesState is where a group's state is on disk, and when its files are written.
type filesState struct {
	retention.Log
	restating bool          // the creation or the tombstone is being written to the log
	failedAt  time.Duration // when writing a snapshot last failed; monotonic, 0 = never
	savedAt   time.Duration // when the newest snapshot was written, or the node started; monotonic
	unread    error         // at a start: a snapshot that may be intact could not be read
	// The entry that ended the last division, and when that was applied; monotonic. A snapshot from
	// before has the timers that have left, and a start would divide them again.
	swept   uint64
	sweptAt time.Duration
}

// snapshotRun is a snapshot that is being written. The worker saves the state in slices between its
// turns, and a goroutine writes the file.
type snapshotRun struct {
	group *replica
	child *replica // that is created of the state; nil: it is a snapshot of the group
	mark  record.Mark
	feed  *snapshot.Feed
	begun time.Duration
}

// snapshotWritten is posted by the writing goroutine when it has written a chunk or is done.
type snapshotWritten struct {
	run  *snapshotRun
	done bool
	err  error
}

func (s *snapshotWritten) handle(w *worker) {
	if w.snapshot != s.run {
		return
	}
	if s.done {
		w.snapshotDone(s)
		return
	}
	s.run.feed.Took()
	w.feedSnapshot()
}

// tickSnapshots starts the next snapshot that is due. The worker writes one at a time, and groups
// take turns, so that a group that is always due does not delay the others. Of many groups it looks
// at one part (see parts). It also updates the oldest generation of the log that the groups need.
func (w *worker) tickSnapshots(parts int) {
	if w.snapshot != nil {
		w.feedSnapshot()
	}
	for n := 0; n < len(w.groups) && w.snapshot == nil; n++ {
		at := (w.snapshotTurn + n) % len(w.groups)
		if at%parts != w.held.part {
			continue
		}
		if w.tickFiles(w.groups[at]); w.snapshot != nil {
			w.snapshotTurn = at + 1
		}
	}
	needed := w.stream.Generation()
	for _, r := range w.groups {
		r.leftovers.tick(r)
		if r.hasLocalState() {
			needed = min(needed, r.files.Needed())
		}
	}
	w.needed.Store(needed)
}

// tickFiles starts a snapshot of a group, or rewrites its marker or mark, if that is due, so that
// the group does not pin old generations of the log.
func (w *worker) tickFiles(r *replica) {
	if !r.hasLocalState() || r.stopped != nil || r.wrong.why != nil {
		return
	}
	current := w.stream.Generation()
	pinned := r.files.Needed() < current && current-r.files.Needed() > max(1, w.host.pinnable.Load())
	switch {
	case pinned && !r.files.restating && r.empty():
		w.rewriteMarker(r)
	case r.id == 0 || !r.snapshots.mayTry(r, w.now.Mono) || r.applied < foundingIndex || r.applied == foundingIndex && !r.snapshots.wanted:
	case r.snapshots.wanted, r.files.Newest.Index != 0 && !r.files.Readable():
		w.beginSnapshot(r)
	case pinned && r.applied == r.files.Newest.Index && w.now.Mono-r.files.savedAt > dropOlderAfter:
		r.files.DropOlder()
		r.files.savedAt = w.now.Mono // not again while this mark is on its way
		w.mark(r)
	case pinned && r.applied > r.files.Newest.Index, r.files.Bytes() > max(w.host.cfg.SnapshotLogBytes, r.machine.bytes()):
		w.beginSnapshot(r)
	case r.files.swept > r.files.Newest.Index && (!w.host.doubles() || w.now.Mono-r.files.sweptAt > saveDividedAfter):
		w.beginSnapshot(r)
	}
}

// mayTry reports whether enough time has passed since a snapshot failed.
func (s *snapshots) mayTry(r *replica, now time.Duration) bool {
	wait := snapshotRetry
	if s.wanted {
		wait = wantedSnapshotRetry
	}
	return r.files.failedAt == 0 || now-r.files.failedAt >= wait
}

// beginSnapshot starts a snapshot. If the disk has no room for it, the group tries again later and
// leaves the room to the log.
func (w *worker) beginSnapshot(r *replica) {
	if !r.snapshotFits() {
		r.files.failedAt = w.now.Mono
		w.host.cfg.Logger.Error("no disk space for a snapshot; the log grows until there is: free some", "shard", uint32(r.shard), "bytes", r.machine.bytes(), "free", w.stream.Disk().Free)
		return
	}
	r.snapshots.wanted = false
	run := &snapshotRun{group: r, begun: w.now.Mono}
	run.mark = record.Mark{Replica: r.id, Index: r.applied, Term: r.appliedTerm, Conf: r.store.Conf, Epoch: r.membership.epoch}
	state := r.machine.save()
	meta := wal.SnapshotMeta{Shard: uint32(r.shard), Index: r.applied, Term: r.appliedTerm, Hash: state.Hash(), Conf: record.AppendMark(nil, run.mark)}
	w.begin(run, state)
	before, readable, files := r.files.Newest.Index, r.files.Readable(), w.host.snapshotFiles
	w.host.inBackground(func() {
		err := run.feed.Write(w.host.cfg.FS, files.snapshotDir(), meta, w.stream.SnapshotFloor())
		files.directory.Add(meta)
		if err == nil && readable { // else the older one stays
			files.removeSnapshots(r.shard, meta.Index, before)
		}
		w.box.post(&snapshotWritten{run: run, done: true, err: err})
	})
	w.feedSnapshot()
}

// snapshotFits reports whether the disk has room for a snapshot of the group.
func (r *replica) snapshotFits() bool {
	return r.w.stream.HasRoom(uint64(r.machine.bytes()), r.w.stream.SnapshotFloor())
}

// begin makes a run the worker's, which feeds it the state.
func (w *worker) begin(run *snapshotRun, state timer.Saving) {
	run.feed = snapshot.NewFeed(state, snapshotQueue, func() { w.box.post(&snapshotWritten{run: run}) })
	w.snapshot = run
}

// feedSnapshot passes the next chunk to the writer, if the writer has room.
func (w *worker) feedSnapshot() {
	if run := w.snapshot; !run.feed.Next() {
		w.host.fail(fmt.Errorf("shard %d: %w: test this machine's memory; a restart reads the state from the disk again", run.group.shard, ErrMemoryFault))
	}
}

// abortSnapshot gives up a snapshot of the group that is being written.
func (w *worker) abortSnapshot(r *replica) {
	if w.snapshot != nil && w.snapshot.group == r {
		w.snapshot.feed.Abort()
	}
}

// removeSnapshots removes a group's snapshots older than newest, except the one at before, which is
// known to be intact.
func (f snapshotFiles) removeSnapshots(id timer.ShardID, newest, before uint64) {
	err := f.directory.Remove(uint32(id), false, func(s wal.SnapshotInfo) bool {
		return s.Index < newest && s.Index != before // later ones stay: one may just have arrived from a peer
	})
	if err != nil {
		f.h.cfg.Logger.Error("old snapshots could not be removed; the node tries again after the next one", "shard", uint32(id), "error", err)
	}
}

func (w *worker) snapshotDone(s *snapshotWritten) {
	if s.run.child != nil {
		w.creationDone(s.run, s.err)
		return
	}
	w.snapshot = nil
	r := s.run.group
	if r.id != s.run.mark.Replica {
		r.leftovers.some = true
		return // the replica was removed
	}
	switch newest := r.files.Newest.Index; {
	case newest > s.run.mark.Index:
		return // a newer snapshot came from a peer
	case newest == s.run.mark.Index && r.files.Newest.Conf != nil:
		return // it exists; without newestConf it was unreadable, and this one replaces it
	}
	if s.err != nil {
		r.files.failedAt = w.now.Mono
		if !errors.Is(s.err, timer.ErrStopped) {
			r.snapshots.failed = s.err
		}
		w.host.cfg.Logger.Error("a snapshot failed; the log grows until one succeeds", "shard", uint32(r.shard), "error", s.err)
		return
	}
	w.host.cfg.Observer.Snapshot(w.now.Mono - s.run.begun)
	r.snapshots.failed = nil
	r.files.Saved(&s.run.mark)
	r.files.savedAt = w.now.Mono
	w.mark(r)
}

// hasLocalState reports whether the group has, or had, a replica on this node.
func (r *replica) hasLocalState() bool { return r.id != 0 || r.tombstone != 0 }

// rewriteMarker writes the creation of a replica that is still empty, or the tombstone of a removed
// one, to the log again. The old generation that holds it can then be dropped.
func (w *worker) rewriteMarker(r *replica) {
	r.files.restating = true
	if r.id == 0 {
		w.append(appended{group: r, tombstone: r.tombstone, sync: true})
		return
	}
	r.written.dirty = true
	w.append(appended{group: r, create: &record.Mark{Replica: r.id, Index: r.applied, Term: r.appliedTerm, Conf: r.store.Conf, Epoch: r.membership.epoch}, sync: true})
}

// mark writes the newest snapshot's mark and the hard state to the log, so that generations with
// older ones can be dropped.
func (w *worker) mark(r *replica) {
	r.written.dirty = true
	w.append(appended{group: r, mark: true, sync: true})
}

// empty reports whether the log has only the group's creation or tombstone. A group that has
// entries but has applied none pins the log until it has: its creation must stay before them.
func (r *replica) empty() bool { return r.id == 0 || max(r.applied, r.written.end) <= foundingIndex }

// snapshotFiles is the part of a host that reads and writes the files of snapshots.
type snapshotFiles struct {
	h         *Host
	directory *snapshot.Directory // set by recover
}

// readState reads a snapshot's state and checks its hash. The state is a *Table, or the result of
// Machine.Read for the meta group. It may run concurrently with the workers.
func (f snapshotFiles) readState(r io.Reader, id timer.ShardID, hash uint64) (any, error) {
	state, has, err := f.h.group(id).machine.read(r)
	if err != nil {
		return nil, err
	}
	if has != hash {
		return nil, fmt.Errorf("state hash %016x, expected %016x", has, hash)
	}
	return state, nil
}

// leftovers tracks snapshot files of replicas that were removed from this node. They are deleted in
// the background, with retries. A file may appear after the tombstone: a snapshot that was being
// written, or received from another node, when the replica was removed.
type leftovers struct {
	some  bool          // there may be files to delete
	busy  bool          // a deletion runs
	upTo  uint64        // highest replica whose tombstone is on disk
	again time.Duration // earliest time of the next attempt; monotonic
}

// add begins to delete the snapshots of replicas up to upTo, whose tombstone is on disk.
// Snapshots of later replicas are kept.
func (l *leftovers) add(r *replica, upTo uint64) {
	l.some, l.upTo = true, max(l.upTo, upTo)
	if !l.busy {
		l.delete(r)
	}
}

func (l *leftovers) delete(r *replica) {
	l.some, l.busy = false, true
	h, w, upTo, gone := r.w.host, r.w, l.upTo, r.id == 0
	h.inBackground(func() {
		err := h.directory.Remove(uint32(r.shard), true, func(s wal.SnapshotInfo) bool {
			conf, err := wal.SnapshotConf(h.cfg.FS, h.snapshotDir(), s.Name)
			if err != nil {
				// A damaged file is deleted too if there is no replica here that may need it.
				return gone && !vfs.IsReadFailure(err)
			}
			m, err := record.DecodeMark(conf)
			return err == nil && m.Replica <= upTo || err != nil && gone
		})
		w.box.post(&cleanedUp{group: r, err: err})
	})
}

// cleanedUp reports the end of a deletion to the worker.
type cleanedUp struct {
	group *replica
	err   error
}

func (c *cleanedUp) handle(w *worker) {
	l := &c.group.leftovers
	l.busy = false
	if c.err != nil {
		l.some, l.again = true, w.now.Mono+snapshotRetry
		w.host.cfg.Logger.Error("the snapshots of a removed replica could not be deleted; the node tries again", "shard", uint32(c.group.shard), "error", c.err)
	}
}

// tick deletes files that appeared since the last deletion or survived it. Once there are none, the
// tombstone is not needed if a later replica's creation is in the log.
func (l *leftovers) tick(r *replica) {
	switch {
	case l.busy:
	case l.some && r.w.now.Mono >= l.again:
		l.delete(r)
	case !l.some && r.id != 0 && !r.files.restating:
		r.files.Forgotten()
	}
}

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
// caller then asks again later. Where the disk has no room for one, the error is ErrLowDisk; where
// one could not be written, it is a SnapshotError, and asked again it orders another.
func (f snapshotFiles) OpenState(id timer.ShardID, index uint64) (*State, error) {
	var newest wal.SnapshotMeta
	var refused error
	if f.h.resolve(id) != f.h.group(id) { // it is yet to be divided from that one
		return nil, timer.NotLeaderError{}
	}
	err := f.h.read(id, false, func(*timerShard, int) bool {
		r := f.h.group(id)
		run := r.w.snapshot
		switch {
		case r.files.Newest.Index >= index && r.files.Readable():
			newest = wal.SnapshotMeta{Shard: uint32(id), Index: r.files.Newest.Index, Term: r.files.Newest.Term}
		case run != nil && run.group == r && run.child == nil && run.mark.Index >= index: // it is being written
		case r.w.stream.Full() || !r.snapshotFits(): // or no file can be made
			refused = f.h.cfg.lowDisk(r.w.stream.Disk())
		case r.snapshots.failed != nil:
			refused = timer.SnapshotError{Name: f.h.cfg.Name, Path: f.h.cfg.Dir, Why: r.snapshots.failed.Error()}
			r.snapshots.failed = nil
		default:
			r.snapshots.wanted = true
		}
		return true
	})
	if err == nil {
		err = refused
	}
	if err != nil || newest.Index == 0 {
		return nil, err
	}
	file, err := wal.OpenSnapshot(f.h.cfg.FS, f.snapshotDir(), newest.FileName())
	if err != nil {
		return nil, err
	}
	return &State{SnapshotSource: &ownSnapshot{file, f.h.group(id)}, Size: file.Size(), Hash: file.Meta().Hash, Index: newest.Index}, nil
}

// SaveMeta cuts this node's copy of the meta group's state. Any goroutine may use the returned
// Saving.
func (f snapshotFiles) SaveMeta() (state timer.Saving, err error) {
	r := f.h.group(Meta)
	if err = f.h.onWorker(r.w, func(*worker) { state = r.machine.save() }); err == nil && state == nil {
		err = timer.ErrStopped
	}
	return state, err
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
	return meta, snapshot.Save(fsys, dir, meta, keepFree, state)
}
