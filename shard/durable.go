package shard

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/raftlog"
	"carillon/shard/record"
	"carillon/wal"
)

// frameWriter holds a worker's frames, from the open one to those on their way to disk.
type frameWriter struct {
	frame      *wal.Frame    // the open one
	openedAt   time.Duration // when it was
	prompt     bool          // a part of it may not wait; see waitsForOthers
	parts      []appended    // of it
	filling    *sentFrame    // carries it
	operations int           // proposed since a frame was submitted
	closed     []*sentFrame  // to be submitted when the log has fewer
	inflight   []*sentFrame
	queueable  int // bound of inflight
	unsynced   int // bytes of closed and inflight frames, with partOverhead for each part
	scratch    []byte
	frames     []*sentFrame // free, for reuse
}

// appended is one group's part of a frame.
type appended struct {
	group     *replica
	entries   []*pb.Entry
	responses []*pb.Message
	sync      bool
	spare     bool         // entries of a spare voter alone: they may wait
	hard      bool         // the frame has the hard state
	mark      bool         // the frame has the mark of the newest snapshot
	installed bool         // that snapshot came from a peer
	create    *record.Mark // creation of the replica
	replica   uint64       // as of the append: the group may have another by the sync
	installs  uint64       // as of the append: a snapshot may have replaced the entries since
	tombstone uint64       // id of a replica that is given up
}

// sentFrame is a frame on its way to disk.
type sentFrame struct {
	frame *wal.Frame
	parts []appended
	bytes int // as counted in frameWriter.unsynced
	pos   wal.Position
	err   error
	w     *worker
	done  func(wal.Position, error) // called by the log
}

func (w *worker) newSent() *sentFrame {
	s := &sentFrame{frame: wal.NewFrame(), w: w}
	s.done = func(pos wal.Position, err error) {
		s.pos, s.err = pos, err
		w.box.post(s)
	}
	return s
}

func (s *sentFrame) handle(w *worker) { w.frameDone(s) }

// queueable returns how many frames each worker may have on their way to disk, so that the log's
// queue is never full.
func queueable(queue, workers int) int { return min(max(queue/(2*workers), maxFrames), queuedFrames) }

// append adds the entries and the state that raft wants durable to this turn's frame. The responses
// are sent when the frame is on disk.
func (r *replica) append(m *pb.Message) {
	a := appended{group: r, entries: m.Entries, responses: m.Responses}
	if m.Snapshot != nil {
		r.snapshots.install(r, m.Snapshot)
		a.mark, a.installed, a.sync = true, true, true
	}
	if m.Term != nil {
		// A new commit index alone need not be durable: it can be learned again.
		a.sync = a.sync || m.GetTerm() != r.written.hard.Term || m.GetVote() != r.written.hard.Vote
		r.written.hard = record.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
		r.written.dirty = true
	}
	a.spare = !a.sync && len(m.Entries) > 0 && r.membership.spare(r)
	a.sync = a.sync || len(m.Entries) > 0
	r.w.append(a)
}

// append adds a group's part to this turn's frame. A part that needs no sync (a new commit index)
// joins the newest unsynced frame, and its responses are sent when that frame is on disk.
func (w *worker) append(a appended) {
	r := a.group
	a.replica, a.installs = r.id, r.snapshots.installs
	if !a.sync {
		switch {
		case len(a.responses) == 0:
		case w.out.frame != nil:
			w.out.parts = append(w.out.parts, a)
		case len(w.out.closed) > 0:
			w.out.closed[len(w.out.closed)-1].add(a)
		case len(w.out.inflight) > 0:
			w.out.inflight[len(w.out.inflight)-1].add(a)
		default:
			r.step(a.responses)
		}
		return
	}
	w.openFrame()
	if a.tombstone != 0 {
		w.out.scratch = record.AppendTombstone(w.out.scratch[:0], a.tombstone)
		w.out.frame.Append(wal.RecordReplicaTombstone, uint32(r.shard), w.out.scratch)
	}
	if a.create != nil {
		w.out.scratch = record.AppendMark(w.out.scratch[:0], *a.create)
		w.out.frame.Append(wal.RecordReplicaCreate, uint32(r.shard), w.out.scratch)
	}
	if a.mark {
		f := &r.files
		w.out.scratch = record.AppendMark(w.out.scratch[:0], record.Mark{Replica: r.id, Index: f.Newest.Index, Term: f.Newest.Term, Conf: f.Newest.Conf, Epoch: f.Newest.Epoch, Installed: a.installed})
		w.out.frame.Append(wal.RecordSnapMark, uint32(r.shard), w.out.scratch)
		if a.installed {
			r.written.end = f.Newest.Index
		}
	}
	a.entries = w.appendLeading(&a)
	if len(a.entries) > 0 {
		w.appendEntries(r, a.entries)
	}
	if r.written.dirty {
		w.appendHard(r, r.written.hard)
		r.written.dirty = false
		a.hard = true
	}
	w.out.parts = append(w.out.parts, a)
	w.out.prompt = w.out.prompt || !a.spare
	if w.out.frame.Len() >= w.host.cfg.FrameBytes {
		w.closeFrame()
	}
}

