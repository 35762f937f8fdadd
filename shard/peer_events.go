package shard

import (
	"slices"
	"time"

	"carillon/shard/table"

	"go.etcd.io/raft/v3"
)

// What a host is told about other nodes' processes. All of it may be wrong but Restarted: it starts
// elections and questions, and ends no lease.

// Unreachable reports that frames to a node were lost. Leaders then probe the replicas there again.
func (h *Host) Unreachable(node uint64) {
	h.tellGroups(func(g *group) {
		if id := g.membership.replicaOn(g, node); id != 0 && g.leader {
			g.raft.ReportUnreachable(id)
			g.w.touch(g)
		}
	})
}

// SeemsGone hints that a process has ended.
func (h *Host) SeemsGone(owner table.Incarnation) {
	h.tellGroups(func(g *group) {
		g.machine.scanLeases() // it asks for a fence where it needs one
		g.candidacy.leaderSeemsGone(g, owner.Node())
	})
}

// Restarted reports that a new process of a node has registered: see Placement.Restarted.
func (h *Host) Restarted() {
	h.tellGroups(func(g *group) {
		g.machine.scanLeases()
	})
}

// tellGroups runs do for every group with a replica here, on its worker.
func (h *Host) tellGroups(do func(*group)) {
	for _, w := range h.workers {
		w.box.post(groupEvent(do))
	}
}

type groupEvent func(*group)

func (do groupEvent) handle(w *worker) {
	for _, g := range w.groups {
		if g.raft != nil {
			do(g)
		}
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

// candidacy is the election that a voter begins early, because the leader seemed to be gone.
type candidacy struct {
	at    time.Duration // next time that it campaigns; 0: it does not
	until time.Duration
}

// leaderSeemsGone makes the group elect another leader at once if the node led it. Pre-votes keep
// that safe: a leader that lives and is followed by a majority goes on, and this follower finds it
// again at its next heartbeat.
func (c *candidacy) leaderSeemsGone(g *group, node uint64) {
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
		c.at = g.w.now.Mono + standAfter + time.Duration(rank)*standRank
		c.until = c.at + standFor
	}
}

// stand campaigns while the group has no leader after the former one seemed to be gone.
func (c *candidacy) stand(g *group) {
	now := g.w.now.Mono
	if c.at == 0 || now < c.at {
		return
	}
	c.at = 0
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
	if now+standEach < c.until {
		c.at = now + standEach
	}
}
