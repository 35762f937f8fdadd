package shard

import (
	"errors"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wal"
)

// Each node creates the child of a divided shard for itself: the parent's table is saved, as for
// a snapshot; a goroutine loads the child's half of it as a table, which is the same on all nodes,
// and writes that as the child's first snapshot; then the child's replica begins with it. Until the
// parent's table is swept this can be done again after a crash. A node that was so far behind that
// its parent's table is swept makes a replica that knows nothing, and learns from the leader: it
// has never voted.
//
// Invariant: no replica of a group with Assignment.From is founded empty.

// creationTimeout is how long commands wait at a node for the child's first leader.
const creationTimeout = 2 * time.Second

// awaited reports that a group will have a replica here in a moment.
type awaited struct{ *replica }

func (a awaited) handle(w *worker) {
	a.awaitUntil = w.now.Mono + creationTimeout
	a.public.awaitedSince.Store(max(1, int64(w.now.Mono))) // publish takes it back if the replica is here, or will not be
	a.replica.publish()
}

// awaitsCreation reports whether a child without a replica here may get one of the first: not if
// these are on other nodes, as where this one joined the parent's members later, and not if it was
// moved away since.
func (r *replica) awaitsCreation() bool {
	row := &r.membership.row
	return row.Group == 0 || r.tombstone < firstReplica(row, r.w.host.cfg.Node)
}

// createChildren makes this node's replicas of the children, where that is due.
func (d *division) createChildren() {
	for i := range d.rows {
		d.createChild(&d.rows[i])
	}
}

func (d *division) createChild(row *Assignment) {
	s := d.s
	h := s.g.w.host
	if h.group(row.Group).public.present.Load() || s.g.w.now.Mono < d.createAt {
		return
	}
	child, replica := h.group(row.Group), firstReplica(row, h.cfg.Node)
	switch of := d.of(row.Group); {
	case replica == 0:
	case s.g.raft != nil && s.table.DividedOf() < of: // later
	case s.g.raft != nil && s.table.DividedOf() == of && s.table.Leaving() && !s.table.Swept():
		s.g.w.beginCreation(s, child, row, replica)
	default:
		child.w.box.post(&childCreated{child: child, replica: replica})
	}
}

// creationFloor is how many bytes the creation of a child leaves free: less than other snapshots
// do, because the child's timers wait for it. No division begins while a voter's disk is low.
func creationFloor(s *wal.Stream) uint64 { return s.SnapshotFloor() / 4 }

// beginCreation starts to save the parent's table, in place of a snapshot that is being written.
func (w *worker) beginCreation(s *timerShard, child *replica, row *Assignment, replica uint64) {
	if w.snapshot != nil {
		if w.snapshot.child != nil {
			return
		}
		w.snapshot.feed.Abort()
	}
	s.division.createAt = w.now.Mono + wantedSnapshotRetry
	if !w.stream.HasRoom(uint64(s.table.MemoryBytes())/2, creationFloor(w.stream)) {
		w.host.cfg.Logger.Error("not enough disk space to create the new shard, whose timers wait for it: free some; the node then tries again", "shard", uint32(child.shard), "free", w.stream.Disk().Free)
		return
	}
	run := &snapshotRun{group: s.g, child: child, begun: w.now.Mono}
	run.mark = record.Mark{Replica: replica, Index: restoredIndex, Term: foundingTerm, Epoch: 1, Conf: &pb.ConfState{}}
	for _, m := range row.FirstMembers() {
		run.mark.Conf.Voters = append(run.mark.Conf.Voters, m.Replica)
	}
	w.begin(run, s.table.BeginChild())
	leads := s.g.serving
	w.host.inBackground(func() {
		state, err := w.host.writeChild(run)
		if err == nil {
			child.w.box.post(&childCreated{child: child, replica: replica, state: state, mark: run.mark, first: leads})
		}
		w.box.post(&snapshotWritten{run: run, done: true, err: err})
	})
	w.feedSnapshot()
}

// writeChild makes the child's table of what its parent's feed has, and writes it to a file.
func (f snapshotFiles) writeChild(run *snapshotRun) (*table.Table, error) {
	t, err := table.LoadChild(run.group.shard, run.child.shard, run.feed)
	if ended := run.feed.End(); err == nil {
		err = ended
	}
	if err != nil {
		return nil, err
	}
	run.mark.Hash = t.Hash()
	meta, err := writeState(f.h.cfg.FS, f.snapshotDir(), run.child.shard, run.mark, creationFloor(f.h.stream), t.BeginSnapshot())
	f.directory.Add(meta)
	return t, err
}

// creationDone ends the parent's part.
func (w *worker) creationDone(run *snapshotRun, err error) {
	w.snapshot = nil
	if err != nil && !errors.Is(err, timer.ErrStopped) {
		w.host.cfg.Logger.Error("a shard could not be divided, as its new one was not created; the node tries again", "shard", uint32(run.child.shard), "error", err)
	}
}

// childCreated passes the child's first state to its worker; nil: it learns from the leader.
type childCreated struct {
	child   *replica
	replica uint64
	state   *table.Table
	mark    record.Mark
	first   bool // this node led the parent: it is the first to stand for the leadership
}

func (c *childCreated) handle(w *worker) {
	r := c.child
	if r.id != 0 || r.tombstone >= c.replica || firstReplica(&r.membership.row, w.host.cfg.Node) != c.replica {
		r.leftovers.some = true
		return
	}
	if c.state == nil {
		r.create(c.replica)
		return
	}
	r.machine.replace(c.state)
	r.files = filesState{}
	r.files.Newest = c.mark
	r.files.savedAt = w.now.Mono
	if !r.begin(c.mark) {
		return
	}
	r.membership.index = c.mark.Index
	r.written.dirty = true
	w.append(appended{group: r, mark: true, installed: true, sync: true})
	if c.first || r.soleVoter() {
		// The others' replicas are created one by one: it asks again often.
		r.election.begin(w.now.Mono, creationTimeout, candidacyGap)
		r.election.stand(r)
	}
	w.touchNext(r)
}
