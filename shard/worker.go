package shard

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/clocks"
	"carillon/shard/record"
	"carillon/timer"
	"carillon/wal"
)

const (
	tickInterval = 50 * time.Millisecond // raft's tick
	maxTicks     = 10                    // caught up at once after a stall; more would only start needless elections
	// maxFrames is how many frames of a worker may be on their way to disk before it proposes more:
	// what arrives meanwhile gathers into the next one. That is the group commit. Where nobody else
	// has a vote it is maxFramesAlone: fewer, larger frames cost less. With replicas, the time that
	// a frame takes to be committed is more than the disk's, and the second fills it.
	maxFrames      = 2
	maxFramesAlone = 1
	// maxTurnBytes is what the groups of a worker propose in one turn, give or take one entry: a
	// frame holds 64 MiB at most.
	maxTurnBytes = 16 << 20
	sweepEach    = 10 * time.Second

	// frameBytes and unsyncedBytes are the defaults of Config. A part, which is one entry at least,
	// goes beyond frameBytes: an entry has some 10 MiB at most, and the log takes frames of 64 MiB.
	frameBytes    = 8 << 20
	unsyncedBytes = 64 << 20
	// queuedFrames is how many frames of a worker the log has at most.
	queuedFrames = 64
	partOverhead = 512 // what a part counts beside its bytes
)

// worker owns some groups alone: their raft nodes, tables and wheels, without locks. Its loop is a
// sequence of turns (see turn); it never waits for a disk or a network.
type worker struct {
	host   *Host
	stream *wal.Stream
	box    *mailbox
	spare  []event
	groups []*group
	queued atomic.Int64 // client operations that have no answer yet

	now    clocks.Moment // the clocks of this turn
	looked bool

	dirty   []*group // to be worked on in this turn
	again   []*group // … in the next, without waiting
	stalled []*group // … when a frame is done

	alone bool // no group of it has another voter, as of the last tick

	outbox    []outgoing // by node, in the order in which they were first sent to
	peerBytes atomic.Int64

	frame      *wal.Frame
	parts      []appended   // what is in the frame
	filling    *sentFrame   // that will carry it
	operations int          // proposed in this turn
	proposed   int          // bytes of them
	scanned    int          // slots that long reads looked at in this turn
	closed     []*sentFrame // full, for the log when it has few enough
	inflight   []*sentFrame
	queueable  int // frames that may be on their way to disk
	heard      int // bytes of entries that raft took from leaders in this turn: they are about to be unsynced
	unsynced   int // bytes of the open frame and of those on their way to disk, and some for each part
	scratch    []byte
	frames     []*sentFrame // free

	// What is held of memory; see Memory.
	tables, arrivals int64 // as of the last tick
	entries          int   // of groups' logs, on disk
	told             int64 // in all, to the host
	pressure         pressure

	memory, replicas    atomic.Int64
	largest             atomic.Int64           // state of a group of it, in bytes
	fault               atomic.Pointer[string] // of one of its groups; see Host.Fault
	lastTick, lastSweep time.Duration
	snapshot            *snapshotRun
	snapshotTurn        int                      // whose turn it is for the next one
	needed              atomic.Uint64            // the oldest log generation that its groups need
	manifest            taken                    // its last one
	firedBy             map[timer.TopicID]*Fired // since TakeActivity
	scrubTurn           int                      // the group whose memory is looked through
}

// appended is one group's part of a frame.
type appended struct {
	group     *group
	entries   []*pb.Entry
	responses []*pb.Message
	sync      bool
	hard      bool         // the hard state is in it
	mark      bool         // the newest snapshot's place is in it
	installed bool         // … which came from a peer
	create    *record.Mark // the replica's beginning
	replica   uint64       // whose part it is: the group may have another by the time that it is on disk
	installs  uint64       // see group: a snapshot from a peer may have taken the entries' place by then
	tombstone uint64       // the replica is given up
}

