package shard

import (
	"math"
	"slices"
	"time"

	"carillon/shard/idle"
	"carillon/shard/table"
	"carillon/timer"
)

// Stepping a host by hand in one goroutine, as a simulator does. Call Open, then Work and Write
// whenever Busy reports work or UntilWake has passed, with Submit and SubmitMeta in between. The
// host's blocking methods may be called too if Config.Block is set. Only snapshots are written by
// another goroutine (see Background).

// driver is the part of a host that steps it in place of Run.
type driver struct{ h *Host }

// Work takes one turn of every worker. It returns an error once the host has failed. A simulator
// may let time pass before it calls Write.
func (d driver) Work() error {
	for _, w := range d.h.workers {
		w.turn()
	}
	return d.failed()
}

// Effort counts the work of a host's turns since it was opened. A simulator lets time pass by it.
type Effort struct {
	Steps   uint64 // of schedulers, of about a microsecond each
	Entries uint64 // applied
	Bytes   uint64 // … of their commands
	Slots   uint64 // of tables that long reads have visited; of a turn that runs they are not counted yet
}

// Effort returns the work done so far. It may be called within a turn, from what the turn calls.
func (d driver) Effort() (all Effort) {
	for _, w := range d.h.workers {
		all.Steps += w.effort.Steps
		all.Entries += w.effort.Entries
		all.Bytes += w.effort.Bytes
		all.Slots += w.effort.Slots
	}
	return all
}

// Write takes one step of the log, over all frames that the workers have submitted.
func (d driver) Write() error {
	if _, err := d.h.stream.Step(); err != nil {
		d.h.fail(err)
	}
	return d.failed()
}

// Writing reports, after Work, whether the log has something to write.
func (d driver) Writing() bool {
	return slices.ContainsFunc(d.h.workers, func(w *worker) bool { return len(w.out.inflight) > 0 })
}

// Unsynced returns the bytes that wait for the disk, of the worker that has most.
func (d driver) Unsynced() (most int) {
	for _, w := range d.h.workers {
		most = max(most, w.waitingBytes())
	}
	return most
}

// Memory returns the host's count of the memory that its groups hold, and a fresh count. Both have
// the tables as of the last tick.
func (d driver) Memory() (counted int64, held Memory) {
	held.Arrivals = d.h.arriving.Load()
	for _, w := range d.h.workers {
		m := w.holds()
		m.Entries -= int64(w.held.entries)
		for _, r := range w.groups {
			m.Entries += int64(r.store.Recount())
		}
		held.add(&m)
	}
	return d.h.memory.Load(), held
}

// Full reports whether the log waits for room on its disk. Until there is room, a step of the log
// does nothing.
func (d driver) Full() bool { return d.h.stream.Full() }

func (d driver) failed() error {
	select {
	case err := <-d.h.failure:
		d.h.failure <- err
		return err
	default:
		return nil
	}
}

// Busy reports whether a turn has something to do now.
func (d driver) Busy() bool { return d.h.UntilWake() <= 0 }

// UntilWake returns how long nothing will happen by itself. It is 0 if there is something to do.
func (d driver) UntilWake() time.Duration {
	if d.Writing() {
		return 0
	}
	return d.UntilWork()
}

// UntilWork is UntilWake for Work alone, without the log.
func (d driver) UntilWork() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, w := range d.h.workers {
		if w.box.waiting() > 0 || w.goesOn() {
			return 0
		}
		least = min(least, w.untilWake())
	}
	return max(0, least)
}

// Background reports whether goroutines are writing or removing snapshots. A turn may have to wait
// for them. Open, Work and Abandon may start them.
func (d driver) Background() bool {
	if d.h.jobs.Load() > 0 {
		return true
	}
	return slices.ContainsFunc(d.h.workers, func(w *worker) bool { return w.snapshot != nil })
}

// Housekeep does the periodic work of Run: it drops old generations of the log and samples the free
// space of its disk.
func (d driver) Housekeep() error {
	d.h.sum()
	d.h.stream.SampleDisk()
	return d.h.dropLog()
}

