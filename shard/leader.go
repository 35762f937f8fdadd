package shard

import (
	"time"

	"carillon/timer"

	"go.etcd.io/raft/v3"
)

// awaitLimit is how long commands wait at a replica that knows of no leader. A leadership transfer
// takes a fraction of it. After a failure, an election begins only when the leader has been silent
// for longer than that.
const awaitLimit = 300 * time.Millisecond

// awaitsLeader reports whether the group lost its leader less than awaitLimit ago. Commands then
// wait here for the next leader, because trying other nodes would take longer.
func (g *group) awaitsLeader() bool {
	return g.raft != nil && g.table != nil && !g.leader && g.leaderless && g.w.now.Mono-g.leaderlessSince < awaitLimit
}

// leadChanged records whether raft knows a leader. When another replica becomes leader, waiting
// commands are refused and told its node.
func (g *group) leadChanged(lead uint64) {
	switch {
	case lead == raft.None && !g.leaderless:
		g.leaderless, g.leaderlessSince = true, g.w.now.Mono
	case lead != raft.None && g.leaderless:
		g.leaderless = false
		if lead != g.replica && !g.leader {
			g.refuseAll()
		}
	}
}

// roleChanged begins or ends this replica's leadership.
func (g *group) roleChanged(leader bool) {
	term := g.raft.BasicStatus().GetTerm()
	if leader == g.leader && term == g.term {
		return
	}
	g.stepDown()
	g.leader, g.term = leader, term
	g.noteLowDisks(g.w.host.lowDisks())
	if leader {
		g.w.host.cfg.Observer.Elected()
		g.takeover = true
		g.w.touchNext(g)
	}
}

// stepDown ends this replica's leadership. The outcome of proposed operations is unknown; others
// may be retried at another node.
func (g *group) stepDown() {
	if g.leader { // a sole voter's reads wait for its first leadership
		g.reads.fail(g.notLeader())
	}
	g.leader, g.serving, g.takeover = false, false, false
	g.transfer.to, g.transfer.sent = 0, false
	g.gathering, g.held = false, nil
	if g.scheduler != nil {
		g.scheduler.End()
	}
	for _, p := range g.proposals {
		p.fail(timer.ErrUnknown)
	}
	g.proposals = nil
	g.refusePulls()
	if g.raft != nil && !g.soleVoter() && !g.awaitsLeader() {
		g.refuseAll()
	}
}

// refuseAll answers all operations that were not proposed: this node does not lead the group, but
// another may.
func (g *group) refuseAll() {
	err := g.notLeader()
	for _, o := range g.waiting {
		o.answer(timer.Result{}, err)
	}
	g.waiting = nil
	g.refusePulls()
	if g.meta != nil {
		for _, o := range g.meta.waiting {
			o.answer(nil, err)
		}
		g.meta.waiting = nil
	}
	g.reads.fail(err)
}

// notLeader returns the error that names the leading node, if this node knows it.
func (g *group) notLeader() error {
	if g.raft == nil {
		return timer.NotLeaderError{}
	}
	leader := nodeOf(g.raft.BasicStatus().Lead)
	if leader == g.w.host.cfg.Node {
		leader = 0
	}
	return timer.NotLeaderError{Leader: leader}
}

// notLeading reports whether operations must not wait here: this node has no replica of the group,
// or one that follows.
func (g *group) notLeading() bool {
	return g.raft == nil || !g.leader && !g.soleVoter()
}

func (p *proposal) fail(err error) {
	for i := range p.items {
		it := &p.items[i]
		if it.op != nil {
			it.op.answer(timer.Result{}, err)
		}
		if it.pull != nil {
			it.pull.answer(err)
		}
	}
	for _, o := range p.metas {
		if o != nil {
			o.answer(nil, err)
		}
	}
}

// expire answers operations whose deadline has passed: 503 is better than silence.
func (g *group) expire(now time.Duration) {
	for len(g.waiting) > 0 && g.waiting[0].deadline <= now {
		g.waiting[0].answer(timer.Result{}, g.timeoutError())
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
	for i := range g.proposals {
		p := &g.proposals[i]
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
	if g.scheduler != nil {
		g.scheduler.Expire(now)
		g.expirePulls(now)
	}
	g.reads.expire(now)
	if g.meta != nil {
		g.meta.expire(g, now)
	}
}

func (g *group) timeoutError() error {
	if g.w.stream.Full() {
		d := g.w.stream.Disk()
		return timer.LowDiskError{Node: g.w.host.cfg.Node, Path: g.w.host.cfg.Dir, Free: d.Free, Limit: d.Limit}
	}
	if g.serving {
		return timer.ErrOverloaded
	}
	return timer.ErrNoLeader
}