// sentFrame is a frame on its way to disk.
type sentFrame struct {
	frame *wal.Frame
	parts []appended
	bytes int // as in unsynced
	pos   wal.Position
	err   error
	w     *worker
	done  func(wal.Position, error) // what the log calls
}

func (w *worker) newSent() *sentFrame {
	s := &sentFrame{frame: wal.NewFrame(), w: w}
	s.done = func(pos wal.Position, err error) {
		s.pos, s.err = pos, err
		w.box.post(s)
	}
	return s
}

// queueable is how many frames each of so many workers may have on their way to disk, so that the
// log's queue is never full.
func queueable(queue, workers int) int { return min(max(queue/(2*workers), maxFrames), queuedFrames) }

func (s *sentFrame) handle(w *worker) { w.frameDone(s) }

// run turns until the context ends.
func (w *worker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.box.wake:
		case <-timer.C:
		}
		for {
			// Whoever is ready to bring an operation goes first: it then shares this turn's entry
			// and fsync.
			runtime.Gosched()
			w.turn()
			if len(w.again) == 0 {
				break
			}
			if ctx.Err() != nil {
				return
			}
		}
		timer.Reset(w.untilWake())
	}
}

// turn is one round: take what has arrived, let time pass, work on the groups that have something
// to do, hand one frame to the log. A test or a simulator may call it instead of run.
func (w *worker) turn() {
	w.proposed, w.scanned, w.heard = 0, 0, 0
	for _, g := range w.again {
		g.again = false
		w.touch(g)
	}
	w.again = w.again[:0]
	w.look()
	events := w.box.take(w.spare)
	for i, e := range events {
		e.handle(w)
		events[i] = nil
	}
	w.spare = events[:0]
	w.tick()
	for _, g := range w.groups {
		if g.wakeMs <= w.now.WallMs {
			w.touch(g)
		}
	}
	for i := 0; i < len(w.dirty); i++ {
		g := w.dirty[i]
		g.touched = false
		g.work()
		w.countEntries(g)
	}
	w.dirty = w.dirty[:0]
	w.flush()
	w.account()
}

// touch puts a group into this turn.
func (w *worker) touch(g *group) {
	if !g.touched {
		g.touched = true
		w.dirty = append(w.dirty, g)
	}
}

// touchNext asks for another turn for the group, at once.
func (w *worker) touchNext(g *group) {
	if !g.again {
		g.again = true
		w.again = append(w.again, g)
	}
}

// stall puts a group aside until a frame is on disk.
func (w *worker) stall(g *group) {
	if !g.stalled {
		g.stalled = true
		w.stalled = append(w.stalled, g)
	}
}

// mayPropose is false while enough is on its way to disk, or that has no room.
func (w *worker) mayPropose() bool {
	frames := maxFrames
	if w.alone {
		frames = maxFramesAlone
	}
	return len(w.inflight) < frames && w.proposed < maxTurnBytes && !w.stream.Full()
}

// tick lets raft's time pass by the time that really has, and does what is done now and then.
func (w *worker) tick() {
	n := int((w.now.Mono - w.lastTick) / tickInterval)
	if n <= 0 {
		return
	}
	w.lastTick += time.Duration(n) * tickInterval
	memory, replicas, largest := int64(0), int64(0), int64(0)
	w.alone, w.arrivals, w.pressure = true, 0, w.host.pressure()
	low, fault := w.host.lowDisks(), ""
	for _, g := range w.groups {
		state := g.stateBytes()
		memory, largest = memory+state, max(largest, state)
		g.noteLowDisks(low)
		if fault == "" {
			fault = g.fault()
		}
		if g.raft == nil {
			if g.scheduler != nil {
				g.scheduler.Tick() // it reports calls that a replica which is gone had started
			}
			continue
		}
		replicas++
		if q := g.quarantine; q != nil && q.received != nil {
			w.arrivals += q.received.size
		}
		if w.pressure != roomy {
			g.compact()
		}
		w.alone = w.alone && g.soleVoter()
		for range min(n, maxTicks) {
			g.raft.Tick()
		}
		g.tick()
		w.touch(g)
	}
	if old := w.fault.Load(); old == nil || *old != fault {
		w.fault.Store(&fault)
	}
	w.tables = memory
	w.memory.Store(memory)
	w.largest.Store(largest)
	w.replicas.Store(replicas)
	w.tickScrub()
	w.tickManifest()
	w.tickSnapshots()
	if w.now.Mono-w.lastSweep >= sweepEach {
		w.lastSweep = w.now.Mono
		for _, g := range w.groups {
			if g.scheduler != nil {
				g.scheduler.Sweep()
			}
		}
	}
}

