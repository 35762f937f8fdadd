package shard

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
)

// awaitLimit is how long commands wait at a replica that knows of no leader. A leadership transfer
// takes a fraction of it. After a failure, an election begins only when the leader has been silent
// for longer than that.
const awaitLimit = 300 * time.Millisecond

// awaitsLeader reports whether the group lost its leader less than awaitLimit ago. Commands then
// wait here for the next leader, because trying other nodes would take longer.
func (g *group) awaitsLeader() bool {
	return g.raft != nil && !g.machine.prompt() && !g.leader && g.election.leaderless && g.w.now.Mono-g.election.since < awaitLimit
}

// leadChanged records whether raft knows a leader. When another replica becomes leader, waiting
// commands are refused and told its node.
func (e *election) leadChanged(g *group, lead uint64) {
	switch {
	case lead == raft.None && !e.leaderless:
		e.leaderless, e.since = true, g.w.now.Mono
	case lead != raft.None && e.leaderless:
		e.leaderless = false
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
	g.pipeline.gathering, g.pipeline.held = false, nil
	g.machine.end()
	if g.raft != nil && !g.soleVoter() && !g.awaitsLeader() {
		g.refuseAll()
	}
}

const (
	// standAfter is how long the first voter waits with its candidacy, until the others have got the
	// hint too: they give no vote before.
	standAfter = 10 * time.Millisecond
	// standRank is how much later each next voter of the assignment stands: the one before it may be
	// gone too.
	standRank = 4 * tickInterval
	standEach = tickInterval
	// standFor is how long a voter stands again and again. Then the usual timeouts apply.
	standFor = time.Second
)

// election is what a replica knows of its group's elections.
type election struct {
	leaderless bool          // raft knows of no leader
	since      time.Duration // when it knew of one last, if leaderless

	// A voter campaigns early if the leader seems to be gone.
	at    time.Duration // next time that it campaigns; 0: it does not
	until time.Duration
}

// leaderSeemsGone makes the group elect another leader at once if the node led it. Pre-votes keep
// that safe: a leader that lives and is followed by a majority goes on, and this follower finds it
// again at its next heartbeat.
func (e *election) leaderSeemsGone(g *group, node uint64) {
	if nodeOf(g.raft.BasicStatus().Lead) != node || g.raft.ForgetLeader() != nil {
		return
	}
	g.w.touch(g)
	var rest []Member
	for _, m := range g.membership.row.Members {
		if m.Node != node && !m.Learner {
			rest = append(rest, m)
		}
	}
	rank := slices.IndexFunc(rest, func(m Member) bool { return m.Replica == g.replica })
	if rank >= 0 {
		e.at = g.w.now.Mono + standAfter + time.Duration(rank)*standRank
		e.until = e.at + standFor
	}
}

// stand campaigns while the group has no leader after the former one seemed to be gone.
func (e *election) stand(g *group) {
	now := g.w.now.Mono
	if e.at == 0 || now < e.at {
		return
	}
	e.at = 0
	if g.raft == nil {
		return
	}
	status := g.raft.BasicStatus()
	if status.Lead != raft.None {
		return
	}
	if status.RaftState != raft.StateCandidate { // its votes are on their way
		_ = g.raft.Campaign()
		g.w.touch(g)
	}
	if now+standEach < e.until {
		e.at = now + standEach
	}
}

// tookOver begins to serve: the takeover is applied, so the table holds everything that former
// leaders committed.
func (s *timerShard) tookOver() {
	s.g.serving = true
	w := s.g.w
	s.g.servingSince = w.now.Mono
	s.scheduler.Begin()
	s.canary.begin(w.now.Mono)
	w.touchNext(s.g)
}
