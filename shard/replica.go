package shard

import (
	"math"

	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Member is one replica of a group: where, and under which id. An id is never used twice in a
// group.
type Member struct {
	Node    uint64
	Replica uint64
	Learner bool // has no vote (the meta group only)
}

// Assignment is where a group's replicas should be, as the meta group has it: an intent. What is,
// says raft's own membership; the group's leader brings that in line with the row.
type Assignment struct {
	Group   timer.ShardID
	Epoch   uint32 // grows with every change; a leader never follows an older one than it has followed (I8)
	Members []Member
	Settled bool // raft's membership is the row

	// Founders are the members that the group began with, as long as one of them may have to make
	// its replica yet, though the row may not name it any more. In epoch 1 they are Members.
	Founders []Member `json:",omitempty"`
}

// ReplicaID names the replica that a node gets of a group in an epoch.
func ReplicaID(node uint64, epoch uint32) uint64 { return node<<24 | uint64(epoch&0xffffff) }

// epochOf is the epoch in which a replica was made.
func epochOf(replica uint64) uint32 { return uint32(replica & 0xffffff) }

// on is the row's replica on a node; nil: none.
func (r *Assignment) on(node uint64) *Member { return memberOn(r.Members, node) }

func memberOn(members []Member, node uint64) *Member {
	for i := range members {
		if members[i].Node == node {
			return &members[i]
		}
	}
	return nil
}

// founders are the members that the group began with; none if all that must have made their
// replicas.
func (r *Assignment) founders() []Member {
	if r.Epoch == 1 {
		return r.Members
	}
	return r.Founders
}

// Placement is told what groups' leaders have done about their rows. Calls come on workers and must
// not block.
type Placement interface {
	// Settled says that raft's membership is the row of that epoch. It is said again until the row
	// is.
	Settled(group timer.ShardID, epoch uint32)
	// MayLead says whether a node should lead: it is there, does not drain, and is fit.
	MayLead(node uint64) bool
}

// staticPlacement is the Placement of a host whose rows never change.
type staticPlacement struct{}

func (staticPlacement) Settled(timer.ShardID, uint32) {}
func (staticPlacement) MayLead(uint64) bool           { return true }

// Place gives the host the rows as they stand now; those of other nodes' groups too. It may be
// called from any goroutine once Started is closed.
func (h *Host) Place(rows []Assignment) {
	perWorker := make([]placed, len(h.workers))
	for _, r := range rows {
		if int(r.Group) < len(h.groups) {
			k := int(r.Group) % len(h.workers)
			perWorker[k] = append(perWorker[k], r)
		}
	}
	for k, list := range perWorker {
		if len(list) > 0 {
			h.workers[k].box.post(list)
		}
	}
}

type placed []Assignment

func (p placed) handle(w *worker) {
	for i := range p {
		w.host.groups[p[i].Group].applyAssignment(&p[i])
	}
}

// applyAssignment takes a row over: a replica is made or removed, and the leader has work to do.
func (g *group) applyAssignment(row *Assignment) {
	if row.Epoch < g.row.Epoch || row.Epoch == g.row.Epoch && g.row.Settled {
		return
	}
	if row.Epoch < epochOf(g.replica) {
		return // after a start this node's copy of meta's state may be older than the replica: such a row knows nothing of it
	}
	g.row = *row
	me := row.on(g.w.host.cfg.Node)
	switch {
	case g.replica == 0:
	case me == nil && row.Settled, me != nil && me.Replica > g.replica:
		g.remove()
	}
	if me == nil { // to leave, but the move needs most founders' votes
		me = memberOn(row.founders(), g.w.host.cfg.Node)
	}
	if g.replica == 0 && me != nil && me.Replica > g.tombstone {
		g.create(me.Replica)
	}
	if g.raft != nil {
		g.w.touch(g)
	}
}

// create makes this node's replica of the group. The founders' all begin with the same members, as
// one founded the group, however late they are made and whatever has become of the row; others
// begin empty and learn everything from the leader. So do founders' once a move has been settled:
// most members have theirs by then.
//
// Invariant: until a move is settled every founder can make the replica that it is counted with,
// and by that only. So a group has a leader as soon as most of its founders are there. A late one
// is to raft a member that is slow to start: its id is never used again once given up (tombstone),
// so it has not voted before; and where the members are others by now, who would have to vote for
// it knows that.
func (g *group) create(replica uint64) {
	m := record.Mark{Replica: replica, Conf: &pb.ConfState{}}
	if f := memberOn(g.row.founders(), nodeOf(replica)); f != nil && f.Replica == replica {
		m.Index, m.Term, m.Epoch = foundingIndex, foundingTerm, 1
		for _, member := range g.row.founders() {
			if member.Learner {
				m.Conf.Learners = append(m.Conf.Learners, member.Replica)
			} else {
				m.Conf.Voters = append(m.Conf.Voters, member.Replica)
			}
		}
	}
	g.place(m)
	g.end, g.creation = record.EntryID{Index: m.Index, Term: m.Term}, &m
	g.hard = record.HardState{Commit: m.Index, Term: m.Term}
	g.store.hard = &pb.HardState{Term: new(g.hard.Term), Vote: new(g.hard.Vote), Commit: new(g.hard.Commit)}
	g.store.snapshot = g.offerSnapshot
	if err := g.newRaft(); err != nil {
		g.w.host.fail(err)
		return
	}
	g.w.append(appended{group: g, create: &m, sync: true})
	if g.soleVoter() {
		_ = g.raft.Campaign()
	}
	g.w.touchNext(g) // it may be that no turn is under way: the host recovers
}

// remove gives this node's replica up: its id is used up, its state goes. Calls that it started go
// on, and report to who leads now.
func (g *group) remove() {
	g.stepDown()
	g.refuseAll()
	if run := g.w.snapshot; run != nil && run.group == g {
		run.abort()
	}
	g.tombstone = max(g.tombstone, g.replica)
	files := logRetention{tomb: max(1, g.files.needed()), restating: true} // until the tombstone is on disk, what it ends must be too
	g.reset()
	g.files = files
	g.publish()
	g.w.append(appended{group: g, tombstone: g.tombstone, sync: true})
}

// reset makes the group one that has no replica here.
func (g *group) reset() {
	g.raft, g.replica = nil, 0
	g.store = &storage{conf: &pb.ConfState{}}
	g.applied, g.appliedTerm, g.epoch, g.confIndex = 0, 0, 0, 0
	g.hard, g.hardDirty, g.end, g.creation = record.HardState{}, false, record.EntryID{}, nil
	g.incoming, g.wantSnapshot = nil, false
	g.trustAgain()
	g.compare, g.refills, g.stopped = comparison{}, nil, nil
	g.wakeMs = math.MaxInt64 // what it waited for is gone, and would keep its worker awake
	if g.table != nil {
		g.setTable(table.New(g.id, 0))
	}
}

// replicaOn is the group's replica on a node, by its membership; 0: none.
func (g *group) replicaOn(node uint64) uint64 {
	for _, ids := range [][]uint64{g.store.conf.Voters, g.store.conf.Learners, g.store.conf.VotersOutgoing} {
		for _, id := range ids {
			if nodeOf(id) == node {
				return id
			}
		}
	}
	return 0
}
