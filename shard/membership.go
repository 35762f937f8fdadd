package shard

import (
	"encoding/binary"
	"slices"
	"time"

	"carillon/shard/record"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

const (
	reconcileEach = 100 * time.Millisecond
	settledEach   = 500 * time.Millisecond // the meta group is told again
	// caughtUp is how many entries a learner may lack when it gets its vote: what comes in during a
	// round or two.
	caughtUp = 256
	// confLimit is how long a proposed change of members is waited for before it is looked at
	// again.
	confLimit = time.Second
	// commitHintPeriod is for how long a learner is a witness, and then for how long it is none:
	// both are longer than an election's time-out.
	commitHintPeriod = 3 * time.Second
)

// reconcile is what a leader does about its row: one change of members at a time, then the
// leadership's place.
func (g *group) reconcile() {
	if !g.leader || !g.serving && !g.mayNotLead() || g.w.now.Mono < g.reconcileAt {
		return
	}
	g.reconcileAt = g.w.now.Mono + reconcileEach
	g.watchHandOver()
	if g.mayNotLead() {
		g.handToWhoStays()
		return
	}
	if g.transferee == 0 && g.w.host.isCordoned() {
		if next := g.transfereeAmong(g.stayers()); next != 0 {
			g.handOver(next)
		}
	}
	if g.row.Epoch == 0 || g.row.Epoch < g.epoch || g.transferee != 0 || len(g.store.conf.VotersOutgoing) > 0 || g.w.now.Mono < g.confUntil {
		return
	}
	voters, learners := g.wanted()
	if len(voters) == 0 {
		return
	}
	switch cc := g.nextChange(voters, learners); {
	case cc != nil:
		cc.Context = binary.AppendUvarint(nil, uint64(g.row.Epoch))
		g.confUntil = g.w.now.Mono + confLimit
		_ = g.raft.ProposeConfChange(cc) // refused while one is under way: it is tried again
		g.w.touch(g)
	case !sameIDs(voters, g.store.conf.Voters) || !sameIDs(learners, g.store.conf.Learners):
	case !g.row.Settled:
		if g.w.now.Mono >= g.settledAt && g.isKnown() {
			g.settledAt = g.w.now.Mono + settledEach
			g.w.host.cfg.Placement.Settled(g.id, g.row.Epoch)
		}
	default:
		g.prefer()
	}
}

// leaves reports that this replica has no place among the voters that stay. It may lead all the
// same: if it is elected while the change is not over yet. Then it proposes nothing, but sees to it
// that one of those leads who stay. What it appended for itself alone would make its log the
// longest: it would refuse its vote to those who stay, who may still count it, and could not stand
// itself.
func (g *group) leaves() bool {
	return len(g.store.conf.Voters) > 0 && !slices.Contains(g.store.conf.Voters, g.replica)
}

// isOut reports that this replica has applied the change that took its vote. One that is new may
// not have applied yet what brings it in.
func (g *group) isOut() bool {
	return g.leaves() && !slices.Contains(g.store.conf.VotersOutgoing, g.replica) && (g.learns() || g.epoch >= epochOf(g.replica))
}

func (g *group) learns() bool { return slices.Contains(g.store.conf.Learners, g.replica) }

// sendCommitHint says to who asks for the vote of a replica that is out what that one knows to be
// committed: the change that took it out, at least. Who has not applied that counts by the members
// before. It may need this vote, and does not get it where this replica has the longer log: a
// leader sends entries before it has them on disk itself, and may end before it has. Nor can this
// replica stand, so nobody would ever lead (I14).
//
// It is a leader's word by its form, without entries, in the term in which the asker is: nobody
// leads there, or the next heartbeat says who. The asker takes it only if it has that very entry,
// and learns nothing but that it is committed, which is true whoever says so.
func (g *group) sendCommitHint(m *pb.Message) {
	if m.GetType() != pb.MsgPreVote || m.GetTerm() < 2 || !g.isOut() {
		return
	}
	if g.learns() && g.w.now.Mono/commitHintPeriod%2 == 1 {
		return // it may be one that has not heard yet that it votes: those who can do without have their turn too, as the word ends an election
	}
	last := g.store.last()
	term, err := g.store.Term(last)
	if err != nil || m.GetLogTerm() > term || m.GetLogTerm() == term && m.GetIndex() >= last {
		return // it gets the vote
	}
	index := min(g.applied, m.GetIndex()) // the last that it may have
	if index < g.confIndex {
		return // it lacks the change: who has it is to lead, and the word of a leader would have the asker refuse its vote
	}
	if term, err = g.store.Term(index); err != nil {
		return // that is not in memory any more
	}
	g.commitHintsSent++
	g.send(&pb.Message{
		Type: pb.MsgApp.Enum(), From: &g.replica, To: m.From, Term: new(m.GetTerm() - 1),
		Index: &index, LogTerm: &term, Commit: &index,
	})
}

// stayers are the voters that a leader which steps aside may give the leadership to: not those that
// the row takes out, which would give it back.
func (g *group) stayers() []uint64 {
	if g.row.Epoch == 0 || g.row.Epoch < g.epoch {
		return g.store.conf.Voters // the row is of before: it says nothing of them
	}
	voters, _ := g.wanted()
	return voters
}

// wanted are the row's voters and learners.
func (g *group) wanted() (voters, learners []uint64) {
	for _, m := range g.row.Members {
		if m.Learner {
			learners = append(learners, m.Replica)
		} else {
			voters = append(voters, m.Replica)
		}
	}
	return voters, learners
}

// nextChange is the next step from what is to what is wanted; nil: none now. A new voter first
// learns; only when it has caught up does it get its vote, together with the going of those that
// are not wanted any more, in one joint change.
func (g *group) nextChange(voters, learners []uint64) *pb.ConfChangeV2 {
	conf := g.store.conf
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
			if !g.hasCaughtUp(id) {
				return nil
			}
			change(pb.ConfChangeAddNode, id)
		}
	}
	if !slices.Contains(voters, g.replica) { // who goes does not lead: another takes over first, which may have to get its vote before
		next := g.transfereeAmong(voters)
		if next == 0 && len(cc.Changes) == 0 { // none of those that stay should lead: they drain too, perhaps. The row is followed nevertheless
			next = g.inheritor(voters, func(uint64) bool { return true })
		}
		if next != 0 {
			g.handOver(next)
			return nil
		}
		if len(cc.Changes) == 0 {
			return nil
		}
		return cc
	}
	if !g.mostHear(voters) {
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

// mostHear reports that most of the replicas that are to vote hear this leader and have nearly
// everything. Votes are taken away only then: who drew the row may not know yet that one of them is
// down, and once the change has taken effect the group could not even choose others (I14).
func (g *group) mostHear(voters []uint64) bool {
	hear := 0
	for _, id := range voters {
		if id == g.replica || g.hasCaughtUp(id) {
			hear++
		}
	}
	return 2*hear > len(voters)
}

// hasCaughtUp reports that a replica has all but the last few entries.
func (g *group) hasCaughtUp(id uint64) (ok bool) {
	last, _ := g.store.LastIndex()
	g.raft.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		if other == id {
			ok = pr.RecentActive && pr.State == tracker.StateReplicate && pr.Match+caughtUp >= last
		}
	})
	return ok
}