// appendLeading appends the entries of a part that exceed one frame, and returns the rest. The rest
// goes into the last frame, with the hard state and the part's responses. After a power cut between
// these frames, the log is as if the leader had sent less. The term and vote come first, so that no
// entry has a later term than the replica.
func (w *worker) appendLeading(a *appended) []*pb.Entry {
	r, ents := a.group, a.entries
	for {
		n, bytes := 0, 0
		for n < len(ents) && (n == 0 || bytes+len(ents[n].Data) <= w.host.cfg.FrameBytes) {
			bytes += len(ents[n].Data) + raftlog.EntryOverhead
			n++
		}
		if n == len(ents) {
			return ents
		}
		if r.written.dirty {
			early := r.written.hard
			early.Commit = min(early.Commit, ents[0].GetIndex()-1)
			w.appendHard(r, early)
		}
		w.appendEntries(r, ents[:n])
		first := appended{group: r, replica: a.replica, installs: a.installs, entries: ents[:n], sync: true}
		first.create, a.create = a.create, nil
		w.out.parts = append(w.out.parts, first)
		ents = ents[n:]
		w.closeFrame()
		w.openFrame()
	}
}

func (w *worker) appendEntries(r *replica, ents []*pb.Entry) {
	w.out.frame.AppendFunc(wal.RecordEntries, uint32(r.shard), func(dst []byte) []byte { return record.AppendEntries(dst, ents) })
	last := ents[len(ents)-1]
	r.written.end = last.GetIndex()
}

func (w *worker) appendHard(r *replica, hard record.HardState) {
	w.out.scratch = record.AppendHardState(w.out.scratch[:0], hard)
	w.out.frame.Append(wal.RecordHardState, uint32(r.shard), w.out.scratch)
}

// openFrame opens a frame unless one is open.
func (w *worker) openFrame() {
	if w.out.frame == nil {
		w.out.frame = w.newFrame()
	}
}

func (w *worker) newFrame() *wal.Frame {
	if n := len(w.out.frames); n > 0 {
		w.out.filling = w.out.frames[n-1]
		w.out.frames = w.out.frames[:n-1]
		w.out.filling.frame.Reset()
	} else {
		w.out.filling = w.newSent()
	}
	w.out.parts = w.out.filling.parts[:0]
	w.out.openedAt, w.out.prompt = w.now.Mono, false
	return w.out.filling.frame
}

// add makes a part that needs no sync wait for a frame that is on its way to disk.
func (s *sentFrame) add(a appended) {
	s.parts = append(s.parts, a)
	s.bytes += partOverhead
	s.w.out.unsynced += partOverhead
}

func (w *worker) closeFrame() {
	s := w.out.filling
	s.parts = w.out.parts
	s.bytes = w.out.frame.Len() + len(w.out.parts)*partOverhead
	w.out.unsynced += s.bytes
	w.out.closed = append(w.out.closed, s)
	w.out.frame, w.out.filling, w.out.parts = nil, nil, nil
}

// flush ends a turn: it sends the turn's messages, and submits frames to the log as long as fewer
// than queueable are on their way. The others wait here, and later parts gather in the open frame,
// so that a disk that hangs does not fill the log's queue.
func (w *worker) flush() {
	if w.host.ended.Load() {
		return
	}
	for i := range w.outbox {
		if o := &w.outbox[i]; len(o.frame) > 0 {
			o.leave(w)
		}
	}
	for len(w.out.inflight) < w.out.queueable {
		if len(w.out.closed) == 0 {
			if w.out.frame == nil || w.waitsForOthers() {
				return
			}
			w.closeFrame()
		}
		s := w.out.closed[0]
		w.out.closed = slices.Delete(w.out.closed, 0, 1)
		w.out.inflight = append(w.out.inflight, s)
		w.host.cfg.Observer.Frame(w.out.operations)
		w.out.operations = 0
		if err := w.stream.Submit(s.frame, true, s.done); err != nil {
			w.host.fail(err)
		}
	}
}