// append adds a group's part to this turn's frame. One that needs no disk (a new commit index)
// rides along with what was appended before it, and its responses leave after that.
func (w *worker) append(a appended) {
	g := a.group
	a.replica, a.installs = g.replica, g.installs
	if !a.sync {
		switch {
		case len(a.responses) == 0:
		case w.frame != nil:
			w.parts = append(w.parts, a)
		case len(w.closed) > 0:
			w.closed[len(w.closed)-1].add(a)
		case len(w.inflight) > 0:
			w.inflight[len(w.inflight)-1].add(a)
		default:
			g.step(a.responses)
		}
		return
	}
	w.openFrame()
	if a.tombstone != 0 {
		w.scratch = record.AppendTombstone(w.scratch[:0], a.tombstone)
		w.frame.Append(wal.RecordReplicaTombstone, uint32(g.id), w.scratch)
	}
	if a.create != nil {
		w.scratch = record.AppendMark(w.scratch[:0], *a.create)
		w.frame.Append(wal.RecordReplicaCreate, uint32(g.id), w.scratch)
	}
	if a.mark {
		f := &g.files
		w.scratch = record.AppendMark(w.scratch[:0], record.Mark{Replica: g.replica, Index: f.newest, Term: f.newestTerm, Conf: f.newestConf, Epoch: f.newestEpoch, Installed: a.installed})
		w.frame.Append(wal.RecordSnapMark, uint32(g.id), w.scratch)
		if a.installed {
			g.end = record.EntryID{Index: f.newest, Term: f.newestTerm}
		}
	}
	a.entries = w.appendLeading(&a)
	if len(a.entries) > 0 {
		w.appendEntries(g, a.entries)
	}
	if g.hardDirty {
		w.appendHard(g, g.hard)
		g.hardDirty = false
		a.hard = true
	}
	w.parts = append(w.parts, a)
	if w.frame.Len() >= w.host.cfg.FrameBytes {
		w.closeFrame()
	}
}

// appendLeading gives the log what goes beyond one frame of a part's entries, and returns the rest,
// which is to come last, with the hard state and what the part's responses wait for. A power cut
// between two of these frames leaves a log as if the leader had sent less; the term and vote come
// first, so that no entry is of a later term than the replica's.
func (w *worker) appendLeading(a *appended) []*pb.Entry {
	g, ents := a.group, a.entries
	for {
		n, bytes := 0, 0
		for n < len(ents) && (n == 0 || bytes+len(ents[n].Data) <= w.host.cfg.FrameBytes) {
			bytes += len(ents[n].Data) + entryOverhead
			n++
		}
		if n == len(ents) {
			return ents
		}
		if g.hardDirty {
			early := g.hard
			early.Commit = min(early.Commit, ents[0].GetIndex()-1)
			w.appendHard(g, early)
		}
		w.appendEntries(g, ents[:n])
		first := appended{group: g, replica: a.replica, installs: a.installs, entries: ents[:n], sync: true}
		first.create, a.create = a.create, nil
		w.parts = append(w.parts, first)
		ents = ents[n:]
		w.closeFrame()
		w.openFrame()
	}
}

func (w *worker) appendEntries(g *group, ents []*pb.Entry) {
	w.scratch = record.AppendEntries(w.scratch[:0], ents)
	w.frame.Append(wal.RecordEntries, uint32(g.id), w.scratch)
	last := ents[len(ents)-1]
	g.end = record.EntryID{Index: last.GetIndex(), Term: last.GetTerm()}
}

