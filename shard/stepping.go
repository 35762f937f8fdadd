package shard

import (
	"math"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// Driving a host by hand, in one goroutine, as a simulator does: Open, then Turn as often as Busy
// says or UntilWake has passed, with Submit, Ask and SubmitMeta in between. The host's blocking
// methods may be called too if Config.Block is given. Only a snapshot is written by another
// goroutine (see Background).

// Turn is one turn of every worker and one step of the log. It returns what the host failed with,
// if it has: then it is at its end.
func (h *Host) Turn() error {
	if err := h.Work(); err != nil {
		return err
	}
	return h.Write()
}

// Work is the first half of Turn, for who lets time pass before the second: one turn of every
// worker.
func (h *Host) Work() error {
	for _, w := range h.workers {
		w.turn()
	}
	return h.failed()
}

// Write is the second half of Turn: one step of the log, over all that workers have handed to it.
func (h *Host) Write() error {
	if _, err := h.stream.Step(); err != nil {
		h.fail(err)
	}
	return h.failed()
}

// Writing reports, after Work, that the log has something to write.
func (h *Host) Writing() bool {
	for _, w := range h.workers {
		if len(w.inflight) > 0 {
			return true
		}
	}
	return false
}

// Unsynced is how many bytes of the worker that has most wait for the disk.
func (h *Host) Unsynced() (most int) {
	for _, w := range h.workers {
		most = max(most, w.waitingBytes())
	}
	return most
}

// Memory is what the host has counted that its groups hold, and what they do as one counts again;
// but tables are as of the last tick.
func (h *Host) Memory() (counted int64, held Memory) {
	held.Arrivals = h.arriving.Load()
	for _, w := range h.workers {
		m := w.holds()
		m.Entries -= int64(w.entries)
		for _, g := range w.groups {
			g.store.tail.check()
			m.Entries += int64(g.store.tail.recount())
		}
		held.add(&m)
	}
	return h.memory.Load(), held
}

// Full reports that the log waits for room on its disk: a step of it does nothing until there is
// some.
func (h *Host) Full() bool { return h.stream.Full() }

func (h *Host) failed() error {
	select {
	case err := <-h.failure:
		h.failure <- err
		return err
	default:
		return nil
	}
}

// Busy reports that a turn has something to do now.
func (h *Host) Busy() bool { return h.UntilWake() <= 0 }

// UntilWake is how long nothing happens by itself; 0: there is something to do.
func (h *Host) UntilWake() time.Duration {
	if h.Writing() {
		return 0
	}
	return h.UntilWork()
}

// UntilWork is UntilWake for Work alone: it does not wait for the log.
func (h *Host) UntilWork() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, w := range h.workers {
		w.box.mu.Lock()
		events := len(w.box.events)
		w.box.mu.Unlock()
		if events > 0 || len(w.again) > 0 {
			return 0
		}
		least = min(least, w.untilWake())
	}
	return max(0, least)
}

// Background reports that a snapshot is being written or removed, by a goroutine of its own that a
// turn may have to wait for. Open, Work and Abandon may begin that.
func (h *Host) Background() bool {
	if h.jobs.Load() > 0 {
		return true
	}
	for _, w := range h.workers {
		if w.snapshot != nil {
			return true
		}
	}
	return false
}

// Housekeep is what Run does once a second: the log's old generations go, and it looks at its disk.
func (h *Host) Housekeep() error {
	h.sum()
	h.stream.SampleDisk()
	return h.dropLog()
}

// Abandon is the end of a host that Turn drives, as a crash ends it: nobody is told anything.
func (h *Host) Abandon() {
	for _, w := range h.workers {
		w.box.close()
		if w.snapshot != nil {
			w.snapshot.abort()
		}
	}
}

// Submit has a command decided; then is called in a later turn, or never if the host is abandoned.
// The command must not change before.
func (h *Host) Submit(id timer.ShardID, cmd *timer.Command, brief bool, then func(timer.Result, error)) {
	wait := &waiter{}
	wait.left.Store(1)
	o, err := h.newOp(id, cmd, brief, nil, wait)
	if err != nil {
		then(timer.Result{}, err)
		return
	}
	wait.then = func() { then(h.finish(o)) }
	if err := o.group.w.box.offer(o); err != nil {
		o.group.w.queued.Add(-1)
		then(timer.Result{}, err)
	}
}

// Ask reads one timer; then is as with Submit.
func (h *Host) Ask(id timer.ShardID, topic timer.TopicID, timerID string, then func(*timer.Timer, error)) {
	var found *timer.Timer
	wait := &waiter{}
	wait.left.Store(1)
	r := &read{group: h.groups[id], deadline: h.cfg.Clock.Mono() + waitLimit, wait: wait, serve: func(g *group, _ int) bool {
		if found = g.table.Read(topic, timerID); found != nil {
			g.scheduler.Overlay(found)
		}
		return true
	}}
	wait.then = func() { then(found, r.err) }
	if err := r.group.w.box.offer(r); err != nil {
		then(nil, err)
	}
}

