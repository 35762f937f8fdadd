package shard

import (
	"errors"
	"math"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/placement"
	"carillon/shard/raftlog"
	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
)

// Member and Assignment name where replicas should be.
type (
	Member     = placement.Member
	Assignment = placement.Assignment
)

// epochOf returns the epoch of a replica's assignment.
func epochOf(replica uint64) uint32 { return uint32(replica & placement.MaxEpoch) }

// Placement gives leaders the nodes that should lead, and learns which assignments are reached. Its
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
		if int(r.Group) <= int(h.known.Load()) {
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
		w.host.group(p[i].Group).applyAssignment(&p[i])
	}
}

// applyAssignment adopts an assignment. It creates or removes the local replica, and the leader
// reconciles.
func (r *replica) applyAssignment(row *Assignment) {
	if row.Epoch < r.membership.row.Epoch || row.Epoch == r.membership.row.Epoch && r.membership.row.Settled {
		return
	}
	if row.Epoch < epochOf(r.id) {
		// After a restart this node's copy of the meta state may be older than the replica, and
		// then so is the assignment.
		return
	}
	r.membership.row = *row
	me := placement.On(row.Members, r.w.host.cfg.Node)
	switch {
	case r.id == 0:
	case me == nil && row.Settled, me != nil && me.Replica > r.id:
		r.remove()
	}
	if me == nil { // to be removed, but the move needs the votes of most founders
		me = placement.On(row.FirstMembers(), r.w.host.cfg.Node)
	}
	if row.From != 0 {
		parent := r.w.host.shard(row.From)
		parent.g.w.box.post(childRow{parent, *row}) // which creates the first replicas
	}
	if r.id == 0 && me != nil && me.Replica > r.tombstone && !(row.From != 0 && me.Replica == firstReplica(row, me.Node)) {
		r.create(me.Replica)
	}
	if r.raft != nil {
		r.w.touch(r)
	} else {
		r.publish() // nobody awaits a child's replica that will not be here
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
func (r *replica) create(replica uint64) {
	m := record.Mark{Replica: replica, Conf: &pb.ConfState{}}
	if f := placement.On(r.membership.row.FirstMembers(), nodeOf(replica)); f != nil && f.Replica == replica && r.membership.row.From == 0 {
		m.Index, m.Term, m.Epoch = foundingIndex, foundingTerm, 1
		for _, member := range r.membership.row.FirstMembers() {
			if member.Learner {
				m.Conf.Learners = append(m.Conf.Learners, member.Replica)
			} else {
				m.Conf.Voters = append(m.Conf.Voters, member.Replica)
			}
		}
	}
	if !r.begin(m) {
		return
	}
	r.w.append(appended{group: r, create: &m, sync: true})
	if r.soleVoter() {
		_ = r.raft.Campaign()
	}
	r.w.touchNext(r) // recovery calls this outside of a turn
}

// begin makes this node's replica, of which nothing is in the log.
func (r *replica) begin(m record.Mark) bool {
	r.place(m)
	r.written.end = m.Index
	r.written.hard = record.HardState{Commit: m.Index, Term: m.Term}
	r.store.Hard = &pb.HardState{Term: new(r.written.hard.Term), Vote: new(r.written.hard.Vote), Commit: new(r.written.hard.Commit)}
	r.store.OfferSnapshot = func() (*pb.Snapshot, error) { return r.snapshots.offer(r) }
	if err := r.newRaft(); err != nil {
		r.w.host.fail(err)
		return false
	}
	return true
}

// remove gives up this node's replica: its id is used up and its state is deleted. Calls that it
// started continue, and their ends are reported to the current leader.
func (r *replica) remove() {
	r.stepDown()
	r.refuseAll()
	r.w.abortSnapshot(r)
	r.tombstone = max(r.tombstone, r.id)
	// Until the tombstone is on disk, the records that it voids must be kept.
	files := filesState{restating: true}
	files.Buried(max(1, r.files.Needed()))
	r.reset()
	r.files = files
	r.publish()
	r.w.append(appended{group: r, tombstone: r.tombstone, sync: true})
}

// reset makes the group one without a local replica.
func (r *replica) reset() {
	r.raft, r.id = nil, 0
	r.store = &raftlog.Storage{Conf: &pb.ConfState{}}
	r.w.countEntries(r) // a group without a replica has no turns
	r.applied, r.appliedTerm, r.membership.epoch, r.membership.index = 0, 0, 0, 0
	r.written.hard, r.written.dirty, r.written.end = record.HardState{}, false, 0
	r.snapshots.incoming, r.snapshots.wanted = nil, false
	r.trustAgain()
	r.compare, r.stopped = comparison{}, nil
	r.turn.wakeMs = math.MaxInt64 // an old time would keep the worker awake
	r.machine.clear()
}

// replicaOn returns the replica of the membership on a node, or 0.
func (m *membership) replicaOn(r *replica, node uint64) uint64 {
	for _, ids := range [][]uint64{r.store.Conf.Voters, r.store.Conf.Learners, r.store.Conf.VotersOutgoing} {
		for _, id := range ids {
			if nodeOf(id) == node {
				return id
			}
		}
	}
	return 0
}