func (w *worker) appendHard(g *group, hard record.HardState) {
	w.scratch = record.AppendHardState(w.scratch[:0], hard)
	w.frame.Append(wal.RecordHardState, uint32(g.id), w.scratch)
}

// openFrame makes sure that there is a frame to append to.
func (w *worker) openFrame() {
	if w.frame == nil {
		w.frame = w.newFrame()
	}
}

func (w *worker) newFrame() *wal.Frame {
	if n := len(w.frames); n > 0 {
		w.filling = w.frames[n-1]
		w.frames = w.frames[:n-1]
		w.filling.frame.Reset()
	} else {
		w.filling = w.newSent()
	}
	w.parts = w.filling.parts[:0]
	return w.filling.frame
}

// add has a part that needs no disk wait for a frame that is on its way there.
func (s *sentFrame) add(a appended) {
	s.parts = append(s.parts, a)
	s.bytes += partOverhead
	s.w.unsynced += partOverhead
}

// closeFrame ends the open frame.
func (w *worker) closeFrame() {
	s := w.filling
	s.parts = w.parts
	s.bytes = w.frame.Len() + len(w.parts)*partOverhead
	w.unsynced += s.bytes
	w.closed = append(w.closed, s)
	w.frame, w.filling, w.parts = nil, nil, nil
}

// flush ends a turn: its frames go to the log, unless the log has as many as it may. Then they wait
// here, and what comes gathers in the open one: a disk that hangs does not fill the log's queue.
func (w *worker) flush() {
	if w.host.ended.Load() {
		return
	}
	w.sendAll()
	for len(w.inflight) < w.queueable {
		if len(w.closed) == 0 {
			if w.frame == nil {
				return
			}
			w.closeFrame()
		}
		s := w.closed[0]
		w.closed = slices.Delete(w.closed, 0, 1)
		w.inflight = append(w.inflight, s)
		w.host.cfg.Observer.Frame(w.operations)
		w.operations = 0
		if err := w.stream.Submit(s.frame, true, s.done); err != nil {
			w.host.fail(err)
		}
	}
}

// full reports that as much waits for the disk as may. Then entries from a leader are dropped, as
// if the network had lost them: it sends them again.
func (w *worker) full() bool { return w.waitingBytes()+w.heard >= w.host.cfg.UnsyncedBytes }

// waitingBytes is what waits for the disk, the open frame included.
func (w *worker) waitingBytes() int {
	if w.frame == nil {
		return w.unsynced
	}
	return w.unsynced + w.frame.Len() + len(w.parts)*partOverhead
}

// frameDone releases what waited for the disk, in the order in which it was appended (I10).
func (w *worker) frameDone(s *sentFrame) {
	if s.err != nil {
		w.host.fail(s.err) // I20: nothing of this frame, or after it, is answered
		return
	}
	if w.inflight[0] != s {
		panic("shard: the log completed frames out of order")
	}
	w.inflight = slices.Delete(w.inflight, 0, 1)
	w.unsynced -= s.bytes
	for i := range s.parts {
		s.parts[i].group.durable(&s.parts[i], s.pos)
		s.parts[i] = appended{}
	}
	if len(w.frames) < maxFrames {
		w.frames = append(w.frames, s)
	}
	for i, g := range w.stalled {
		g.stalled = false
		w.touch(g)
		w.stalled[i] = nil
	}
	w.stalled = w.stalled[:0]
}

// untilWake is how long nothing will happen by itself.
func (w *worker) untilWake() time.Duration {
	clock := w.host.cfg.Clock
	wait := w.lastTick + tickInterval - clock.Mono()
	at := int64(1<<63 - 1)
	for _, g := range w.groups {
		at = min(at, g.wakeMs)
	}
	if at < 1<<63-1 {
		wait = min(wait, clock.UntilWall(at))
	}
	return max(0, wait)
}
