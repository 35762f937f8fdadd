package shard

import (
	"slices"
	"time"
)

// A leader transfers its leadership when its assignment prefers another replica, when its node is
// cordoned (it stops or drains, or its disk or clock is unreliable), and when the replica is being
// removed or its state is wrong.

const (
	// transferAfter is how long a leader serves before it transfers to the preferred replica, so
	// that an unstable preferred replica does not make the leadership flap.
	transferAfter = 3 * time.Second
	// handOverLimit is how long a transfer may take before it is given up.
	handOverLimit = 2 * time.Second
	// passedOverFor is how long no leadership goes to a node that frames did not reach: by then it
	// is known whether it may lead.
	passedOverFor = time.Second
)

// leadershipTransfer is a transfer that this leader makes.
type leadershipTransfer struct {
	to    uint64 // replica that becomes the leader; 0: none
	sent  bool   // it was asked to campaign
	until time.Duration

	passedOver      uint64 // the transferee of the last transfer that was given up, see unreachable
	passedOverUntil time.Duration
}

// toRemaining makes a replica that must not lead transfer to a voter that should lead, else to
// any voter that has caught up.
func (t *leadershipTransfer) toRemaining(r *replica) {
	if t.to != 0 {
		return
	}
	next := t.transfereeAmong(r, r.store.Conf.Voters)
	if next == 0 {
		next = t.anyTransferee(r, r.store.Conf.Voters)
	}
	if next != 0 {
		t.begin(r, next)
		// At once: this replica proposes nothing more, and reports ended calls to the transferee.
		t.send(r)
	}
}

// transfereeAmong returns the first of ids, in order of preference, that is an active voter, has
// nearly all entries, has no wrong state, and whose node may lead. It returns 0 if there is none.
func (t *leadershipTransfer) transfereeAmong(r *replica, ids []uint64) uint64 {
	return t.transfereeWhere(r, ids, r.w.host.cfg.Placement.MayLead)
}

// anyTransferee is transfereeAmong whose node need not be one that may lead. It waits while one
// that may is passed over.
func (t *leadershipTransfer) anyTransferee(r *replica, ids []uint64) uint64 {
	if r.w.now.Mono < t.passedOverUntil {
		return 0
	}
	return t.transfereeWhere(r, ids, func(uint64) bool { return true })
}

// transfereeWhere is transfereeAmong with its own condition on the node.
func (t *leadershipTransfer) transfereeWhere(r *replica, ids []uint64, may func(node uint64) bool) uint64 {
	for _, id := range ids {
		if id == t.passedOver && r.w.now.Mono < t.passedOverUntil {
			continue
		}
		if id != r.id && slices.Contains(r.store.Conf.Voters, id) && may(nodeOf(id)) && r.membership.hasCaughtUp(r, id) && !r.compare.isWrong(r, id) {
			return id
		}
	}
	return 0
}

// toPreferred transfers the leadership to the preferred replica, the first voter of the assignment.
func (t *leadershipTransfer) toPreferred(r *replica) {
	voters, _ := r.membership.wanted()
	at := slices.Index(voters, r.id)
	if at > 0 && r.w.now.Mono-r.servingSince >= transferAfter {
		if next := t.transfereeAmong(r, voters[:1]); next != 0 {
			t.begin(r, next)
		}
	}
}

// begin begins a transfer of the leadership. From then on this leader proposes no commands and
// no leases, but still outcomes, among them the return of leases whose calls have not started. When
// its pipeline is empty, trySend sends the transfer. Calls that still run report to the new
// leader.
func (t *leadershipTransfer) begin(r *replica, to uint64) {
	if t.to != 0 {
		return
	}
	t.to, t.until = to, r.w.now.Mono+handOverLimit
	r.machine.drain()
	r.w.touch(r)
}

// trySend asks the transferee to campaign once all proposals of this leader are applied and no
// lease waits for its call.
func (t *leadershipTransfer) trySend(r *replica) {
	if t.to == 0 || t.sent || !r.leader || len(r.pipeline.proposals) > 0 || r.machine.unstarted() > 0 {
		return
	}
	t.send(r)
}

func (t *leadershipTransfer) send(r *replica) {
	t.sent = true
	r.raft.TransferLeader(t.to)
}

// unreachable gives up a transfer to a node that frames did not reach: it may have stopped, or its
// queue may be full. This leader could propose nothing until raft itself gives the transfer up.
func (t *leadershipTransfer) unreachable(r *replica, node uint64) {
	if t.to == 0 || nodeOf(t.to) != node {
		return
	}
	t.passedOver, t.passedOverUntil = t.to, r.w.now.Mono+passedOverFor
	t.to, t.sent = 0, false
	r.raft.TransferLeader(r.id) // raft ends the one under way
	r.w.touchNext(r)
}

// expire gives up a transfer after handOverLimit; this leader then continues. A cordoned
// leader does not wait for its own disk, which may be why it is cordoned: it sends the transfer and
// leaves its pipeline to the transferee, as a leader does that is cut off.
func (t *leadershipTransfer) expire(r *replica) {
	if t.to == 0 || r.w.now.Mono < t.until {
		return
	}
	if !t.sent && r.w.host.isCordoned() {
		t.until = r.w.now.Mono + handOverLimit
		t.send(r)
		return
	}
	t.to, t.sent = 0, false
	r.w.touchNext(r)
}

// Cordon sets whether the node is cordoned, because its clock or disk is faulty or it is about to
// stop. A cordoned node transfers its leaderships to nodes that may lead. It can still be elected,
// and then transfers that leadership too.
func (h *Host) Cordon(on bool) { h.cordoned.Store(on) }

func (h *Host) isCordoned() bool { return h.cordoned.Load() }
