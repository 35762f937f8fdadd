package shard

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/feature"
	"carillon/internal/placement"
	"carillon/internal/vfs"
	"carillon/shard/halt"
	"carillon/shard/raftlog"
	"carillon/shard/record"
	"carillon/shard/snapshot"
	"carillon/wal"
)

// The start of every group's log: the first members are part of the state, not entries.
const foundingIndex, foundingTerm = 1, 1

// recovery rebuilds a group from its newest snapshot and the log. It applies entries as soon as the
// log shows them to be committed, so that it holds only the uncommitted tail and the entries that
// followers may lack.
type recovery struct {
	replica *replica
	gen     uint64         // of the record that is being read
	log     []record.Entry // entries that are still needed
	first   int            // in log: the first that is kept; applied, but followers may lack it
	next    int            // in log: the first that is not applied
	bytes   int            // of log[first:next]
	hard    record.HardState
	known   bool // the log has a hard state of the replica
	// fault describes the entries or snapshot that are missing. It is void if the replica was
	// removed later, or continued from a peer's snapshot, because earlier records may be partly
	// gone then.
	fault   error
	stop    bool  // at a membership change: raft must see the entries from here on
	stopped error // this build cannot apply the next entry
	// alien reports that the log, where it was read, has another entry at the last index of a
	// peer's snapshot. The entries after that one are void.
	alien bool
}

// recoveryOf begins with a loaded snapshot, if there is one. If the snapshot is of a newer release,
// nothing is applied.
func recoveryOf(r *replica) *recovery {
	return &recovery{replica: r, stopped: r.stopped, stop: r.stopped != nil}
}

// SnapshotsDir returns the directory of the snapshots in a data directory.
func SnapshotsDir(dir string) string { return filepath.Join(dir, "snapshots") }

func (f snapshotFiles) snapshotDir() string { return SnapshotsDir(f.h.cfg.Dir) }

func streamDir(dir string) string { return filepath.Join(dir, "wal", "0") }

// recover refuses a node that has halted, loads snapshots, replays the log and starts raft at its
// end. In a fresh directory it creates the replica of the meta group.
func (h *Host) recover() error {
	if err := halt.Check(h.cfg.FS, h.cfg.Dir); err != nil {
		return err
	}
	if err := checkLog(&h.cfg); err != nil {
		return err
	}
	if err := wal.PrepareSnapshotDir(h.cfg.FS, h.snapshotDir()); err != nil {
		return fmt.Errorf("shard: prepare snapshots: %w", err)
	}
	var err error
	if h.directory, err = snapshot.OpenDirectory(h.cfg.FS, h.snapshotDir()); err != nil {
		return fmt.Errorf("shard: list snapshots: %w", err)
	}
	if err := h.loadSnapshots(); err != nil {
		return err
	}
	list := make([]*recovery, len(h.all()))
	for i, r := range h.all() {
		list[i] = recoveryOf(r)
	}
	stream, err := wal.Open(h.cfg.FS, streamDir(h.cfg.Dir), h.cfg.Log, func(pos wal.Position, x wal.Record) error {
		if int(x.Shard) >= len(list) {
			return outnumbered(len(list)-1, x.Shard, "a record")
		}
		return list[x.Shard].replay(pos, x)
	})
	if why, ok := errors.AsType[*halt.Error](err); ok {
		return refuse(&h.cfg, why)
	}
	if err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	h.stream = stream
	if cut := stream.Cut(); cut.Bytes > 0 {
		h.cfg.Logger.Warn("the log ended within a frame, as a crash or a power cut leaves it: the rest was cut off; where the disk is at fault, acknowledged changes were in it",
			"bytes", cut.Bytes, "kept_in", cut.File)
	}
	for _, w := range h.workers {
		w.stream = stream
	}
	h.opened = stream.Synced()
	if vet := h.cfg.Vet; vet != nil {
		if err := vet(list[Meta].tail()); err != nil {
			_ = stream.Close() // nothing was written
			return err
		}
	}
	for _, x := range list {
		if err := x.finish(); err != nil {
			_ = stream.Close()                                   // nothing was written; this releases the lock
			if unread := x.replica.files.unread; unread != nil { // it may have the missing part
				err = fmt.Errorf("shard %d: a snapshot that is needed cannot be read; start again once the disk can be read: %w", x.replica.shard, unread)
			}
			return err
		}
	}
	// Last, because it runs in the background: a caller that steps the host waits for it after
	// Open.
	for _, r := range h.all() {
		if r.tombstone != 0 {
			r.leftovers.add(r, r.tombstone)
		}
	}
	return nil
}

