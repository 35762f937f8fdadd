package shard

import (
	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wal"
	"path/filepath"
	"sync/atomic"
	"time"
)

// When a snapshot is due.
const (
	snapshotLogBytes = 32 << 20 // default of Config; and at least as much log as state
	snapshotRetry    = 30 * time.Second
	wantedRetry      = 2 * time.Second // … when a follower waits for it, without which there may be no majority
	snapshotChunk    = 256 << 10
	snapshotQueue    = 4 // chunks on their way to the file
	// A group that is idle for so long after its newest snapshot gives up the older one. One with a
	// canary never is.
	settleAfter = 3 * canaryEach
)

// snapshotRun is a snapshot being written: the worker saves the table in slices between its turns,
// a goroutine writes the file.
type snapshotRun struct {
	group  *group
	mark   record.Mark
	meta   wal.SnapshotMeta
	state  Saving
	chunks chan []byte
	begun  time.Duration
	broken atomic.Bool // the feed ended early: the file must not be kept
	pieces []int       // how much room each has that the file has not taken, as the worker knows
}

// held is what the snapshot holds of memory beside the state.
func (s *snapshotRun) held() (n int64) {
	n = s.state.Held()
	for _, room := range s.pieces {
		n += int64(room)
	}
	return n
}

// abort ends the feed early.
func (s *snapshotRun) abort() {
	if s.chunks == nil {
		return
	}
	s.broken.Store(true)
	close(s.chunks)
	s.chunks = nil
	s.state.Abort()
}

// snapshotWritten is told by the writing goroutine: a chunk was taken, or the file is complete.
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
	s.run.pieces = s.run.pieces[1:]
	w.feedSnapshot()
}

// tickSnapshots starts the next snapshot that is due, one at a time and the groups in turn: one
// that is always due keeps no other from its own. What the log must keep is said whether one is
// under way or not.
func (w *worker) tickSnapshots() {
	if w.snapshot != nil {
		w.feedSnapshot()
	}
	for n := 0; n < len(w.groups) && w.snapshot == nil; n++ {
		at := (w.snapshotTurn + n) % len(w.groups)
		if w.tickFiles(w.groups[at]); w.snapshot != nil {
			w.snapshotTurn = at + 1
		}
	}
	needed := w.stream.Generation()
	for _, g := range w.groups {
		g.tickLeftovers()
		if g.hasLocalState() {
			needed = min(needed, g.files.needed())
		}
	}
	w.needed.Store(needed)
}

// tickFiles does what is due for a group's files, so that it does not hold back old generations of
// the log.
func (w *worker) tickFiles(g *group) {
	if !g.hasLocalState() || g.stopped != nil || g.quarantine != nil || g.damaged {
		return // and there is nothing to write
	}
	current := w.stream.Generation()
	pinned := g.files.needed() < current && current-g.files.needed() > max(1, w.host.pinnable.Load())
	switch {
	case pinned && !g.files.restating && g.empty():
		w.rewriteMarker(g)
	case g.replica == 0 || !g.mayTry(w.now.Mono) || g.applied < foundingIndex || g.applied == foundingIndex && !g.wantSnapshot:
	case g.wantSnapshot:
		w.beginSnapshot(g)
	case pinned && g.applied == g.files.newest && w.now.Mono-g.files.savedAt > settleAfter:
		g.files.settle()
		g.files.savedAt = w.now.Mono // not again while this mark is on its way
		w.mark(g)
	case pinned && g.applied > g.files.newest, g.files.logBytes > max(w.host.cfg.SnapshotLogBytes, g.stateBytes()):
		w.beginSnapshot(g)
	}
}

// mayTry says whether it is long enough since a snapshot could not be written.
func (g *group) mayTry(now time.Duration) bool {
	wait := snapshotRetry
	if g.wantSnapshot {
		wait = wantedRetry
	}
	return g.files.failedAt == 0 || now-g.files.failedAt >= wait
}

func (g *group) stateBytes() int64 {
	if g.table == nil {
		return 0
	}
	return g.table.MemoryBytes()
}

