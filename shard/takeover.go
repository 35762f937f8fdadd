package shard

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/table"
)

// awaitLimit is how long commands wait at a replica that knows of no leader. A leadership transfer
// takes a fraction of it. After a failure, an election begins only when the leader has been silent
// for longer than that.
const awaitLimit = 300 * time.Millisecond

// awaitsLeader reports whether the group lost its leader less than awaitLimit ago. Commands then
// wait here for the next leader, because trying other nodes would take longer.
func (r *replica) awaitsLeader() bool {
	if r.w.now.Mono < r.awaitUntil {
		return r.raft == nil && r.awaitsCreation() || r.raft != nil && !r.leader && r.election.leaderless
	}
	return r.raft != nil && !r.machine.prompt() && !r.leader && r.election.leaderless && r.w.now.Mono-r.election.since < awaitLimit
}

// leadChanged records whether raft knows a leader. When another replica becomes leader, waiting
// commands are refused, and the answers name its node.
func (e *election) leadChanged(r *replica, lead uint64) {
	e.last = cmp.Or(lead, e.last)
	switch {
	case lead == raft.None && !e.leaderless:
		e.leaderless, e.since = true, r.w.now.Mono
	case lead != raft.None && e.leaderless:
		e.leaderless = false
		if lead != r.id && !r.leader {
			r.refuseAll()
		}
	}
}

// roleChanged begins or ends this replica's leadership.
func (r *replica) roleChanged(leader bool) {
	term := r.raft.BasicStatus().GetTerm()
	if leader == r.leader && term == r.term {
		return
	}
	r.stepDown()
	r.leader, r.term = leader, term
	r.updateLowDisks(r.w.host.LowDisks())
	if leader {
		r.w.host.cfg.Observer.Elected()
		r.takeover = true
		r.w.touchNext(r)
	}
}

// stepDown ends this replica's leadership. The outcome of proposed operations is unknown; others
// may be retried at another node.
func (r *replica) stepDown() {
	if r.leader { // a sole voter's reads wait for its first leadership
		r.reads.fail(r.notLeader())
	}
	r.leader, r.serving, r.takeover = false, false, false
	r.transfer.to, r.transfer.sent = 0, false
	r.pipeline.gathering, r.pipeline.held = false, nil
	r.machine.end()
	if r.raft != nil && !r.soleVoter() && !r.awaitsLeader() {
		r.refuseAll()
	}
}

const (
	// candidacyDelay is how long the first voter waits with its candidacy. The others give no vote
	// before they have got the hint too, most of them within 1 ms: it asks them again at first
	// after candidacyGap, and each time after twice as long, candidacyEvery at most.
	candidacyDelay = 2 * time.Millisecond
	candidacyGap   = 3 * time.Millisecond
	candidacyEvery = tickInterval
	// candidacyStagger is how much later each next voter of the assignment stands: the one before
	// it may be gone too.
	candidacyStagger = 4 * tickInterval
	// candidacyFor is how long a voter stands again and again. Then the usual timeouts apply.
	candidacyFor = time.Second
	// splitAfter is how often a voter stands while its votes are on their way. Then nobody has won:
	// voters whose time-outs ended at one moment vote for themselves. The next voter of the
	// assignment begins later than this.
	splitAfter = 3
)

// election is what a replica knows of its group's elections.
type election struct {
	leaderless bool          // raft knows of no leader
	since      time.Duration // when it knew of one last, if leaderless
	last       uint64        // the replica that led last

	// A voter campaigns early if the leader seems to be gone.
	at     time.Duration // next time that it campaigns; 0: it does not
	gap    time.Duration // how much later again
	most   time.Duration // gaps grow up to this
	until  time.Duration
	voting int // how often it stood while its votes were on their way
}

// begin makes the voter campaign from then on, for so long, with gaps of so much at most.
func (e *election) begin(at, long, most time.Duration) {
	e.at, e.gap, e.most, e.until, e.voting = max(1, at), candidacyGap, most, at+long, 0
}