// Abandon ends a host that is stepped as a crash would: operations get no answer.
func (d driver) Abandon() {
	for _, w := range d.h.workers {
		w.box.close()
		if w.snapshot != nil {
			w.snapshot.feed.Abort()
		}
	}
}

// Submit submits a command. then is called at once if the command is refused, else in a later turn,
// or never if the host is abandoned. The command must not change before.
func (d driver) Submit(id timer.ShardID, cmd *timer.Command, brief bool, then func(timer.Result, error)) {
	wait := &waiter{}
	wait.left.Store(1)
	o, err := d.h.newOp(id, cmd, brief, nil, wait)
	if err != nil {
		then(timer.Result{}, err)
		return
	}
	wait.then = func() { then(d.h.finish(o)) }
	if err := o.shard.g.w.box.offer(o); err != nil {
		o.shard.g.w.queued.Add(-1)
		then(timer.Result{}, err)
	}
}

// SubmitMeta submits a command for the meta group's machine. then is called as by Submit.
func (d driver) SubmitMeta(cmd []byte, then func(any, error)) {
	wait := &waiter{}
	wait.left.Store(1)
	o := &metaOp{meta: d.h.metaGroup(), cmd: cmd, deadline: d.h.cfg.Clock.Mono() + waitLimit, wait: wait}
	wait.then = func() { then(o.result, o.err) }
	if err := o.meta.g.w.box.offer(o); err != nil {
		then(nil, err)
	}
}

// Inspect returns a group's table and status. The table is nil for the meta group.
func (d driver) Inspect(id timer.ShardID) (*table.Table, GroupStatus) {
	return d.Table(id), d.h.group(id).status()
}

// Table returns a group's table. It is nil for the meta group.
func (d driver) Table(id timer.ShardID) *table.Table {
	if int(id) >= len(d.h.all()) {
		return nil // there is no room for it yet
	}
	if s, ok := d.h.group(id).machine.(*timerShard); ok {
		return s.table
	}
	return nil
}

// Progress is the progress of a group on this host.
type Progress struct {
	Replica         uint64 // 0: none here
	Term            uint64
	HardTerm        uint64 // as submitted to the log, with Vote
	Vote            uint64 // 0: none in that term
	Leads, Serves   bool
	Applied, Last   uint64 // Last: end of the log on disk
	AppliedTerm     uint64
	LastTerm        uint64
	Epoch           uint32
	ConfIndex       uint64 // of the last membership change, or later
	Leaves          bool   // not among the voters that remain, or a learner
	Out             bool   // Leaves, and has applied the change that took its vote
	Proposed        uint64 // entries that it has proposed in this process
	Pipelined       int    // of these, not applied yet
	CommitHintsSent uint64 // to candidates; see sendCommitHint

	Stopped  error  // this build cannot continue with the group; then only durable facts are set
	Wrong    error  // why its state is known to be wrong
	Installs uint64 // snapshots from peers that it has installed
	Compared uint64 // last entry after which the replicas compared their states

	Late           bool // its scheduler had no time in the last turn, which others took
	InUnknownZones int  // due timers that wait because this host lacks their time zone
}

// Progress returns the progress of a group, at little cost.
func (d driver) Progress(id timer.ShardID) Progress {
	if int(id) >= len(d.h.all()) {
		return Progress{}
	}
	r := d.h.group(id)
	if r.raft == nil {
		if r.stopped != nil {
			return Progress{Replica: r.id, HardTerm: r.written.hard.Term, Vote: r.written.hard.Vote, Applied: r.applied, Last: r.store.Last(), Epoch: r.membership.epoch, Stopped: r.stopped}
		}
		return Progress{}
	}
	leaves := r.membership.leaves(r)
	zoneless := 0
	if s, ok := r.machine.(*timerShard); ok && s.scheduler.Leads() {
		zoneless = s.scheduler.View.InUnknownZones()
	}
	lastTerm, _ := r.store.Term(r.store.Last()) // always known
	return Progress{
		AppliedTerm: r.appliedTerm, LastTerm: lastTerm, Wrong: r.wrong.why, Installs: r.snapshots.installs, Compared: r.compare.last,
		Replica: r.id, Term: r.term, HardTerm: r.written.hard.Term, Vote: r.written.hard.Vote, Leads: r.leader, Serves: r.serving, Applied: r.applied, Last: r.store.Last(), Epoch: r.membership.epoch,
		ConfIndex: r.membership.index, Late: r.turn.late, Leaves: leaves, Out: leaves && r.membership.isOut(r), Proposed: r.pipeline.number, Pipelined: len(r.pipeline.proposals), CommitHintsSent: r.membership.hintsSent,
		InUnknownZones: zoneless,
	}
}