// full reports that the bytes that wait for the disk have reached their bound. Entries from a
// leader are then dropped, as if the network had lost them: the leader sends them again.
func (w *worker) full() bool { return w.waitingBytes()+w.budget.heard >= w.host.cfg.UnsyncedBytes }

// waitingBytes returns the bytes that wait for the disk, including the open frame.
func (w *worker) waitingBytes() int {
	if w.out.frame == nil {
		return w.out.unsynced
	}
	return w.out.unsynced + w.out.frame.Len() + len(w.out.parts)*partOverhead
}

// frameDone releases the parts of a frame that is on disk, in the order in which they were appended
// (I10).
func (w *worker) frameDone(s *sentFrame) {
	if s.err != nil {
		w.host.fail(s.err) // I20: nothing in this frame, or after it, is answered
		return
	}
	if w.out.inflight[0] != s {
		panic("shard: the log completed frames out of order")
	}
	w.out.inflight = slices.Delete(w.out.inflight, 0, 1)
	w.out.unsynced -= s.bytes
	for i := range s.parts {
		s.parts[i].group.durable(&s.parts[i], s.pos)
		s.parts[i] = appended{}
	}
	if len(w.out.frames) < maxFrames {
		w.out.frames = append(w.out.frames, s)
	}
	for i, r := range w.parked.stalled {
		r.turn.stalled = false
		w.touch(r)
		w.parked.stalled[i] = nil
	}
	w.parked.stalled = w.parked.stalled[:0]
}

// durable handles the group's part of a frame that is now on disk.
func (r *replica) durable(a *appended, pos wal.Position) {
	if a.tombstone != 0 {
		r.leftovers.add(r, a.tombstone)
		if r.id == 0 {
			r.files.Buried(pos.Gen)
			r.files.restating = false
			return
		}
	}
	if a.replica != r.id {
		return // the part is of an earlier replica
	}
	if a.create != nil {
		r.files.restating = false
	}
	if a.installs != r.snapshots.installs {
		// A snapshot was installed meanwhile. Its leader has other entries, or none, in place of
		// these.
		if a.hard {
			r.files.Hard(pos.Gen)
		}
		return
	}
	if a.create != nil {
		r.files.Created(pos.Gen)
	}
	if len(a.entries) > 0 {
		if !r.store.Append(a.entries) {
			panic(fmt.Sprintf("shard %d: gap in the log: entry %d after %d", r.shard, a.entries[0].GetIndex(), r.store.Last()))
		}
		for _, e := range a.entries {
			r.files.Grew(e.Data)
		}
		r.files.Reached(pos.Gen, a.entries[len(a.entries)-1].GetIndex())
	}
	if a.hard {
		r.files.Hard(pos.Gen)
	}
	if r.raft == nil { // the group is stopped
		r.w.countEntries(r)
		return
	}
	r.step(a.responses)
	r.w.touch(r)
}

// step delivers the responses of the log and the state machine to raft, or to peers.
func (r *replica) step(responses []*pb.Message) {
	for _, m := range responses {
		if m.GetTo() != r.id {
			r.send(m)
			continue
		}
		err := r.raft.Step(m)
		if errors.Is(err, raft.ErrStepPeerNotFound) {
			continue // its own removal was committed and applied before its disk answered
		}
		if err != nil {
			panic(fmt.Sprintf("shard %d: raft refused a local response: %v", r.shard, err))
		}
	}
}

// A spare voter is a follower that its leader needs for no majority, as long as the others do their
// part: of three voters one, of five two. Its entries wait a moment for a frame that the node
// writes anyway, of groups that it leads or in which it is no spare voter. So a node of three syncs
// two thirds as often. Who is spare follows from the order of the voters after the leader, so that
// leader and followers agree without a word, and each node is spare for others as often.

// spareFor is the longest wait. An entry is committed so much later while a voter that is not spare
// is away.
const spareFor = 5 * time.Millisecond

// spare reports whether this replica is a spare voter. During a change of members nobody is, nor in
// the meta group: nodes wait for their copy of its state.
func (m *membership) spare(r *replica) bool {
	if r.machine.prompt() {
		return false
	}
	voters := r.store.Conf.Voters
	leader, own := slices.Index(voters, r.raft.BasicStatus().Lead), slices.Index(voters, r.id)
	if leader < 0 || own < 0 || len(r.store.Conf.VotersOutgoing) > 0 {
		return false
	}
	after := (own - leader + len(voters)) % len(voters) // the leader
	return after > len(voters)/2
}

// waitsForOthers reports whether the open frame has only entries of spare voters, and still
// waits for others.
func (w *worker) waitsForOthers() bool {
	return w.out.frame != nil && !w.out.prompt && w.now.Mono < w.out.openedAt+spareFor
}