// SubmitWalk takes a step of a walk, see Walk; then is as with Submit.
func (h *Host) SubmitWalk(id timer.ShardID, q *timer.Query, at timer.ScanCursor, then func([]timer.Ref, timer.ScanCursor, error)) {
	wait := &waiter{}
	wait.left.Store(1)
	walk := h.newWalk(id, q, at)
	r := &read{group: h.groups[id], deadline: h.cfg.Clock.Mono() + waitLimit, wait: wait, long: true, serve: walk.step}
	wait.then = func() { then(walk.refs, walk.at, r.err) }
	if err := r.group.w.box.offer(r); err != nil {
		then(nil, at, err)
	}
}

// SubmitMeta has the meta group's machine apply a command; then is as with Submit.
func (h *Host) SubmitMeta(cmd []byte, then func(any, error)) {
	wait := &waiter{}
	wait.left.Store(1)
	o := &metaOp{group: h.groups[Meta], cmd: cmd, deadline: h.cfg.Clock.Mono() + waitLimit, wait: wait}
	wait.then = func() { then(o.result, o.err) }
	if err := o.group.w.box.offer(o); err != nil {
		then(nil, err)
	}
}

// Inspect gives a group's table and status to who drives the host; the table is nil for the meta
// group.
func (h *Host) Inspect(id timer.ShardID) (*table.Table, GroupStatus) {
	return h.groups[id].table, h.groups[id].status()
}

// Table gives a group's table alone; nil for the meta group.
func (h *Host) Table(id timer.ShardID) *table.Table { return h.groups[id].table }

// Progress is how far a group has come on this host.
type Progress struct {
	Replica         uint64 // 0: none here
	Term            uint64
	HardTerm        uint64 // as it was handed to the log, with the vote
	Vote            uint64 // 0: none in that term
	Leads, Serves   bool
	Applied, Last   uint64 // Last: of the log, as far as it is on disk
	AppliedTerm     uint64
	LastTerm        uint64
	Epoch           uint32
	ConfIndex       uint64 // of the last change of members, or later
	FirstIndex      uint64 // of the entries that it keeps in memory
	Leaves          bool   // it has no place among the voters that stay, or is to learn only
	Out             bool   // … and has applied the change that took its vote
	Proposed        uint64 // entries of its own, in this process
	Pipelined       int    // … that are not applied yet
	CommitHintsSent uint64 // what it said to others since then, to have them elect a leader

	Stopped     error  // this build cannot go on with it; then only what is on disk is told
	Quarantined bool   // its state is wrong, as far as it knows
	Refilled    uint64 // how often it has got another's
	Installs    uint64 // snapshots from peers that raft had it take
	Compared    uint64 // the last entry after which states were compared
}

// Progress tells how far a group has come, at little cost.
func (h *Host) Progress(id timer.ShardID) Progress {
	g := h.groups[id]
	if g.raft == nil {
		if g.stopped != nil {
			return Progress{Replica: g.replica, HardTerm: g.hard.Term, Vote: g.hard.Vote, Applied: g.applied, Last: g.store.last(), Epoch: g.epoch, Stopped: g.stopped}
		}
		return Progress{}
	}
	leaves := g.leaves()
	lastTerm, _ := g.store.Term(g.store.last()) // always known
	return Progress{
		AppliedTerm: g.appliedTerm, LastTerm: lastTerm, Quarantined: g.quarantine != nil, Refilled: g.refilled, Installs: g.installs, Compared: g.compare.last,
		Replica: g.replica, Term: g.term, HardTerm: g.hard.Term, Vote: g.hard.Vote, Leads: g.leader, Serves: g.serving, Applied: g.applied, Last: g.store.last(), Epoch: g.epoch,
		ConfIndex: g.confIndex, FirstIndex: g.store.offset + 1, Leaves: leaves, Out: leaves && g.isOut(), Proposed: g.number, Pipelined: len(g.proposals), CommitHintsSent: g.commitHintsSent,
	}
}

// Waiting is how much the host holds for later: events, client operations, and leases of the shards
// it leads that have not ended.
func (h *Host) Waiting() (events, operations, flights int) {
	for _, w := range h.workers {
		w.box.mu.Lock()
		events += len(w.box.events)
		w.box.mu.Unlock()
		operations += int(w.queued.Load())
		for _, g := range w.groups {
			if g.scheduler != nil {
				flights += g.scheduler.InFlight()
			}
		}
	}
	return events, operations, flights
}

// SubmitPull leases ready timers of a topic in one shard to a consumer; then is as with Submit.
func (h *Host) SubmitPull(id timer.ShardID, topic timer.TopicID, most int, leaseMs int64, then func([]timer.PulledTimer, error)) {
	wait := &waiter{}
	wait.left.Store(1)
	t := &pullRequest{group: h.groups[id], topic: topic, most: most, leaseMs: leaseMs, deadline: h.cfg.Clock.Mono() + waitLimit, wait: wait}
	wait.then = func() {
		if len(t.pulled) > 0 {
			t.err = nil
		}
		then(t.pulled, t.err)
	}
	if err := t.group.w.box.offer(pullList{t}); err != nil {
		then(nil, err)
	}
}

// StepDrain is one look of Drain: nothing more is leased, and it says how many calls still run, or
// have ended without its being known.
func (h *Host) StepDrain() (flights int) {
	h.draining.Store(true)
	for _, w := range h.workers {
		for _, g := range w.groups {
			if g.scheduler != nil {
				flights += g.scheduler.Drain()
			}
		}
	}
	return flights
}