// Waiting returns how much the host holds for later: events, client operations, and the leases of
// its shards that have not ended.
func (d driver) Waiting() (events, operations, flights int) {
	for _, w := range d.h.workers {
		events += w.box.waiting()
		operations += int(w.queued.Load())
		for _, s := range w.shards {
			flights += s.scheduler.View.InFlight()
		}
	}
	return events, operations, flights
}

// StepDrain is one iteration of Drain: it stops leasing, and returns the number of leases whose
// calls still run or whose end is not known to the new leader yet.
func (d driver) StepDrain() (flights int) {
	d.h.draining.Store(true)
	for _, w := range d.h.workers {
		for _, s := range w.shards {
			flights += s.scheduler.Leases.Drain()
		}
	}
	return flights
}

// A manual clock stands still while there is work. It is moved to the next instant at which
// something is due once all work of the present one is done: Settled finds that. What waits for an
// instant must therefore be in Scheduler.NextWake, and what waits for work under way must keep
// Scheduler.Settled false. A poll would do neither.

// idle returns when the worker, which has nothing to do now, next has; nil: it has something to do.
// Cost: O(its groups), and once they have nothing to do O(their topics with queues).
func (w *worker) idle() *idle.Period {
	p := &idle.Period{NowMs: w.now.WallMs, NextMs: math.MaxInt64}
	if len(w.again)+len(w.parked.scans)+len(w.parked.stalled)+len(w.out.inflight)+len(w.out.closed) > 0 || w.out.frame != nil {
		return nil
	}
	for _, g := range w.groups {
		if len(g.pipeline.proposals)+g.machine.waits() > 0 || g.pipeline.refusedUntil != 0 || g.machine.hasWork() || !g.serving {
			return nil
		}
	}
	for _, s := range w.shards {
		if !s.scheduler.Settled() {
			return nil
		}
		p.NextMs = min(p.NextMs, s.scheduler.NextWake())
	}
	if p.NextMs <= p.NowMs {
		return nil
	}
	return p
}

// Settled reports whether the shards have nothing to do at the present instant of a manual clock,
// and when they next have, in wall-clock ms; math.MaxInt64: never. Calls of a Dispatcher that have
// ended, but are not handed on yet, are not seen. It has one caller at a time, as TurnEnded.
func (h *Host) Settled() (nextMs int64, settled bool) {
	return h.manual.Settled(h.cfg.Clock.Look().WallMs, func(worker int) bool { return h.workers[worker].box.waiting() > 0 })
}

// TurnEnded returns a channel that gets a value when Settled may have changed.
func (h *Host) TurnEnded() <-chan struct{} { return h.manual.Ended() }

// ClockMoved has the workers look at a manual clock that was moved.
func (h *Host) ClockMoved() {
	for _, w := range h.workers {
		select {
		case w.box.wake <- struct{}{}:
		default:
		}
	}
}

// DropFinished has the shards drop finished timers that are kept for too long, which each entry
// does and a clock that runs sees to: the canary's entries do. It reports whether there are any;
// they are gone once it reports none.
func (h *Host) DropFinished() (some bool) {
	h.inTurn(func(w *worker) {
		for _, s := range w.shards {
			if s.scheduler.Leads() && s.table.FinishedOverdue(w.now.WallMs) {
				some = true
				s.putCanary()
				w.touch(s.g)
			}
		}
	})
	return some
}

// Left counts the timers that were due by now and have not ended, and those of them that are
// leased.
func (h *Host) Left() (n, leased int64) {
	h.inTurn(func(w *worker) {
		for _, s := range w.shards {
			all, held := s.scheduler.Left()
			n, leased = n+all, leased+held
		}
	})
	return n, leased
}