// loadSnapshots loads the groups' states on Config.Loaders goroutines, the caller's included.
func (f snapshotFiles) loadSnapshots() error {
	if highest := f.directory.Highest(); int(highest) >= len(f.h.all()) {
		return refuse(&f.h.cfg, outnumbered(len(f.h.all())-1, highest, "a snapshot"))
	}
	var taken atomic.Int64
	load := func() {
		for n := taken.Add(1); n <= int64(len(f.h.all())); n = taken.Add(1) {
			f.loadSnapshot(f.h.all()[n-1])
		}
	}
	var others sync.WaitGroup
	for range f.h.cfg.Loaders - 1 {
		others.Go(load)
	}
	load()
	others.Wait()
	return nil
}

// loadSnapshot loads the newest intact snapshot. The one before it and the log make up for one that
// is damaged. They also make up for one that cannot be read. If they do not suffice, the start
// fails with the read error, because the file may be intact and readable later.
func (f snapshotFiles) loadSnapshot(r *replica) {
	for _, info := range f.directory.Of(uint32(r.shard)) {
		err := f.readSnapshot(r, info.Name)
		if err == nil {
			return
		}
		if vfs.IsReadFailure(err) {
			r.files.unread = err
			f.h.cfg.Logger.Error("a snapshot cannot be read; trying the one before it", "file", info.Name, "error", err)
			continue
		}
		f.h.cfg.Logger.Error("a snapshot is damaged; trying the one before it", "file", info.Name, "error", err)
	}
}

func (f snapshotFiles) readSnapshot(r *replica, name string) error {
	file, err := wal.OpenSnapshot(f.h.cfg.FS, f.snapshotDir(), name)
	if err != nil {
		return err
	}
	defer file.Close()
	m, err := record.DecodeMark(file.Meta().Conf)
	if err != nil {
		return fmt.Errorf("%s: membership: %w", name, err)
	}
	switch state, err := f.readState(file, r.shard, file.Meta().Hash); {
	case errors.Is(err, feature.ErrNewer): // the file is intact, and an older snapshot does not help
		r.stopped = fmt.Errorf("shard %d: %s: %w", r.shard, name, err)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	default:
		r.machine.replace(state)
	}
	r.place(m)
	r.files.Newest = m
	return nil
}

// place sets the replica and the start of its log for this node.
func (r *replica) place(m record.Mark) {
	r.id, r.applied, r.appliedTerm, r.membership.epoch = m.Replica, m.Index, m.Term, m.Epoch
	r.store.Reset(m.Index, m.Term, m.Conf)
}

func (r *recovery) replay(pos wal.Position, rec wal.Record) error {
	r.gen = pos.Gen
	return record.Fold(rec, r)
}

// Create implements record.Folder.
func (r *recovery) Create(m record.Mark) error {
	if rep := r.replica; r.fault == nil && rep.id == 0 {
		rep.place(m)
		rep.files.Created(r.gen)
	}
	return nil
}

// Tombstone implements record.Folder. It voids all earlier records of the replica.
func (r *recovery) Tombstone(id uint64) error {
	rep := r.replica
	rep.tombstone = max(rep.tombstone, id)
	if hasLater := rep.id > id; hasLater { // its snapshot was loaded already
		rep.files.Void()
	} else {
		rep.reset()
		rep.files = filesState{unread: rep.files.unread}
	}
	rep.files.Buried(r.gen) // until the files of the earlier replica are deleted; see leftovers
	*r = *recoveryOf(rep)
	return nil
}

// HardState implements record.Folder. It applies the entries that are committed by now.
func (r *recovery) HardState(hard record.HardState) error {
	r.hard, r.known = hard, true
	r.replica.files.Hard(r.gen)
	if r.fault == nil {
		r.commit(hard.Commit)
	}
	return nil
}

// Snapshot implements record.Folder. Only snapshots from peers matter here, since the log continues
// from them. The group's own snapshots are listed in their directory.
func (r *recovery) Snapshot(m record.Mark) error {
	if !m.Installed || r.replica.id != m.Replica {
		return nil
	}
	if m.Index > r.replica.applied {
		r.fault = fmt.Errorf("shard %d: its state came from another node as snapshot %d, which is missing or damaged", r.replica.shard, m.Index)
		return nil
	}
	hard := r.hard
	*r = *recoveryOf(r.replica)
	r.hard = hard
	r.replica.files.Continued(m.Index)
	return nil
}

