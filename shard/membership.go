package shard

import (
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"carillon/shard/record"
)

const (
	reconcileEvery     = 100 * time.Millisecond
	settledReportEvery = 500 * time.Millisecond // interval between reports to the meta group
	// caughtUp is how many entries a learner may lack when it gets its vote: about as many as
	// arrive in one or two round trips.
	caughtUp = 256
	// confLimit is how long a leader waits for a proposed membership change before it looks at the
	// membership again.
	confLimit = time.Second
	// commitHintPeriod is how long a learner sends commit hints, and then how long it sends none.
	// It is longer than an election timeout.
	commitHintPeriod = 3 * time.Second
	// learnerHeartbeat is the interval of heartbeats to the learners of the meta group; see
	// withholds.
	learnerHeartbeat = time.Second
)

// membership is how a group follows its assignment. The members themselves are storage.conf.
type membership struct {
	row       Assignment // assignment of its replicas, as this node knows it
	epoch     uint32     // of the assignment that the members followed last
	index     uint64     // of the last change of members, or later
	known     confKnown  // whether the members know of that change
	hintsSent uint64     // to candidates, see sendCommitHint

	reconcileAt time.Duration
	settledAt   time.Duration // when the next report to the meta group is due
	until       time.Duration // a proposed change is waited for; 0: none is

	learnersAt time.Duration // when the learners of the meta group had their last heartbeat
}

// withholds reports whether a heartbeat is not sent. All nodes that do not vote in the meta group
// are its learners, so there may be a thousand. A learner stands in no election and confirms no
// leader. It needs a heartbeat only to get again what was lost, and while the members change: one
// that is to vote must be seen to be there.
func (m *membership) withholds(r *replica, beat *pb.Message) bool {
	if beat.GetType() != pb.MsgHeartbeat || r.shard != Meta || !m.row.Settled || slices.Contains(r.store.Conf.Voters, beat.GetTo()) ||
		slices.Contains(r.store.Conf.VotersOutgoing, beat.GetTo()) {
		return false
	}
	now := r.w.now.Mono
	if now >= m.learnersAt+learnerHeartbeat {
		m.learnersAt = now
	}
	return now != m.learnersAt
}

// reconcile makes a leader follow its assignment: first one membership change at a time, then the
// transfer of the leadership to the preferred replica.
func (m *membership) reconcile(r *replica) {
	if !r.leader || !r.serving && !r.mayNotLead() || r.w.now.Mono < m.reconcileAt {
		return
	}
	m.reconcileAt = r.w.now.Mono + reconcileEvery
	r.transfer.expire(r)
	if r.mayNotLead() {
		r.transfer.toRemaining(r)
		return
	}
	if r.transfer.to == 0 && r.w.host.isCordoned() {
		if next := r.transfer.transfereeAmong(r, m.stayers(r)); next != 0 {
			r.transfer.begin(r, next)
		}
	}
	if m.row.Epoch == 0 || m.row.Epoch < m.epoch || r.transfer.to != 0 || len(r.store.Conf.VotersOutgoing) > 0 || r.w.now.Mono < m.until {
		return
	}
	voters, learners := m.wanted()
	if len(voters) == 0 {
		return
	}
	switch cc := m.nextChange(r, voters, learners); {
	case cc != nil:
		cc.Context = binary.AppendUvarint(nil, uint64(m.row.Epoch))
		m.until = r.w.now.Mono + confLimit
		_ = r.raft.ProposeConfChange(cc) // refused while another is under way; tried again later
		r.w.touch(r)
	case !sameIDs(voters, r.store.Conf.Voters) || !sameIDs(learners, r.store.Conf.Learners):
	case !m.row.Settled:
		if r.w.now.Mono >= m.settledAt && m.isKnown(r) {
			m.settledAt = r.w.now.Mono + settledReportEvery
			r.w.host.cfg.Placement.Settled(r.shard, m.row.Epoch)
		}
	default:
		r.transfer.toPreferred(r)
	}
}

// leaves reports that this replica is not among the voters that remain after the current change. It
// may be elected nevertheless while a joint change is under way. It then proposes nothing and
// transfers the leadership to a remaining voter. Entries that it alone has would make its log the
// longest: it would refuse its vote to the remaining voters, which may still count it, and could
// not be a candidate itself.
func (m *membership) leaves(r *replica) bool {
	return len(r.store.Conf.Voters) > 0 && !slices.Contains(r.store.Conf.Voters, r.id)
}

