package shard

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/placement"
	"carillon/timer"
	"carillon/wal"
)

const (
	tickInterval = 50 * time.Millisecond // of periodic work
	// raftTick is raft's tick, and the interval of heartbeats. A worker's groups tick at once, so
	// that their heartbeats leave in one frame for each node, and so do the answers.
	raftTick = 2 * tickInterval
	// electionTicks is the shortest time-out, in raft's ticks, after which a follower stands.
	electionTicks = 10
	maxTicks      = 5 // made up after a stall; more would only start elections
	// A worker with more groups than manyGroups has them tick in two parts, in turn; with more than
	// twice as many in four. A turn of all of them would be long.
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
	sweepEvery   = 10 * time.Second
	quietAfter   = 500 * time.Millisecond // see nextTick

	// frameBytes and unsyncedBytes are the defaults of Config. A frame may exceed frameBytes by its
	// last part, which has at least one entry, of up to about 10 MiB. The log takes frames of up to
	// 64 MiB.
	frameBytes    = 8 << 20
	unsyncedBytes = 64 << 20
	// queuedFrames bounds the frames of a worker that are in the log's queue.
	queuedFrames = 64
	partOverhead = 512 // counted for each part in addition to its bytes
)

// worker is the only owner of some groups: their raft nodes, tables and wheels need no locks. Its
// loop is a sequence of turns (see turn). It never waits for a disk or a network.
type worker struct {
	host   *Host
	number int // in host.workers
	stream *wal.Stream
	box    *mailbox
	spare  []event
	groups []*replica
	shards []*timerShard // of the groups
	queued atomic.Int64  // client operations that are not answered yet

	now    clocks.Moment // clocks as of this turn
	timers clocks.Moment // … for timers: by a manual clock they also measure by it
	looked bool

	soonest soonest
	dirty   []*replica // to be worked on in this turn
	again   []*replica // to be worked on in another turn, right after this one
	parked  parked

	afterWork []lateCall // to be run when due timers have been looked at; see runAfterWork

	alone bool // as of the last tick: none of its groups has another voter

	outbox    []outgoing // by node
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

// parked are groups that wait for something else than a turn.
type parked struct {
	stalled []*replica // to be worked on when a frame is done
	scans   []*replica // whose long reads go on; see serveLong
}

// turnBudget is what a worker's groups have used of a turn.
type turnBudget struct {
	number   uint64        // of the turn
	proposed int           // bytes proposed
	began    time.Duration // on clocks.Moment.Mono
	steps    int           // of schedulers' work; see spend
	lookAt   int           // steps at which spend looks at the clock
	heldAt   int           // … and startHeld
	over     bool          // the schedulers' time in this turn is over
	leasts   int           // groups that had their least since then; see least
	scanned  int           // slots visited by long reads
	heard    int           // bytes of peer messages that will be unsynced
}

// workerSample is what other goroutines may read of a worker, as of its last tick.
type workerSample struct {
	memory, replicas atomic.Int64
	largest          atomic.Int64           // bytes of its largest group's state
	fault            atomic.Pointer[string] // fault of one of its groups; see Host.Fault
	wrong            atomic.Pointer[[]placement.WrongReplica]
}

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
			if !w.goesOn() {
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
	w.budget = turnBudget{number: w.budget.number + 1, lookAt: clockCheckSteps, heldAt: clockCheckSteps}
	if w.host.manual != nil {
		w.host.manual.Begin(w.number)
	}
	w.touchAgain()
	w.look()
	w.budget.began = w.now.Mono
	events := w.box.take(w.spare)
	for i, e := range events {
		e.handle(w)
		events[i] = nil
	}
	w.spare = events[:0]
	w.tick()
	w.touchDue()
	for i := 0; i < len(w.dirty); i++ {
		r := w.dirty[i]
		r.turn.touched = false
		r.work()
		w.countEntries(r)
		w.startHeld()
	}
	w.dirty = w.dirty[:0]
	w.serveLong()
	w.runAfterWork()
	w.effort.Slots += uint64(w.budget.scanned)
	w.flush()
	w.account()
	if w.host.manual != nil {
		w.host.manual.End(w.number, w.idle())
	}
}

// startHeld starts the calls whose time has come since the turn began: a turn with many timers of
// one instant takes some milliseconds. Cost: O(groups), once a millisecond, and only while they
// work.
func (w *worker) startHeld() {
	if w.budget.steps < w.budget.heldAt {
		return
	}
	w.budget.heldAt = w.budget.steps + clockCheckSteps
	before := w.now.WallMs
	if w.look(); w.now.WallMs == before {
		return
	}
	for _, s := range w.shards {
		if s.g.raft != nil && s.scheduler.StartHeld() {
			w.touchNext(s.g)
		}
	}
}

// soonest is a bound: no group asks for a turn before both of these times. It saves most turns the
// visit of all groups.
type soonest struct {
	wallMs int64         // of the timing wheels and destination queues
	mono   time.Duration // of pipelines and elections
}

// include lowers the bound to a group's times.
func (s *soonest) include(r *replica) {
	s.wallMs = min(s.wallMs, r.turn.wakeMs)
	if r.pipeline.gathering {
		s.mono = min(s.mono, r.pipeline.gatherUntil())
	}
	if r.election.at != 0 {
		s.mono = min(s.mono, r.election.at)
	}
}

// touchDue touches the groups whose time has come: O(groups) if the time of any may have come, else
// O(1).
func (w *worker) touchDue() {
	if w.now.WallMs < w.soonest.wallMs && w.now.Mono < w.soonest.mono {
		return
	}
	w.soonest = soonest{math.MaxInt64, math.MaxInt64}
	for _, r := range w.groups {
		r.election.stand(r)
		if r.turn.wakeMs <= w.now.WallMs || r.pipeline.gathering && r.pipeline.gatherUntil() <= w.now.Mono {
			w.touch(r) // after its turn it is included
		} else {
			w.soonest.include(r)
		}
	}
}

// touchAgain adds the groups that asked for another turn. Those whose schedulers had no time in the
// last turn come first.
func (w *worker) touchAgain() {
	for _, late := range []bool{true, false} {
		for _, r := range w.again {
			if r.turn.late == late {
				r.turn.again = false
				w.touch(r)
			}
		}
	}
	for _, r := range w.again {
		r.turn.late = false
	}
	w.again = w.again[:0]
}

// The time of schedulers in a turn. A turn does more than that: it applies entries and answers.
const (
	turnTime        = 3 * time.Millisecond
	turnSteps       = 16_384 // the same in steps, where no time passes within a turn, as in a simulation
	leastSteps      = 512    // schedulers have these however long the turn has taken
	clockCheckSteps = 64     // steps between two looks at the clock
	leastShards     = 16     // so many shards have their least after that time
)

// spend counts steps of a scheduler's work, and reports that the time of this turn is over.
func (w *worker) spend(r *replica, steps int) bool {
	w.budget.steps += steps
	w.effort.Steps += uint64(steps)
	if !w.budget.over && w.budget.steps >= w.budget.lookAt {
		w.budget.lookAt = w.budget.steps + clockCheckSteps
		w.budget.over = w.budget.steps >= turnSteps || w.budget.steps >= leastSteps && w.host.cfg.Clock.Mono()-w.budget.began > turnTime
	}
	if r.turn.late = w.budget.over && r.turn.hadTime != w.budget.number; r.turn.late {
		w.touchNext(r) // which comes first then, whatever else asks for it
	}
	if !w.budget.over {
		r.turn.hadTime = w.budget.number
	}
	return w.budget.over
}

// least reports whether a group may do the least that keeps its topics going. After the turn's time
// only so many may: the others come first in the next turn. It is asked once for each visit.
func (w *worker) least(r *replica) bool {
	if w.budget.over {
		w.budget.leasts++
	}
	if w.budget.leasts <= leastShards {
		return true
	}
	w.spend(r, 0)
	return false
}

// touch adds a group to this turn.
func (w *worker) touch(r *replica) {
	if !r.turn.touched {
		r.turn.touched = true
		w.dirty = append(w.dirty, r)
	}
}

// touchNext asks for another turn for the group, right after this one.
func (w *worker) touchNext(r *replica) {
	if !r.turn.again {
		r.turn.again = true
		w.again = append(w.again, r)
	}
}

// goesOn reports that another turn follows at once.
func (w *worker) goesOn() bool { return len(w.again)+len(w.parked.scans) > 0 }

// stall defers a group until a frame is on disk.
func (w *worker) stall(r *replica) {
	if !r.turn.stalled {
		r.turn.stalled = true
		w.parked.stalled = append(w.parked.stalled, r)
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
	parts := w.parts()
	interval := tickEvery(parts)
	n := (w.now.Mono - w.lastTick) / interval
	if n <= 0 {
		return
	}
	w.watchSilences()
	if parts > 1 { // one of them in this turn
		w.lastTick += max(0, n-maxTicks*raftTick/interval) * interval
		n = 1
	}
	last := w.lastTick
	w.lastTick += n * interval
	w.held.part = (w.held.part + 1) % parts
	memory, replicas, largest := int64(0), int64(0), int64(0)
	w.alone, w.held.pressure = true, w.host.pressure()
	low, fault := w.host.LowDisks(), ""
	for i, r := range w.groups {
		part := i % parts
		if part == w.held.part {
			r.public.bytes.Store(r.machine.bytes())
			r.watchFull()
		}
		state := r.public.bytes.Load()
		memory, largest = memory+state, max(largest, state)
		r.updateLowDisks(low)
		if fault == "" {
			fault = r.fault()
		}
		if r.raft == nil {
			r.machine.tickRemoved()
			continue
		}
		replicas++
		if w.held.pressure != roomy {
			r.compact()
		}
		w.alone = w.alone && r.soleVoter()
		shift := time.Duration(part) * interval // of the part's ticks
		ticks := raftTicks(last+shift, w.lastTick+shift)
		if parts > 1 && ticks == 0 {
			continue
		}
		for range ticks {
			r.raft.Tick()
		}
		r.tick()
		if r.leader || r.election.leaderless || w.held.pressure != roomy || r.raft.HasReady() {
			w.touch(r) // others have nothing to do by themselves
		}
	}
	if old := w.sample.fault.Load(); old == nil || *old != fault {
		w.sample.fault.Store(&fault)
	}
	w.held.tables = memory
	w.sample.memory.Store(memory)
	w.sample.largest.Store(largest)
	w.sample.replicas.Store(replicas)
	w.listWrong()
	w.tickSnapshots(parts)
	if w.now.Mono-w.lastSweep >= sweepEvery {
		w.lastSweep = w.now.Mono
		for _, s := range w.shards {
			s.scheduler.Sweep()
		}
	}
}

// parts returns in how many parts the worker's groups tick.
func (w *worker) parts() int {
	switch n := len(w.groups); {
	case n > 2*manyGroups:
		return 4
	case n > manyGroups:
		return 2
	}
	return 1
}

// tickEvery returns the time between the ticks of two parts. A part ticks once in raftTick.
func tickEvery(parts int) time.Duration { return min(tickInterval, raftTick/time.Duration(parts)) }

// raftTicks returns how many of raft's ticks are in a span of time.
func raftTicks(from, to time.Duration) int { return min(int(to/raftTick-from/raftTick), maxTicks) }

// nextTick returns when the worker does its periodic work at the latest. One that has written
// nothing for quietAfter waits for raft's ticks alone: most of what an idle node costs is that it
// wakes.
func (w *worker) nextTick() time.Duration {
	parts := w.parts()
	if parts == 1 && w.now.Mono-w.out.openedAt > quietAfter {
		return w.lastTick.Truncate(raftTick) + raftTick
	}
	return w.lastTick + tickEvery(parts)
}

// untilWake returns how long nothing will happen by itself.
func (w *worker) untilWake() time.Duration {
	clock := w.host.cfg.Clock
	wait := w.nextTick() - clock.Mono()
	if w.waitsForOthers() {
		wait = min(wait, w.out.openedAt+spareFor-clock.Mono())
	}
	wait = min(wait, w.soonest.mono-clock.Mono())
	if w.soonest.wallMs < math.MaxInt64 {
		wait = min(wait, clock.UntilWall(w.soonest.wallMs))
	}
	return max(0, wait)
}

// Clock is a host's source of time. *clocks.Keeper implements it.
type Clock interface {
	// Look reads the clocks for one turn of a worker. While Trust is not Sure, no timer leaves the
	// wheel and no call starts.
	Look() clocks.Moment
	// Mono returns Moment.Mono.
	Mono() time.Duration
	// UntilWall returns the time until Moment.WallMs is ms. It is negative if ms is past.
	UntilWall(ms int64) time.Duration
}

// absence is the pause of a worker after which its groups confirm that they still lead. It is
// shorter than the time after which followers may elect another leader.
const absence = 500 * time.Millisecond

// look reads the clocks once for the whole turn. After a pause it makes led groups confirm their
// leadership.
func (w *worker) look() {
	before := w.now.Lease
	w.now = w.host.cfg.Clock.Look()
	if w.timers = w.now; w.host.cfg.ManualClock {
		w.timers.Mono = w.now.Lease
	}
	away := w.now.Lease - before
	if w.looked && away >= absence {
		for _, r := range w.groups {
			r.doubt()
		}
	}
	w.looked = true
}

// sure reports whether the wall clock is trusted.
func (w *worker) sure() bool { return w.now.Trust == clocks.Sure }

// doubt makes a leader confirm its leadership with a majority before it starts anything more. The
// process may have been suspended, and another leader may have been elected and have made calls
// since.
func (r *replica) doubt() {
	if r.leader && !r.soleVoter() {
		r.machine.doubt()
	}
}
