package shard

import (
	"carillon/shard/table"
	"math"
	"time"

	"carillon/timer"
)

// schedulerEnv is a group as its scheduler sees it.
type schedulerEnv struct{ *group }

var _ surroundings = schedulerEnv{}

// posted is an event that is a function.
type posted func(stopped bool)

func (f posted) handle(*worker) { f(false) }

func (e schedulerEnv) wake()     { e.w.touch(e.group) }
func (e schedulerEnv) wakeNext() { e.w.touchNext(e.group) }

func (e schedulerEnv) post(event func(stopped bool)) {
	if e.w.box.put(posted(event), math.MaxInt) != nil {
		event(true)
	}
}

func (e schedulerEnv) background(job func()) { e.w.host.inBackground(job) }

func (e schedulerEnv) proposed(kind itemKind, lease *activeLease) {
	e.items = append(e.items, item{kind: kind, lease: lease})
}

func (e schedulerEnv) confirm(then func(error)) { e.group.confirm(e.w.now.Mono+waitLimit, then) }

func (e schedulerEnv) handingOver() bool { return e.transferee != 0 || e.w.host.draining.Load() }
func (e schedulerEnv) present() bool     { return e.raft != nil }

func (e schedulerEnv) ended(owner Incarnation) bool { return e.w.host.isGone(owner) }

func (e schedulerEnv) resume(list []clientChange) {
	ops := make([]*op, 0, len(list)+len(e.waiting))
	for _, c := range list {
		ops = append(ops, c.(*op))
	}
	e.waiting = append(ops, e.waiting...)
}

func (e schedulerEnv) refuse(list []clientChange) {
	for _, o := range list {
		o.answer(timer.Result{}, e.notLeader())
	}
}

func (e schedulerEnv) zoneUnread(name string, err error) {
	e.w.host.cfg.Logger.Error("a time zone cannot be read; its series wait, and it is tried again every minute", "zone", name, "error", err)
}

func (e schedulerEnv) fired(topic timer.TopicID, o *table.Outcome) { e.w.fired(topic, o) }

func (e schedulerEnv) canaryPassed() { e.canary.passed.Store(int64(e.w.now.Mono) + 1) }

// setTable makes a table the group's state.
func (g *group) setTable(t *table.Table) { g.table, g.scheduler.table = t, t }

// confirm asks raft whether this node leads, and has then run once all that was committed by now is applied.
func (g *group) confirm(deadline time.Duration, then func(error)) {
	r := &read{group: g, deadline: deadline, wait: &waiter{}, serve: func(*group, int) bool { return true }}
	r.wait.left.Store(1)
	r.wait.then = func() { then(r.err) }
	g.reads.fresh = append(g.reads.fresh, r)
}
