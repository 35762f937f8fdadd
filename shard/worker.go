package shard

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/clocks"
	"carillon/internal/placement"
	"carillon/shard/record"
	"carillon/timer"
	"carillon/wal"
)

const (
	tickInterval = 50 * time.Millisecond // of periodic work
	// raftTick is raft's tick, and the interval of heartbeats. A worker's groups tick at once, so
	// that their heartbeats leave in one frame for each node, and so do the answers.
	raftTick = 2 * tickInterval
	maxTicks = 5 // made up after a stall; more would only start elections
	// manyGroups of a worker tick in two halves, in turn: a turn of all of them would be long.
	manyGroups = 512
	// maxFrames is how many frames of a worker may be on their way to disk before it stops
	// proposing. Operations that arrive meanwhile gather for the next frame: that is the group
	// commit. maxFramesAlone applies where no other replica has a vote: fewer, larger frames cost
	// less. With other replicas it takes longer to commit a frame than to sync it, and a second
	// frame uses that time.
	maxFrames      = 2
	maxFramesAlone = 1
	// maxTurnBytes bounds the bytes that a worker's groups propose in one turn. The last entry may
	// exceed it: a frame holds up to 64 MiB.
	maxTurnBytes = 16 << 20
	sweepEach    = 10 * time.Second

	// frameBytes and unsyncedBytes are the defaults of Config. A frame may exceed frameBytes by its
	// last part, which has at least one entry, of up to about 10 MiB. The log takes frames of up to
	// 64 MiB.
	frameBytes    = 8 << 20
	unsyncedBytes = 64 << 20
	// queuedFrames bounds the frames of a worker that are in the log's queue.
	queuedFrames = 64
	partOverhead = 512 // counted for each part beside its bytes
)

// worker is the only owner of some groups: their raft nodes, tables and wheels need no locks. Its
// loop is a sequence of turns (see turn). It never waits for a disk or a network.
type worker struct {
	host   *Host
	stream *wal.Stream
	box    *mailbox
	spare  []event
	groups []*group
	shards []*timerShard // of the groups
	queued atomic.Int64  // client operations that are not answered yet

	now    clocks.Moment // clocks as of this turn
	looked bool

	dirty   []*group // to be worked on in this turn
	again   []*group // to be worked on in another turn, right after this one
	stalled []*group // to be worked on when a frame is done

	alone bool // as of the last tick: none of its groups has another voter

	outbox    []outgoing // by node, in order of first use
	peerBytes atomic.Int64

	budget turnBudget
	out    frameWriter
	held   memoryCount
	effort Effort

	sample              workerSample
	lastTick, lastSweep time.Duration
	snapshot            *snapshotRun
	snapshotTurn        int                      // index of the group to try first
	needed              atomic.Uint64            // oldest generation of the log that its groups need
	firedBy             map[timer.TopicID]*Fired // since TakeActivity
}

// turnBudget is what a worker's groups have used of a turn.
type turnBudget struct {
	proposed int  // bytes proposed
	steps    int  // of schedulers' work; see spend
	lookAt   int  // steps at which spend looks at the clock
	over     bool // the schedulers' time in this turn is over
	leasts   int  // groups that had their least since then; see least
	scanned  int  // slots visited by long reads
	scanners int  // groups that share scanSlots; 0 until the first asks
	heard    int  // bytes of peer messages that will be unsynced
}

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

// workerSample is what other goroutines may read of a worker, as of its last tick.
type workerSample struct {
	memory, replicas atomic.Int64
	largest          atomic.Int64           // bytes of its largest group's state
	fault            atomic.Pointer[string] // fault of one of its groups; see Host.Fault
	wrong            atomic.Pointer[[]placement.WrongReplica]
}

