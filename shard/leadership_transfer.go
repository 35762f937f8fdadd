package shard

import (
	"slices"
	"time"
)

// How a leadership goes to another replica: when its row prefers that one, when this node stops or
// drains, and when its disk or clock is not to be relied on.

const (
	// steadyFor is how long a leader has led before it hands over to the preferred replica, so that
	// an unsteady one does not flap.
	steadyFor = 3 * time.Second
	// handOverLimit is how long a hand-over may take before it is given up.
	handOverLimit = 2 * time.Second
)

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
		g.sendTransfer() // what cannot be proposed any more is reported to the transferee
	}
}

// transfereeAmong is the first of the given replicas that has a vote, hears, has nearly everything
// and may lead; 0: none. The first of a row is the preferred one.
func (g *group) transfereeAmong(ids []uint64) uint64 {
	return g.inheritor(ids, g.w.host.cfg.Placement.MayLead)
}

// inheritor is successor with another idea of who may lead.
func (g *group) inheritor(ids []uint64, may func(node uint64) bool) uint64 {
	for _, id := range ids {
		if id != g.replica && slices.Contains(g.store.conf.Voters, id) && may(nodeOf(id)) && g.hasCaughtUp(id) && !g.isWrong(id) {
			return id
		}
	}
	return 0
}

// prefer hands the leadership to the preferred replica.
func (g *group) prefer() {
	voters, _ := g.wanted()
	at := slices.Index(voters, g.replica)
	if at > 0 && g.w.now.Mono-g.servingSince >= steadyFor {
		if next := g.transfereeAmong(voters[:1]); next != 0 {
			g.handOver(next)
		}
	}
}

// handOver begins to give the leadership to another replica: no more leases and no more proposals
// but the return of leases whose calls have not started. When nothing is in the pipeline the other
// is told to stand (see tryHandOver). Calls that run report to it.
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

// tryHandOver tells the transferee to stand once everything of this leader is applied.
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

// watchHandOver gives up one that takes too long: this leader goes on. One that should not lead
// does not wait for its own disk, which may be the reason, but leaves what is in its pipeline to
// the transferee, as a leader does that is cut off.
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