// changeMembers applies a change of members, unless it is of an epoch before one that was followed
// already (I8).
func (g *group) changeMembers(e *pb.Entry) error {
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
		if uint32(epoch) < g.epoch {
			return nil // refused, by every replica alike
		}
		g.epoch = uint32(epoch)
	}
	g.store.conf = g.raft.ApplyConfChange(cc)
	g.noteLowDisks(g.w.host.lowDisks())
	g.confIndex, g.confUntil = e.GetIndex(), 0
	return nil
}

// confKnown is a leader's question whether the members know of the last change of members. A row is
// said to be settled, and so those that it does not name may go, only when most voters would count
// votes by that change after a restart too: before, a vote of one that has gone may be needed. So
// the leader has an empty entry appended after it has applied the change: who has that on disk has,
// in the same frame, a commit index that covers the change.
type confKnown struct {
	conf, term uint64 // asked about
	index      uint64 // of the empty entry; 0: it is not applied yet
}

// came takes note of an applied empty entry.
func (k *confKnown) came(e *pb.Entry) {
	if k.index == 0 && k.term != 0 && e.GetTerm() == k.term && e.GetIndex() > k.conf {
		k.index = e.GetIndex()
	}
}

// isKnown says whether most voters know of the last change, and asks if that is not known.
func (g *group) isKnown() bool {
	if g.appliedTerm != g.term {
		return false // this term's first entry, which is empty too, comes before
	}
	if g.known.conf != g.confIndex || g.known.term != g.term {
		if g.raft.Propose(nil) == nil {
			g.known = confKnown{conf: g.confIndex, term: g.term}
			g.w.touch(g)
		}
		return false
	}
	if g.known.index == 0 {
		return false
	}
	knows := 0
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if pr.Match >= g.known.index && slices.Contains(g.store.conf.Voters, id) {
			knows++
		}
	})
	return 2*knows > len(g.store.conf.Voters)
}

func sameIDs(a, b []uint64) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