// BeginSnapshotAt begins one, unless the disk has no room for it: then it is tried again later, and
// what is left is the log's.
func (w *worker) beginSnapshot(g *group) {
	if !w.stream.HasRoom(uint64(g.stateBytes())) {
		g.files.failedAt = w.now.Mono
		w.host.cfg.Logger.Error("no room for a snapshot; the log keeps growing until there is", "shard", uint32(g.id), "bytes", g.stateBytes(), "free", w.stream.Disk().Free)
		return
	}
	g.wantSnapshot = false
	run := &snapshotRun{group: g, chunks: make(chan []byte, snapshotQueue), begun: w.now.Mono}
	run.mark = record.Mark{Replica: g.replica, Index: g.applied, Term: g.appliedTerm, Conf: g.store.conf, Epoch: g.epoch}
	run.meta = wal.SnapshotMeta{Shard: uint32(g.id), Index: g.applied, Term: g.appliedTerm, Conf: record.AppendMark(nil, run.mark)}
	if g.table != nil {
		run.state = g.table.BeginSnapshotAt(table.HashVersionOf(w.host.agreed()))
	} else {
		run.state = g.meta.machine.BeginSave()
	}
	run.meta.Hash = run.state.Hash()
	w.snapshot = run
	chunks, before := run.chunks, g.files.newest
	if g.files.suspect != 0 {
		before = 0 // what was written before goes
	}
	w.host.inBackground(func() {
		err := w.host.writeSnapshot(run, chunks, func() { w.box.post(&snapshotWritten{run: run}) })
		if err == nil {
			w.host.removeSnapshots(g.id, run.meta.Index, before)
		}
		w.box.post(&snapshotWritten{run: run, done: true, err: err})
	})
	w.feedSnapshot()
}

// feedSnapshot hands on as many pieces as the writer has room for, and no more than one turn's
// worth.
func (w *worker) feedSnapshot() {
	run := w.snapshot
	if run.chunks == nil || len(run.chunks) == cap(run.chunks) {
		return
	}
	chunk, done := run.state.Next(make([]byte, 0, snapshotChunk+4096), snapshotChunk)
	run.pieces = append(run.pieces, cap(chunk))
	run.chunks <- chunk
	if !done {
		return
	}
	if !run.state.Sound() {
		run.broken.Store(true)
		w.endSnapshotFeed()
		run.group.memoryFailed()
		return
	}
	w.endSnapshotFeed()
}

func (w *worker) endSnapshotFeed() {
	close(w.snapshot.chunks)
	w.snapshot.chunks = nil
}

// writeSnapshot writes the chunks to a file until their channel closes; took is called after each.
func (h *Host) writeSnapshot(run *snapshotRun, chunks <-chan []byte, took func()) error {
	file, err := wal.CreateSnapshot(h.cfg.FS, h.snapshotDir(), run.meta)
	if err == nil {
		file.KeepFree(h.stream.SnapshotFloor())
	}
	for chunk := range chunks {
		if err == nil {
			_, err = file.Write(chunk)
		}
		took()
	}
	if err == nil && run.broken.Load() {
		err = timer.ErrStopped
	}
	if err != nil {
		if file != nil {
			file.Abort()
		}
		return err
	}
	return file.Commit()
}

// removeSnapshots removes the files of a group but two: the newest, and the one before, which is
// known to be whole.
func (h *Host) removeSnapshots(id timer.ShardID, newest, before uint64) {
	list, err := wal.Snapshots(h.cfg.FS, h.snapshotDir())
	for _, s := range list {
		if err == nil && s.Shard == uint32(id) && s.Index < newest && s.Index != before { // a later one may just have come from a peer
			err = h.cfg.FS.Remove(filepath.Join(h.snapshotDir(), s.Name))
		}
	}
	if err != nil {
		h.cfg.Logger.Error("old snapshots could not be removed; they are tried again after the next", "shard", uint32(id), "error", err)
	}
}

func (w *worker) snapshotDone(s *snapshotWritten) {
	w.snapshot = nil
	g := s.run.group
	if g.replica != s.run.mark.Replica {
		g.leftovers.some = true
		return // the replica was removed
	}
	suspect := g.files.suspect
	switch newest := g.files.newest; {
	case suspect != 0: // what is there is of a state that was wrong: this is in its place
	case newest > s.run.mark.Index:
		return // a newer snapshot came from a peer
	case newest == s.run.mark.Index && g.files.newestConf != nil:
		return // it is there already; else it could not be read, and this is in its place
	}
	if s.err != nil {
		g.files.failedAt = w.now.Mono
		w.host.cfg.Logger.Error("snapshot failed; the log keeps growing until one succeeds", "shard", uint32(g.id), "error", s.err)
		return
	}
	w.host.cfg.Observer.Snapshot(w.now.Mono - s.run.begun)
	g.files.saved(&s.run.mark)
	if suspect != 0 && s.run.mark.Index >= suspect {
		g.files.suspect = 0
		g.files.settle()
	}
	g.files.savedAt = w.now.Mono
	w.mark(g)
}

// empty reports that nothing but the record of its beginning, or of its end, is in the log. One
// that has entries and has applied none holds the log until it can: its creation must stay in front
// of them.
func (g *group) empty() bool { return g.replica == 0 || max(g.applied, g.end.Index) <= foundingIndex }