// isOut reports that this replica has applied the change that took its vote. A new replica may not
// have applied the change that adds it yet.
func (m *membership) isOut(r *replica) bool {
	return m.leaves(r) && !slices.Contains(r.store.Conf.VotersOutgoing, r.id) && (m.learns(r) || m.epoch >= epochOf(r.id))
}

func (m *membership) learns(r *replica) bool { return slices.Contains(r.store.Conf.Learners, r.id) }

// sendCommitHint answers a pre-vote request with this replica's commit index, which covers at least
// the change that removed it. A candidate that has not applied the change still counts this
// replica's vote. It does not get the vote if this replica has the longer log: a leader sends
// entries before they are on its own disk, and may fail before they are. Since this replica cannot
// be a candidate, the group would never have a leader (I14).
//
// The hint is an append without entries in the candidate's term. No replica leads in that term, or
// else the leader's next heartbeat corrects the candidate. The candidate accepts the hint only if
// it has the entry in question. It learns only that this entry is committed, which is true
// regardless of the sender.
func (m *membership) sendCommitHint(r *replica, ask *pb.Message) {
	if ask.GetType() != pb.MsgPreVote || ask.GetTerm() < 2 || !m.isOut(r) {
		return
	}
	if m.learns(r) && r.w.now.Mono/commitHintPeriod%2 == 1 {
		// The learner may be a voter that does not know of its promotion yet. A hint ends an
		// election, so candidates that can win without this replica get the other periods.
		return
	}
	last := r.store.Last()
	term, err := r.store.Term(last)
	if err != nil || ask.GetLogTerm() > term || ask.GetLogTerm() == term && ask.GetIndex() >= last {
		return // the candidate gets the vote
	}
	index := min(r.applied, ask.GetIndex()) // the last entry that the candidate may have
	if index < m.index {
		// The candidate lacks the change, so a replica that has it must lead. A hint would make the
		// candidate refuse its vote to that replica.
		return
	}
	if term, err = r.store.Term(index); err != nil {
		return // no longer in memory
	}
	m.hintsSent++
	r.send(&pb.Message{
		Type: pb.MsgApp.Enum(), From: &r.id, To: ask.From, Term: new(ask.GetTerm() - 1),
		Index: &index, LogTerm: &term, Commit: &index,
	})
}

// stayers returns the voters to which a cordoned leader may transfer its leadership. It excludes
// voters that the assignment removes, because these would return it.
func (m *membership) stayers(r *replica) []uint64 {
	if m.row.Epoch == 0 || m.row.Epoch < m.epoch {
		return r.store.Conf.Voters // the assignment is older than the membership
	}
	voters, _ := m.wanted()
	return voters
}

func (m *membership) wanted() (voters, learners []uint64) {
	for _, member := range m.row.Members {
		if member.Learner {
			learners = append(learners, member.Replica)
		} else {
			voters = append(voters, member.Replica)
		}
	}
	return voters, learners
}

// nextChange returns the next change from the current membership to the wanted one, or nil if there
// is none now. A new voter is added as a learner first. Once it has caught up, one joint change
// gives it its vote and removes the replicas that are no longer wanted.
func (m *membership) nextChange(r *replica, voters, learners []uint64) *pb.ConfChangeV2 {
	conf := r.store.Conf
	cc := &pb.ConfChangeV2{}
	change := func(kind pb.ConfChangeType, id uint64) {
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: &kind, NodeId: &id})
	}
	for _, id := range append(slices.Clone(voters), learners...) {
		if !slices.Contains(conf.Voters, id) && !slices.Contains(conf.Learners, id) {
			change(pb.ConfChangeAddLearnerNode, id)
		}
	}
	if len(cc.Changes) > 0 {
		return cc
	}
	for _, id := range voters {
		if !slices.Contains(conf.Voters, id) {
			if !m.hasCaughtUp(r, id) {
				return nil
			}
			change(pb.ConfChangeAddNode, id)
		}
	}
	// A leader that is not among the wanted voters hands over first. Before that, its transferee
	// may have to get a vote.
	if !slices.Contains(voters, r.id) {
		next := r.transfer.transfereeAmong(r, voters)
		// No remaining replica may lead, perhaps because all of their nodes drain. The assignment
		// is followed nevertheless.
		if next == 0 && len(cc.Changes) == 0 {
			next = r.transfer.anyTransferee(r, voters)
		}
		if next != 0 {
			r.transfer.begin(r, next)
			return nil
		}
		if len(cc.Changes) == 0 {
			return nil
		}
		return cc
	}
	if !m.mostCaughtUp(r, voters) {
		return nil
	}
	for _, id := range conf.Voters {
		switch {
		case slices.Contains(voters, id):
		case slices.Contains(learners, id):
			change(pb.ConfChangeAddLearnerNode, id)
		default:
			change(pb.ConfChangeRemoveNode, id)
		}
	}
	for _, id := range conf.Learners {
		if !slices.Contains(learners, id) && !slices.Contains(voters, id) {
			change(pb.ConfChangeRemoveNode, id)
		}
	}
	if len(cc.Changes) == 0 {
		return nil
	}
	return cc
}

