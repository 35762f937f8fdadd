package shard

import (
	"errors"
	"math"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/placement"
	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
)

// Member and Assignment say where replicas should be.
type (
	Member     = placement.Member
	Assignment = placement.Assignment
)

// epochOf returns the epoch of a replica's assignment.
func epochOf(replica uint64) uint32 { return uint32(replica & placement.MaxEpoch) }

// Placement tells leaders which nodes should lead, and is told which assignments have settled. Its
// methods are called on workers and must not block.
type Placement interface {
	// Settled reports that raft's membership matches the assignment of that epoch. It is repeated
	// until Assignment.Settled is set.
	Settled(group timer.ShardID, epoch uint32)
	// MayLead reports whether a node should lead: it is alive, does not drain and is healthy.
	MayLead(node uint64) bool
	// Restarted reports that a later process of the owner's node has registered with the meta
	// group: this one, which had the same data directory, has ended.
	Restarted(owner table.Incarnation) bool
	// Fence asks the meta group to record that a process is gone. It calls then once, on another
	// goroutine: without an error a majority of the meta group's voters found it gone after Fence
	// was called. They may be wrong.
	Fence(owner table.Incarnation, then func(error))
}

// staticPlacement is the Placement of a host whose assignments never change.
type staticPlacement struct{}

func (staticPlacement) Settled(timer.ShardID, uint32) {}
func (staticPlacement) MayLead(uint64) bool           { return true }

func (staticPlacement) Restarted(table.Incarnation) bool { return false }
func (staticPlacement) Fence(_ table.Incarnation, then func(error)) {
	then(errors.New("shard: there is no meta group to ask"))
}

// Place passes the current assignments to the host, including those of groups without a replica
// here. It may be called on any goroutine once Started is closed.
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

// applyAssignment adopts an assignment. It creates or removes the local replica, and the leader
// reconciles.
func (g *group) applyAssignment(row *Assignment) {
	if row.Epoch < g.membership.row.Epoch || row.Epoch == g.membership.row.Epoch && g.membership.row.Settled {
		return
	}
	if row.Epoch < epochOf(g.replica) {
		// After a restart this node's copy of the meta state may be older than the replica, and
		// then so is the assignment.
		return
	}
	g.membership.row = *row
	me := placement.On(row.Members, g.w.host.cfg.Node)
	switch {
	case g.replica == 0:
	case me == nil && row.Settled, me != nil && me.Replica > g.replica:
		g.remove()
	}
	if me == nil { // to be removed, but the move needs the votes of most founders
		me = placement.On(row.FirstMembers(), g.w.host.cfg.Node)
	}
	if g.replica == 0 && me != nil && me.Replica > g.tombstone {
		g.create(me.Replica)
	}
	if g.raft != nil {
		g.w.touch(g)
	}
}

// create makes this node's replica of the group. The replicas of founders all begin with the same
// members, however late they are created, even if the assignment has changed. Other replicas
// begin empty and learn everything from the leader. So do those of founders once a move has
// settled: by then most members have theirs.
//
// Invariant: until a move has settled, every founder can create the replica that it is counted
// with, and no other. So a group has a leader as soon as most of its founders are up. To raft a
// late founder is a member that is slow to start. It has not voted before, because the id of a
// removed replica is never reused (tombstone). If the membership has changed since, the replicas
// whose votes it would need know that.
func (g *group) create(replica uint64) {
	m := record.Mark{Replica: replica, Conf: &pb.ConfState{}}
	if f := placement.On(g.membership.row.FirstMembers(), nodeOf(replica)); f != nil && f.Replica == replica {
		m.Index, m.Term, m.Epoch = foundingIndex, foundingTerm, 1
		for _, member := range g.membership.row.FirstMembers() {
			if member.Learner {
				m.Conf.Learners = append(m.Conf.Learners, member.Replica)
			} else {
				m.Conf.Voters = append(m.Conf.Voters, member.Replica)
			}
		}
	}
	g.place(m)
	g.written.end = m.Index
	g.written.hard = record.HardState{Commit: m.Index, Term: m.Term}
	g.store.hard = &pb.HardState{Term: new(g.written.hard.Term), Vote: new(g.written.hard.Vote), Commit: new(g.written.hard.Commit)}
	g.store.snapshot = func() (*pb.Snapshot, error) { return g.snapshots.offer(g) }
	if err := g.newRaft(); err != nil {
		g.w.host.fail(err)
		return
	}
	g.w.append(appended{group: g, create: &m, sync: true})
	if g.soleVoter() {
		_ = g.raft.Campaign()
	}
	g.w.touchNext(g) // recovery calls this outside of a turn
}

// remove gives up this node's replica: its id is used up and its state is deleted. Calls that it
// started go on, and their ends are reported to the current leader.
func (g *group) remove() {
	g.stepDown()
	g.refuseAll()
	if run := g.w.snapshot; run != nil && run.group == g {
		run.abort()
	}
	g.tombstone = max(g.tombstone, g.replica)
	// Until the tombstone is on disk, the records that it voids must be kept.
	files := logRetention{tomb: max(1, g.files.needed()), restating: true}
	g.reset()
	g.files = files
	g.publish()
	g.w.append(appended{group: g, tombstone: g.tombstone, sync: true})
}

// reset makes the group one without a local replica.
func (g *group) reset() {
	g.raft, g.replica = nil, 0
	g.store = &storage{conf: &pb.ConfState{}}
	g.w.countEntries(g) // a group without a replica has no turns
	g.applied, g.appliedTerm, g.membership.epoch, g.membership.index = 0, 0, 0, 0
	g.written.hard, g.written.dirty, g.written.end = record.HardState{}, false, 0
	g.snapshots.incoming, g.snapshots.wanted = nil, false
	g.trustAgain()
	g.compare, g.stopped = comparison{}, nil
	g.turn.wakeMs = math.MaxInt64 // an old time would keep the worker awake
	g.machine.clear()
}

// replicaOn returns the replica of the membership on a node, or 0.
func (m *membership) replicaOn(g *group, node uint64) uint64 {
	for _, ids := range [][]uint64{g.store.conf.Voters, g.store.conf.Learners, g.store.conf.VotersOutgoing} {
		for _, id := range ids {
			if nodeOf(id) == node {
				return id
			}
		}
	}
	return 0
}