// Entries implements record.Folder. It appends to the tail. An entry whose index exists already
// replaces that entry and all entries after it.
func (r *recovery) Entries(ents []record.Entry) error {
	rep := r.replica
	if r.fault != nil {
		return nil
	}
	if rep.id == 0 {
		r.fault = fmt.Errorf("shard %d: its log begins with entry %d, and what came before it is unknown: a snapshot is missing or damaged", rep.shard, ents[0].Index)
		return nil
	}
	for _, e := range ents {
		if e.Index > rep.files.Newest.Index {
			rep.files.Grew(e.Data)
		}
		if e.Index == rep.applied {
			if r.alien = e.Term != rep.appliedTerm; r.alien {
				r.log = r.log[:r.next]
			}
		}
		if e.Index <= rep.applied || r.alien {
			continue
		}
		tail, at := len(r.log)-r.next, e.Index-rep.applied-1
		if at > uint64(tail) {
			r.fault = fmt.Errorf("shard %d: entry %d follows %d: entries between them are missing", rep.shard, e.Index, rep.applied+uint64(tail))
			return nil
		}
		e.Data = append([]byte(nil), e.Data...)
		r.log = append(r.log[:r.next+int(at)], e)
	}
	rep.files.Reached(r.gen, ents[len(ents)-1].Index)
	return nil
}

// commit applies the entries up to index, or up to the first membership change. If the log ends
// before index, a snapshot from a peer superseded it that is not there any more. Then the entries
// may never have been committed, and none is applied: its events would reach the history.
func (r *recovery) commit(index uint64) {
	rep := r.replica
	if index > rep.applied+uint64(len(r.log)-r.next) {
		return
	}
	for ; r.next < len(r.log) && r.log[r.next].Index <= index && !r.stop; r.next++ {
		e := &r.log[r.next]
		if e.Type != pb.EntryNormal {
			r.stop = true
			break
		}
		if err := rep.replayEntry(e); err != nil {
			r.stop, r.stopped = true, fmt.Errorf("shard %d: entry %d cannot be applied: %w", rep.shard, e.Index, err)
			break
		}
		rep.applied, rep.appliedTerm = e.Index, e.Term
		rep.notifyApplied(rep.applied)
		r.bytes += len(e.Data) + raftlog.EntryOverhead
	}
	r.trim()
}

// trim keeps up to RetainBytes of applied entries for followers that lack them. A sole voter
// without learners keeps none.
func (r *recovery) trim() {
	rep, keep := r.replica, r.replica.w.host.retained()
	if rep.soleVoter() && len(rep.store.Conf.Learners) == 0 {
		keep = 0
	}
	for ; r.bytes > keep; r.first++ {
		e := &r.log[r.first]
		r.bytes -= len(e.Data) + raftlog.EntryOverhead
		rep.store.Reset(e.Index, e.Term, rep.store.Conf)
		e.Data = nil
	}
	if r.first > len(r.log)/2 { // not at each commit: far more may be kept than was added
		n := copy(r.log, r.log[r.first:])
		clear(r.log[n:])
		r.log, r.next, r.first = r.log[:n], r.next-r.first, 0
	}
}

// tail returns the meta group's commands that are not applied yet.
func (r *recovery) tail() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, e := range r.log[r.next:] {
			if e.Type != pb.EntryNormal {
				continue
			}
			_, in, err := readMetaEntry(e.Data)
			if err != nil {
				continue // of a newer release: it stops the replica when it is applied
			}
			for len(in.Rest) > 0 {
				cmd := in.Bytes()
				if in.Fault != "" || !yield(cmd) {
					break
				}
			}
		}
	}
}

func (r *replica) replayEntry(e *record.Entry) (err error) {
	if len(e.Data) == 0 {
		return nil
	}
	if err := r.w.host.mayRead(e.Data); err != nil {
		return err
	}
	return r.machine.replay(e)
}

