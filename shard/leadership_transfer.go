package shard

import (
	"slices"
	"time"
)

// A leader transfers its leadership when its assignment prefers another replica, when its node is
// cordoned (it stops or drains, or its disk or clock is unreliable), and when the replica is being
// removed or its state is wrong.

const (
	// steadyFor is how long a leader serves before it transfers to the preferred replica, so that
	// an unstable preferred replica does not make the leadership flap.
	steadyFor = 3 * time.Second
	// handOverLimit is how long a transfer may take before it is given up.
	handOverLimit = 2 * time.Second
)

// handToWhoStays makes a replica that must not lead transfer to a voter that should lead, else to
// any voter that has caught up.
func (g *group) handToWhoStays() {
	if g.transferee != 0 {
		return
	}
	next := g.transfereeAmong(g.store.conf.Voters)
	if next == 0 {
		next = g.inheritor(g.store.conf.Voters, func(uint64) bool { return true })
	}
	if next != 0 {
		g.handOver(next)
		// At once: this replica proposes nothing more, and reports ended calls to the transferee.
		g.sendTransfer()
	}
}

// transfereeAmong returns the first of ids, in order of preference, that is an active voter, has
// nearly all entries, has no wrong state, and whose node may lead. It returns 0 if there is none.
func (g *group) transfereeAmong(ids []uint64) uint64 {
	return g.inheritor(ids, g.w.host.cfg.Placement.MayLead)
}

// inheritor is transfereeAmong with its own condition on the node.
func (g *group) inheritor(ids []uint64, may func(node uint64) bool) uint64 {
	for _, id := range ids {
		if id != g.replica && slices.Contains(g.store.conf.Voters, id) && may(nodeOf(id)) && g.hasCaughtUp(id) && !g.isWrong(id) {
			return id
		}
	}
	return 0
}

// prefer transfers the leadership to the preferred replica, the first voter of the assignment.
func (g *group) prefer() {
	voters, _ := g.wanted()
	at := slices.Index(voters, g.replica)
	if at > 0 && g.w.now.Mono-g.servingSince >= steadyFor {
		if next := g.transfereeAmong(voters[:1]); next != 0 {
			g.handOver(next)
		}
	}
}

// handOver begins a transfer of the leadership. From then on this leader proposes no commands and
// no leases, but still outcomes, among them the return of leases whose calls have not started. When
// its pipeline is empty, tryHandOver sends the transfer. Calls that still run report to the new
// leader.
func (g *group) handOver(to uint64) {
	if g.transferee != 0 {
		return
	}
	g.transferee, g.transferUntil = to, g.w.now.Mono+handOverLimit
	if g.scheduler != nil {
		g.scheduler.Drain()
	}
	g.w.touch(g)
}

// tryHandOver tells the transferee to campaign once all proposals of this leader are applied and no
// lease waits for its call.
func (g *group) tryHandOver() {
	if g.transferee == 0 || g.transferSent || !g.leader || len(g.proposals) > 0 || g.scheduler != nil && g.scheduler.Unstarted() > 0 {
		return
	}
	g.sendTransfer()
}

func (g *group) sendTransfer() {
	g.transferSent = true
	g.raft.TransferLeader(g.transferee)
}

// watchHandOver gives up a transfer after handOverLimit; this leader then goes on. A cordoned
// leader does not wait for its own disk, which may be why it is cordoned: it sends the transfer and
// leaves its pipeline to the transferee, as a leader does that is cut off.
func (g *group) watchHandOver() {
	if g.transferee == 0 || g.w.now.Mono < g.transferUntil {
		return
	}
	if !g.transferSent && g.w.host.isCordoned() {
		g.transferUntil = g.w.now.Mono + handOverLimit
		g.sendTransfer()
		return
	}
	g.transferee, g.transferSent = 0, false
	g.w.touchNext(g)
}