// appended is one group's part of a frame.
type appended struct {
	group     *group
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
	bytes int // as counted in worker.unsynced
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

// queueable returns how many frames each worker may have on their way to disk, so that the log's
// queue is never full.
func queueable(queue, workers int) int { return min(max(queue/(2*workers), maxFrames), queuedFrames) }

func (s *sentFrame) handle(w *worker) { w.frameDone(s) }

// run takes turns until the context ends.
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
			// Goroutines that are ready to submit an operation go first: it then shares this turn's
			// entry and fsync.
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

// turn handles the events that have arrived, does periodic work, works on the groups that have
// something to do, and submits frames to the log. A test or a simulator may call it instead of run.
func (w *worker) turn() {
	w.budget = turnBudget{lookAt: lookEach}
	w.touchAgain()
	w.look()
	events := w.box.take(w.spare)
	for i, e := range events {
		e.handle(w)
		events[i] = nil
	}
	w.spare = events[:0]
	w.tick()
	for _, g := range w.groups {
		g.candidacy.stand(g)
		if g.turn.wakeMs <= w.now.WallMs || g.gathering && g.gatherUntil() <= w.now.Mono {
			w.touch(g)
		}
	}
	for i := 0; i < len(w.dirty); i++ {
		g := w.dirty[i]
		g.turn.touched, g.turn.hadTime = false, false
		g.work()
		w.countEntries(g)
	}
	w.dirty = w.dirty[:0]
	w.effort.Slots += uint64(w.budget.scanned)
	w.flush()
	w.account()
}

// touchAgain adds the groups that asked for another turn. Those whose schedulers had no time in the
// last turn come first.
func (w *worker) touchAgain() {
	for _, late := range []bool{true, false} {
		for _, g := range w.again {
			if g.turn.late == late {
				g.turn.again = false
				w.touch(g)
			}
		}
	}
	for _, g := range w.again {
		g.turn.late = false
	}
	w.again = w.again[:0]
}

// The time of schedulers in a turn. A turn does more than that: it applies entries and answers.
const (
	turnTime    = 3 * time.Millisecond
	turnSteps   = 16_384 // the same in steps, where no time passes within a turn, as in a simulation
	leastSteps  = 512    // schedulers have these however long the turn has taken
	lookEach    = 64     // steps between two looks at the clock
	leastShards = 16     // so many shards have their least after that time
)

// spend counts steps of a scheduler's work, and reports that the time of this turn is over.
func (w *worker) spend(g *group, steps int) bool {
	w.budget.steps += steps
	w.effort.Steps += uint64(steps)
	if !w.budget.over && w.budget.steps >= w.budget.lookAt {
		w.budget.lookAt = w.budget.steps + lookEach
		w.budget.over = w.budget.steps >= turnSteps || w.budget.steps >= leastSteps && w.host.cfg.Clock.Mono()-w.now.Mono > turnTime
	}
	if g.turn.late = w.budget.over && !g.turn.hadTime; g.turn.late {
		w.touchNext(g) // which comes first then, whatever else asks for it
	}
	g.turn.hadTime = g.turn.hadTime || !w.budget.over
	return w.budget.over
}

// least reports whether a group may do the least that keeps its topics going. After the turn's time
// only so many may: the others come first in the next turn. It is asked once for each visit.
func (w *worker) least(g *group) bool {
	if w.budget.over {
		w.budget.leasts++
	}
	if w.budget.leasts <= leastShards {
		return true
	}
	w.spend(g, 0)
	return false
}

// touch adds a group to this turn.
func (w *worker) touch(g *group) {
	if !g.turn.touched {
		g.turn.touched = true
		w.dirty = append(w.dirty, g)
	}
}

// touchNext asks for another turn for the group, right after this one.
func (w *worker) touchNext(g *group) {
	if !g.turn.again {
		g.turn.again = true
		w.again = append(w.again, g)
	}
}

// stall defers a group until a frame is on disk.
func (w *worker) stall(g *group) {
	if !g.turn.stalled {
		g.turn.stalled = true
		w.stalled = append(w.stalled, g)
	}
}

// mayPropose reports whether groups may propose. They may not while enough is on its way to disk,
// or while the disk is full.
func (w *worker) mayPropose() bool {
	frames := maxFrames
	if w.alone {
		frames = maxFramesAlone
	}
	return len(w.out.inflight) < frames && w.budget.proposed < maxTurnBytes && !w.stream.Full()
}

// tick advances raft's ticks by the time that has passed, and does the worker's periodic work.
func (w *worker) tick() {
	n := (w.now.Mono - w.lastTick) / tickInterval
	if n <= 0 {
		return
	}
	many := len(w.groups) > manyGroups
	if many { // one half in this turn
		w.lastTick += max(0, n-maxTicks*raftTick/tickInterval) * tickInterval
		n = 1
	}
	last := w.lastTick
	w.lastTick += n * tickInterval
	ticks := [2]int{raftTicks(last, w.lastTick), raftTicks(last+tickInterval, w.lastTick+tickInterval)}
	memory, replicas, largest := int64(0), int64(0), int64(0)
	w.alone, w.held.pressure = true, w.host.pressure()
	low, fault := w.host.lowDisks(), ""
	for i, g := range w.groups {
		state := g.machine.bytes()
		memory, largest = memory+state, max(largest, state)
		g.noteLowDisks(low)
		if fault == "" {
			fault = g.fault()
		}
		if g.raft == nil {
			g.machine.tickRemoved()
			continue
		}
		replicas++
		if w.held.pressure != roomy {
			g.compact()
		}
		w.alone = w.alone && g.soleVoter()
		half := 0
		if many {
			if half = i % len(ticks); ticks[half] == 0 {
				continue
			}
		}
		for range ticks[half] {
			g.raft.Tick()
		}
		g.tick()
		w.touch(g)
	}
	if old := w.sample.fault.Load(); old == nil || *old != fault {
		w.sample.fault.Store(&fault)
	}
	w.held.tables = memory
	w.sample.memory.Store(memory)
	w.sample.largest.Store(largest)
	w.sample.replicas.Store(replicas)
	w.listWrong()
	w.tickSnapshots()
	if w.now.Mono-w.lastSweep >= sweepEach {
		w.lastSweep = w.now.Mono
		for _, s := range w.shards {
			s.scheduler.Sweep()
		}
	}
}

// raftTicks returns how many of raft's ticks are in a span of time.
func raftTicks(from, to time.Duration) int { return min(int(to/raftTick-from/raftTick), maxTicks) }

// append adds a group's part to this turn's frame. A part that needs no sync (a new commit index)
// joins the newest unsynced frame, and its responses are sent when that frame is on disk.
func (w *worker) append(a appended) {
	g := a.group
	a.replica, a.installs = g.replica, g.snapshots.installs
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
			g.step(a.responses)
		}
		return
	}
	w.openFrame()
	if a.tombstone != 0 {
		w.out.scratch = record.AppendTombstone(w.out.scratch[:0], a.tombstone)
		w.out.frame.Append(wal.RecordReplicaTombstone, uint32(g.id), w.out.scratch)
	}
	if a.create != nil {
		w.out.scratch = record.AppendMark(w.out.scratch[:0], *a.create)
		w.out.frame.Append(wal.RecordReplicaCreate, uint32(g.id), w.out.scratch)
	}
	if a.mark {
		f := &g.files
		w.out.scratch = record.AppendMark(w.out.scratch[:0], record.Mark{Replica: g.replica, Index: f.newest, Term: f.newestTerm, Conf: f.newestConf, Epoch: f.newestEpoch, Installed: a.installed})
		w.out.frame.Append(wal.RecordSnapMark, uint32(g.id), w.out.scratch)
		if a.installed {
			g.written.end = f.newest
		}
	}
	a.entries = w.appendLeading(&a)
	if len(a.entries) > 0 {
		w.appendEntries(g, a.entries)
	}
	if g.written.dirty {
		w.appendHard(g, g.written.hard)
		g.written.dirty = false
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
		if g.written.dirty {
			early := g.written.hard
			early.Commit = min(early.Commit, ents[0].GetIndex()-1)
			w.appendHard(g, early)
		}
		w.appendEntries(g, ents[:n])
		first := appended{group: g, replica: a.replica, installs: a.installs, entries: ents[:n], sync: true}
		first.create, a.create = a.create, nil
		w.out.parts = append(w.out.parts, first)
		ents = ents[n:]
		w.closeFrame()
		w.openFrame()
	}
}