// finish starts raft, or creates the meta group's replica in a fresh directory.
func (r *recovery) finish() error {
	rep := r.replica
	if r.fault != nil {
		return damageError{r.fault}
	}
	switch {
	case rep.id != 0:
	case r.known:
		return damageError{fmt.Errorf("shard %d: the log has entries of its replica, but not its beginning: a snapshot is missing or damaged", rep.shard)}
	case rep.shard != Meta:
		return nil // the assignment decides whether there is to be a replica
	default:
		if rep.w.host.cfg.Meta == nil {
			return damageError{fmt.Errorf("the data directory %s holds nothing of the meta group", rep.w.host.cfg.Dir)}
		}
		rep.membership.row = *rep.w.host.cfg.Meta
		me := placement.On(rep.membership.row.Members, rep.w.host.cfg.Node)
		if me == nil {
			return fmt.Errorf("shard: the meta group's first row does not name node %010x", rep.w.host.cfg.Node)
		}
		rep.create(me.Replica)
		return nil
	}
	if r.hard.Term < rep.appliedTerm { // a snapshot is later than the last hard state
		r.hard.Term, r.hard.Vote = rep.appliedTerm, 0
	}
	unlogged := rep.files.Newest.Index > r.hard.Commit // only its file has the snapshot's last entry, perhaps
	r.hard.Commit = max(r.hard.Commit, rep.applied)
	ents := make([]*pb.Entry, 0, len(r.log)-r.first)
	for _, e := range r.log[r.first:] {
		ents = append(ents, &pb.Entry{Index: &e.Index, Term: &e.Term, Type: &e.Type, Data: e.Data})
	}
	if !rep.store.Append(ents) {
		return damageError{fmt.Errorf("shard %d: the log has a gap behind entry %d", rep.shard, rep.applied)}
	}
	if r.hard.Commit > rep.store.Last() {
		return damageError{fmt.Errorf("shard %d: entries up to %d are committed, but the log ends at %d: a snapshot is missing or damaged",
			rep.shard, r.hard.Commit, rep.store.Last())}
	}
	rep.written.hard = r.hard
	rep.written.end = rep.store.Last()
	rep.store.OfferSnapshot = func() (*pb.Snapshot, error) { return rep.snapshots.offer(rep) }
	rep.membership.index = rep.applied // at the latest: earlier changes are in the membership
	rep.store.Hard = &pb.HardState{Term: &r.hard.Term, Vote: &r.hard.Vote, Commit: &r.hard.Commit}
	rep.files.Trim()
	rep.files.savedAt = rep.w.host.cfg.Clock.Mono() // or before
	if r.alien || unlogged {
		// The process before ended between saving a snapshot and logging its mark. The commit index
		// goes before any answer: a later start without the file then finds that entries are
		// missing. If the log has other entries, the mark goes before any new one, which would
		// otherwise be void, too, for the next process.
		rep.written.dirty = true
		rep.w.append(appended{group: rep, mark: r.alien, installed: r.alien, sync: true})
	}
	if r.stopped != nil {
		rep.stop(r.stopped)
		return nil
	}
	if err := rep.newRaft(); err != nil {
		return err
	}
	if rep.soleVoter() {
		if err := rep.raft.Campaign(); err != nil {
			return fmt.Errorf("shard %d: campaign: %w", rep.shard, err)
		}
	}
	rep.w.touchNext(rep)
	return nil
}

// halt ends the host for good. The reason is on disk before the host fails.
func (h *Host) halt(why *halt.Error) {
	h.halting.Do(func() {
		h.fail(refuse(&h.cfg, why))
	})
}

// outnumbered is why a start is refused that counts fewer shards than the data directory has
// something of. A node stores how many there are in identity.json before it has anything of a new
// one. Without them it would count their replicas as empty, though they have voted.
func outnumbered(shards int, shard uint32, what string) *halt.Error {
	return &halt.Error{Reason: halt.OldDirectory, Err: fmt.Errorf("identity.json was put back from before the number of shards grew: it has %d, and this directory has %s of shard %d",
		shards, what, shard)}
}

// refuse records a halt of a process that has not begun.
func refuse(cfg *Config, why *halt.Error) error {
	return halt.Record(cfg.FS, cfg.Dir, cfg.Clock.Look().WallMs, why)
}

// damageError is in the error of a start that lacks something which this node had on its disk.
type damageError struct{ err error }

func (e damageError) Error() string { return e.err.Error() }

func (e damageError) Unwrap() error { return e.err }

// Damaged reports that a start failed because the data directory is not what this node left on its
// disk: the log is damaged before its end, or a file is missing or damaged that nothing on this
// disk makes up for. Such a directory is not started on again. A disk that does not read now, and a
// file of another release, are not damage.
func Damaged(err error) bool {
	if _, ok := errors.AsType[damageError](err); ok {
		return true
	}
	c, ok := errors.AsType[*wal.CorruptionError](err)
	return ok && !c.OtherRelease()
}

// checkLog refuses a directory that has had a log and has none. Snapshots do not make up for it:
// the last acknowledged changes are in the log alone.
func checkLog(cfg *Config) error {
	if cfg.Meta != nil {
		return nil // of a new node
	}
	dir := filepath.Join(cfg.Dir, "wal")
	if _, err := cfg.FS.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return damageError{fmt.Errorf("shard: the folder %s is missing; it alone has what was acknowledged last", dir)}
	}
	return nil
}
