package shard

import (
	"io"
	"math"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/reuse"
	"carillon/shard/record"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// timerShard is the machine of a shard of timers: their table, and the scheduler that runs while
// this replica leads.
type timerShard struct {
	g         *replica
	table     *table.Table
	scheduler *scheduler.Scheduler
	canary    canary
	division  division

	// Operations that wait to be proposed, and the entry that is being made of them.
	waiting []*op
	pulls   []*pullRequest
	batch   table.Batch
	items   []item

	spareItems []item         // memory for the next proposal's items
	results    []timer.Result // memory for the results of an entry

	setClockAt time.Duration // earliest time of the next proposal to set the shard's clock back
	reported   int           // counts reports sent while no leader is known, to address the members in turn
}

func newTimerShard(r *replica, cfg *Config, limits *scheduler.Limits) *timerShard {
	s := &timerShard{g: r}
	s.division.s = s
	s.scheduler = scheduler.New(scheduler.Config{
		Shard: r.shard, Owner: cfg.Incarnation, Seed: cfg.Seed, Dispatcher: cfg.Dispatcher, Topics: cfg.Topics,
		Observer: cfg.Observer, Ready: cfg.Ready, Limiters: limits, Zones: cfg.Zones, Describe: cfg.Describe,
		ManualClock: cfg.ManualClock,
	}, schedulerEnv{s}, &r.w.timers)
	s.clear()
	return s
}

func (h *Host) shard(id timer.ShardID) *timerShard { return h.group(id).machine.(*timerShard) }

func (s *timerShard) apply(e *pb.Entry) (compares bool, err error) {
	r := s.g
	_, origin, number, err := table.BatchHead(e.Data)
	if err != nil {
		return false, err
	}
	p := r.pipeline.own(r, origin, number)
	var want func(int, *timer.Result) bool
	if p != nil {
		want = func(i int, x *timer.Result) bool {
			return p.items[i].op.wants(s.table, x)
		}
	}
	of := s.table.DividedOf()
	if err = s.applyToTable(e.Data, e.GetIndex(), want); err != nil {
		if p != nil {
			p.fail(timer.ErrUnknown)
		}
		return false, err
	}
	s.publish(e.GetIndex())
	if n := s.table.TakeDeadReplaced(); n > 0 && r.serving {
		r.w.host.cfg.Observer.DeadReplaced(n)
	}
	s.showOutcomes()
	if p != nil {
		for i := range p.items {
			s.answer(&p.items[i], &s.results[i])
		}
		s.spareItems, p.items = reuse.Emptied(p.items), nil
	}
	if s.table.DividedOf() != of {
		s.division.leave(nobody)
	}
	return s.table.Compares(), nil
}

func (s *timerShard) afterApply() {}

func (s *timerShard) replay(e *record.Entry) (err error) {
	if err = s.applyToTable(e.Data, e.Index, nil); err == nil {
		s.publish(e.Index)
	}
	return err
}

// applyToTable applies an entry, and notes whether it ended a division.
func (s *timerShard) applyToTable(entry []byte, index uint64, want func(int, *timer.Result) bool) (err error) {
	s.listen()
	leaving := s.table.Leaving()
	s.results, err = s.table.Apply(entry, want, s.results[:0])
	if leaving && !s.table.Leaving() {
		s.g.files.swept, s.g.files.sweptAt = index, s.g.w.now.Mono
	}
	return err
}

func (s *timerShard) hash() uint64       { return s.table.Hash() }
func (s *timerShard) hashVersion() byte  { return table.HashVersion }
func (s *timerShard) bytes() int64       { return s.table.MemoryBytes() }
func (s *timerShard) slots() int         { return int(s.table.LastHandle()) }
func (s *timerShard) save() timer.Saving { return s.table.BeginSnapshot() }
func (s *timerShard) clear()             { s.setTable(table.New(s.g.shard, 0)) }
func (s *timerShard) prompt() bool       { return false }
func (s *timerShard) waits() int         { return len(s.waiting) }
func (s *timerShard) nextWake() int64    { return s.scheduler.NextWake() }
func (s *timerShard) doubt()             { s.scheduler.Doubt() }
func (s *timerShard) drain()             { s.scheduler.Leases.Drain() }
func (s *timerShard) unstarted() int     { return s.scheduler.View.Unstarted() }
func (s *timerShard) scanLeases()        { s.scheduler.ScanAgain() }

func (s *timerShard) run() {
	s.scheduler.Run()
	s.division.lookForHalf()
}

func (s *timerShard) replace(state any) {
	before := s.table
	s.setTable(state.(*table.Table))
	if of := s.table.DividedOf(); of != before.DividedOf() && s.g.raft != nil { // at a start there is nothing that could leave yet
		s.division.leave(s.division.ownersBy(before, of))
	}
}

func (s *timerShard) tickRemoved() {
	s.scheduler.Tick()
	s.division.createChildren()
	s.expire(s.g.w.now.Mono)
	if s.g.awaitUntil != 0 && !s.g.awaitsLeader() {
		s.g.awaitUntil = 0
		s.g.refuseAll()
		s.g.publish()
	}
}

func (s *timerShard) read(r io.Reader) (state any, hash uint64, err error) {
	t, err := table.Load(s.g.shard, r)
	if err != nil {
		return nil, 0, err
	}
	return t, t.Hash(), nil
}

func (s *timerShard) hasWork() bool {
	return s.g.takeover || len(s.waiting)+len(s.pulls) > 0 || s.scheduler.HasProposals() ||
		s.division.sweeps() || s.division.ready && s.division.divides()
}

func (s *timerShard) tick() {
	s.tickCanary()
	if !s.g.leader && s.g.w.sure() {
		// A follower's wheel stays near the present time, so that a takeover need not catch up.
		s.table.Advance(s.g.w.now.WallMs, scheduler.WheelBudget)
	}
	s.scheduler.Tick()
	s.table.MoveContents(moveBudget)
	s.division.tick()
}

func (s *timerShard) end() {
	s.division.end()
	s.scheduler.End()
	s.g.pipeline.fail()
	s.refusePulls()
}

func (s *timerShard) refuse(err error) {
	for _, o := range s.waiting {
		o.answer(timer.Result{}, err)
	}
	s.waiting = nil
	s.refusePulls()
}

func (s *timerShard) expire(now time.Duration) {
	for len(s.waiting) > 0 && s.waiting[0].deadline <= now {
		s.waiting[0].answer(timer.Result{}, s.g.timeoutError())
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
	}
	for i := range s.g.pipeline.proposals {
		p := &s.g.pipeline.proposals[i]
		for j := range p.items {
			if t := p.items[j].pull; t != nil && t.deadline+commitGrace <= now {
				t.answer(timer.ErrUnknown)
			}
			if o := p.items[j].op; o != nil {
				if o.deadline+commitGrace > now {
					break
				}
				o.answer(timer.Result{}, timer.ErrUnknown)
				p.items[j].op = nil
			}
		}
	}
	s.scheduler.Leases.Expire(now)
	for len(s.pulls) > 0 && s.pulls[0].deadline <= now { // it has waited too long to be proposed
		s.pulls[0].answer(s.g.timeoutError())
		s.pulls[0] = nil
		s.pulls = s.pulls[1:]
	}
}

func (s *timerShard) receive(kind byte, from uint64, body []byte) {
	switch kind {
	case reportMessage:
		s.receiveReport(from, body)
	case overMessage:
		s.receiveLeaseOver(body)
	}
}

func (s *timerShard) status(to *GroupStatus) {
	c := s.table.Totals()
	to.Hash = s.table.Hash()
	to.Timers = int(c.Scheduled + c.Leased + c.Dead)
}

func (s *timerShard) stats(to *Stats) {
	if s.g.raft != nil && s.g.election.leaderless {
		to.Waiting[timer.WaitLeader] += s.table.Overdue()
	}
	if !s.scheduler.Leads() {
		return
	}
	c := s.scheduler.View.Totals()
	to.Add(&c)
	to.MemoryBytes += s.table.MemoryBytes()
	to.SealedBy = s.table.SealedBy(to.SealedBy)
	to.UnknownZone += int64(s.scheduler.View.InUnknownZones())
}

// schedulerEnv implements scheduler.Env for a shard.
type schedulerEnv struct{ *timerShard }

var _ scheduler.Env = schedulerEnv{}

// posted is an event that runs a function.
type posted func(stopped bool)

func (p posted) handle(*worker) { p(false) }
func (p posted) refuse(error)   { p(true) }

func (e schedulerEnv) Wake()     { e.g.w.touch(e.g) }
func (e schedulerEnv) WakeNext() { e.g.w.touchNext(e.g) }

// Spent and Least implement scheduler.Env.
func (e schedulerEnv) Spent(steps int) bool { return e.g.w.spend(e.g, steps) }
func (e schedulerEnv) Least() bool          { return e.g.w.least(e.g) }

func (e schedulerEnv) Post(event func(stopped bool)) {
	if e.g.w.box.put(posted(event), math.MaxInt) != nil {
		event(true)
	}
}

func (e schedulerEnv) Proposed(i scheduler.Item) {
	e.items = append(e.items, item{kind: ofScheduler, scheduled: i})
}

func (e schedulerEnv) Confirm(then func(error)) { e.g.confirm(e.g.w.now.Mono+waitLimit, then) }

// Full implements scheduler.Env.
func (e schedulerEnv) Full() bool {
	return e.g.w.host.needed() > e.g.w.host.cfg.MemoryLimit || e.g.public.full.Load()
}

func (e schedulerEnv) HandingOver() bool { return e.g.transfer.to != 0 || e.g.w.host.draining.Load() }
func (e schedulerEnv) Present() bool     { return e.g.raft != nil }

func (e schedulerEnv) Ended(owner table.Incarnation) bool {
	return e.g.w.host.cfg.Placement.Restarted(owner)
}

func (e schedulerEnv) Fence(owner table.Incarnation, then func(error)) {
	e.g.w.host.cfg.Placement.Fence(owner, func(err error) {
		e.Post(func(stopped bool) {
			if !stopped {
				then(err)
			}
		})
	})
}

func (e schedulerEnv) Resume(list []scheduler.ClientChange) {
	ops := make([]*op, 0, len(list)+len(e.waiting))
	for _, c := range list {
		ops = append(ops, c.(*op))
	}
	e.waiting = append(ops, e.waiting...)
}

func (e schedulerEnv) Refuse(list []scheduler.ClientChange) {
	for _, o := range list {
		o.Answer(timer.Result{}, e.g.notLeader())
	}
}

func (e schedulerEnv) ZoneUnknown(name string) {
	if _, logged := e.g.w.host.zoneFaults.LoadOrStore(name, true); !logged {
		e.g.w.host.cfg.Logger.Error("this release does not know a time zone: its series wait while this node leads their shards; upgrade the node", "zone", name, "tzdata", recurrence.Version)
	}
}

func (e schedulerEnv) Fired(topic timer.TopicID, o *table.Outcome) { e.g.w.fired(topic, o) }

func (e schedulerEnv) CanaryPassed() { e.canary.passed.Store(int64(e.g.w.now.Mono) + 1) }

func (s *timerShard) setTable(t *table.Table) {
	s.table = t
	s.scheduler.SetTable(t)
}

// confirm asks a majority whether this node leads. It calls then when everything that is committed
// by now is applied.
func (r *replica) confirm(deadline time.Duration, then func(error)) {
	q := &read{group: r, deadline: deadline, wait: &waiter{}, serve: func(int) bool { return true }}
	q.wait.left.Store(1)
	q.wait.then = func() { then(q.err) }
	r.reads.fresh = append(r.reads.fresh, q)
}
