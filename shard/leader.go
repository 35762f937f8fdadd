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
	return g.raft != nil && !g.machine.prompt() && !g.leader && g.leaderless && g.w.now.Mono-g.leaderlessSince < awaitLimit
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
	g.machine.end()
	if g.raft != nil && !g.soleVoter() && !g.awaitsLeader() {
		g.refuseAll()
	}
}

// refuseAll answers all operations that were not proposed: this node does not lead the group, but
// another may.
func (g *group) refuseAll() {
	err := g.notLeader()
	g.machine.refuse(err)
	g.reads.fail(err)
}

// failProposals answers the operations of the proposals that are not applied: their outcome is
// unknown.
func (g *group) failProposals() {
	for _, p := range g.proposals {
		p.fail(timer.ErrUnknown)
	}
	g.proposals = nil
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
	g.machine.expire(now)
	g.reads.expire(now)
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