// mostCaughtUp reports whether most of the wanted voters have caught up with this leader. Votes are
// removed only then: the planner may not know yet that one of these voters is down, and after the
// change the group could not even elect a leader (I14).
func (m *membership) mostCaughtUp(r *replica, voters []uint64) bool {
	return most(voters, func(id uint64) bool { return id == r.id || m.hasCaughtUp(r, id) })
}

// most reports whether most voters do.
func most(voters []uint64, do func(id uint64) bool) bool {
	n := 0
	for _, id := range voters {
		if do(id) {
			n++
		}
	}
	return 2*n > len(voters)
}

// hasCaughtUp reports whether a replica is active and lacks at most caughtUp entries.
func (m *membership) hasCaughtUp(r *replica, id uint64) (ok bool) {
	last, _ := r.store.LastIndex()
	r.raft.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		if other == id {
			ok = pr.RecentActive && pr.State == tracker.StateReplicate && pr.Match+caughtUp >= last
		}
	})
	return ok
}

// apply applies a membership change, unless its epoch is older than one already followed
// (I8).
func (m *membership) apply(r *replica, e *pb.Entry) error {
	cc, err := confChange(e)
	if err != nil {
		return err
	}
	v2 := cc.AsV2()
	if len(v2.Context) > 0 {
		epoch, n := binary.Uvarint(v2.Context)
		if n <= 0 {
			return record.ErrMalformed
		}
		if uint32(epoch) < m.epoch {
			return nil // all replicas ignore it alike
		}
		m.epoch = uint32(epoch)
	}
	r.store.Conf = r.raft.ApplyConfChange(cc)
	r.updateLowDisks(r.w.host.LowDisks())
	m.index, m.until = e.GetIndex(), 0
	return nil
}

// confKnown is a leader's check that most voters know of the last membership change. An assignment
// is reported as settled, so that the replicas it does not name may be deleted, only when most
// voters would count votes by that change even after a restart. Before that, the vote of a removed
// replica may be needed. The leader therefore appends an empty entry after it has applied the
// change. A replica that has this entry on disk has, in the same frame, a commit index that covers
// the change.
type confKnown struct {
	conf, term uint64 // of the change that is checked, and of the leadership
	index      uint64 // of the empty entry; 0: not applied yet
}

// applied records an applied empty entry.
func (k *confKnown) applied(e *pb.Entry) {
	if k.index == 0 && k.term != 0 && e.GetTerm() == k.term && e.GetIndex() > k.conf {
		k.index = e.GetIndex()
	}
}

// isKnown reports whether most voters know of the last change. If this has not been checked yet, it
// starts the check.
func (m *membership) isKnown(r *replica) bool {
	if r.appliedTerm != r.term {
		return false // the first entry of this term, which is empty too, comes before
	}
	if m.known.conf != m.index || m.known.term != r.term {
		if r.raft.Propose(nil) == nil {
			m.known = confKnown{conf: m.index, term: r.term}
			r.w.touch(r)
		}
		return false
	}
	if m.known.index == 0 {
		return false
	}
	knows := 0
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if pr.Match >= m.known.index && slices.Contains(r.store.Conf.Voters, id) {
			knows++
		}
	})
	return 2*knows > len(r.store.Conf.Voters)
}

func sameIDs(a, b []uint64) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// all returns all replicas of the group in ascending order, each once.
func (m *membership) all(r *replica) []uint64 {
	conf := r.store.Conf
	list := slices.Concat(conf.Voters, conf.VotersOutgoing, conf.Learners)
	slices.Sort(list)
	return slices.Compact(list)
}
