package shard

import (
	"math"
	"time"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// schedulerEnv implements scheduler.Env for a shard.
type schedulerEnv struct{ *timerShard }

var _ scheduler.Env = schedulerEnv{}

// posted is an event that runs a function.
type posted func(stopped bool)

func (f posted) handle(*worker) { f(false) }

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
		e.g.w.host.cfg.Logger.Error("a time zone is unknown to this release; its series wait while this node leads them", "zone", name, "tzdata", recurrence.Version)
	}
}

func (e schedulerEnv) Fired(topic timer.TopicID, o *table.Outcome) { e.g.w.fired(topic, o) }

func (e schedulerEnv) CanaryPassed() { e.canary.passed.Store(int64(e.g.w.now.Mono) + 1) }

// setTable makes t the group's state.
func (s *timerShard) setTable(t *table.Table) {
	s.table = t
	s.scheduler.SetTable(t)
}

// confirm asks a majority whether this node leads. It calls then when everything that is committed
// by now is applied.
func (g *group) confirm(deadline time.Duration, then func(error)) {
	r := &read{group: g, deadline: deadline, wait: &waiter{}, serve: func(int) bool { return true }}
	r.wait.left.Store(1)
	r.wait.then = func() { then(r.err) }
	g.reads.fresh = append(g.reads.fresh, r)
}