// leaderSeemsGone makes the group elect another leader at once if the node led it, or was about to:
// no leader is known, and it has this replica's vote. Pre-votes keep that safe: a leader that lives
// and is followed by a majority still leads, and this follower finds it again at its next heartbeat.
// Raft may have forgotten the leader already, by its own time-out.
func (e *election) leaderSeemsGone(r *replica, node uint64) {
	status := r.raft.BasicStatus()
	led := nodeOf(cmp.Or(status.Lead, e.last)) == node
	stood := status.Lead == raft.None && nodeOf(status.GetVote()) == node
	if !led && !stood || r.raft.ForgetLeader() != nil {
		return
	}
	r.w.touch(r)
	var rest []Member
	for _, m := range r.membership.row.Members {
		if m.Node != node && !m.Learner {
			rest = append(rest, m)
		}
	}
	rank := slices.IndexFunc(rest, func(m Member) bool { return m.Replica == r.id })
	if rank >= 0 {
		e.begin(r.w.now.Mono+candidacyDelay+time.Duration(rank)*candidacyStagger, candidacyFor, candidacyEvery)
	}
}

// asked handles a candidate's request for a vote. If the candidate lacks entries that this replica
// has, it cannot win with this one's vote: this replica does not wait for its turn.
func (e *election) asked(r *replica, ask *pb.Message) {
	if ask.GetType() != pb.MsgPreVote || e.at == 0 {
		return
	}
	last := r.store.Last()
	if term, err := r.store.Term(last); err == nil && (ask.GetLogTerm() < term || ask.GetLogTerm() == term && ask.GetIndex() < last) {
		e.at = min(e.at, r.w.now.Mono)
	}
}

// stand campaigns while the group has no leader after the former one seemed to be gone.
func (e *election) stand(r *replica) {
	now := r.w.now.Mono
	if e.at == 0 || now < e.at {
		return
	}
	e.at = 0
	if r.raft == nil {
		return
	}
	status := r.raft.BasicStatus()
	if status.Lead != raft.None {
		return
	}
	if status.RaftState == raft.StateCandidate {
		e.voting, e.gap = e.voting+1, candidacyEvery
	}
	if status.RaftState != raft.StateCandidate || e.voting == splitAfter {
		_ = r.raft.Campaign()
		r.w.touch(r)
	}
	if now+e.gap < e.until {
		e.at, e.gap = now+e.gap, min(2*e.gap, e.most)
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

// What a host learns about other nodes' processes. All of it may be wrong but Restarted: it starts
// elections and questions, and ends no lease.

// Unreachable reports that frames to a node were lost. Leaders then probe the replicas there again,
// and give up to hand over to them.
func (h *Host) Unreachable(node uint64) {
	h.eachGroup(func(r *replica) {
		r.transfer.unreachable(r, node)
		if id := r.membership.replicaOn(r, node); id != 0 && r.leader {
			r.raft.ReportUnreachable(id)
			r.w.touch(r)
		}
	})
}

// SeemsGone hints that a process has ended.
func (h *Host) SeemsGone(owner table.Incarnation) {
	h.eachGroup(func(r *replica) {
		r.machine.scanLeases() // it asks for a fence where it needs one
		r.election.leaderSeemsGone(r, owner.Node())
	})
}

// Restarted reports that a new process of a node has registered: see Placement.Restarted.
func (h *Host) Restarted() {
	h.eachGroup(func(r *replica) {
		r.machine.scanLeases()
	})
}

// eachGroup runs do for every group with a replica here, on its worker.
func (h *Host) eachGroup(do func(*replica)) {
	for _, w := range h.workers {
		w.box.post(groupEvent(do))
	}
}

type groupEvent func(*replica)

func (e groupEvent) handle(w *worker) {
	for _, r := range w.groups {
		if r.raft != nil {
			e(r)
		}
	}
}

const (
	// silentAfter is how long nothing has arrived from a node when the groups that it led elect
	// other leaders. Every such election is one that raft may have begun by its own time-out: it is
	// the shortest time-out that raft draws; the longest is twice as long.
	silentAfter = electionTicks * raftTick
	maxLookGap  = 2 * tickInterval
)

// watchSilences makes the groups that silent nodes led elect other leaders. The first worker does
// it for all.
func (w *worker) watchSilences() {
	if w.number > 0 {
		return
	}
	for _, node := range w.host.NewlySilent(w.now.Mono) {
		w.host.eachGroup(func(r *replica) { r.election.leaderSeemsGone(r, node) })
	}
}