func (w *worker) appendEntries(g *group, ents []*pb.Entry) {
	w.out.scratch = record.AppendEntries(w.out.scratch[:0], ents)
	w.out.frame.Append(wal.RecordEntries, uint32(g.id), w.out.scratch)
	last := ents[len(ents)-1]
	g.written.end = last.GetIndex()
}

func (w *worker) appendHard(g *group, hard record.HardState) {
	w.out.scratch = record.AppendHardState(w.out.scratch[:0], hard)
	w.out.frame.Append(wal.RecordHardState, uint32(g.id), w.out.scratch)
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

// closeFrame closes the open frame.
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
	w.sendAll()
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
	for i, g := range w.stalled {
		g.turn.stalled = false
		w.touch(g)
		w.stalled[i] = nil
	}
	w.stalled = w.stalled[:0]
}

// untilWake returns how long nothing will happen by itself.
func (w *worker) untilWake() time.Duration {
	clock := w.host.cfg.Clock
	wait := w.lastTick + tickInterval - clock.Mono()
	if w.waitsForOthers() {
		wait = min(wait, w.out.openedAt+spareFor-clock.Mono())
	}
	at := int64(1<<63 - 1)
	for _, g := range w.groups {
		at = min(at, g.turn.wakeMs)
		if g.gathering {
			wait = min(wait, g.gatherUntil()-clock.Mono())
		}
		if g.candidacy.at != 0 {
			wait = min(wait, g.candidacy.at-clock.Mono())
		}
	}
	if at < 1<<63-1 {
		wait = min(wait, clock.UntilWall(at))
	}
	return max(0, wait)
}
