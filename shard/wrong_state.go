package shard

import (
	"errors"
	"fmt"
	"time"

	"carillon/internal/placement"
)

// A replica whose state is not that of most others, while its log is right, is wrong. It votes and
// keeps the log as before, but does not lead, answer, write snapshots or send them. The host tells
// the meta group's leader, which takes the replica out of the group and makes another on the same
// node, or elsewhere, under a new id (docs/adr/0056).

// ErrMemoryFault reports that a state in memory differs from the applied one.
var ErrMemoryFault = errors.New("the state in memory has changed by itself")

// A replica that takes the place of a wrong one and is wrong again shows a fault of the program. The
// next one is asked for later each time, so that the group does not copy its state for ever.
const (
	wrongAgain = time.Minute // doubling
	wrongMost  = time.Hour
)

// wrongState is what a replica knows of its own state.
type wrongState struct {
	why      error         // why it is known to be wrong; nil: it is not
	times    int           // how often a replica of the group was wrong here, in this process
	reportAt time.Duration // when it may be asked for another replica
}

// mayNotLead reports that this replica, if elected, proposes nothing and hands over.
func (g *group) mayNotLead() bool { return g.wrong.why != nil || g.membership.leaves(g) }

// becomeWrong ends this replica's part in everything that depends on its state.
func (w *wrongState) found(g *group, why error) {
	if w.why != nil {
		w.why = why
		return
	}
	w.why, w.reportAt = why, g.w.now.Mono
	if w.times > 0 {
		w.reportAt += min(wrongAgain<<min(w.times-1, 10), wrongMost)
	}
	w.times++
	g.w.host.cfg.Logger.Error("this replica's state is wrong: it leads nothing, and waits to be replaced", "shard", uint32(g.id), "why", why)
	if run := g.w.snapshot; run != nil && run.group == g {
		run.abort()
	}
	leader := g.leader
	g.stepDown()
	if g.leader = leader; leader {
		g.membership.reconcileAt = 0
	}
	g.w.touch(g)
}

// becomeRight ends that: most replicas have the same state. A leader begins as after an election, if
// no other replica has taken over meanwhile. It gives up a pending transfer, which has had its time
// and would block proposals.
func (w *wrongState) disproved(g *group) {
	if w.why == nil {
		return
	}
	g.w.host.cfg.Logger.Info("this replica's state is right again", "shard", uint32(g.id), "before", w.why)
	w.why = nil
	if g.leader {
		g.transfer.to, g.transfer.sent, g.takeover = 0, false, true
	}
	g.w.touch(g)
}

// trustAgain forgets the comparisons of a state that was replaced.
func (g *group) trustAgain() {
	g.wrong.why = nil
	g.compare.forget(g.replica)
	g.compare.differs = false
}

// memoryFailed ends the process: the state on disk is right, and a restart makes it anew from there.
func (g *group) memoryFailed() {
	g.w.host.fail(fmt.Errorf("shard %d: %w: the machine's memory fails, or a program wrote where it must not; a restart makes it anew from the disk", g.id, ErrMemoryFault))
}

// Wrong lists the replicas of this node that are to be replaced because their state is wrong.
func (h *Host) Wrong() (list []placement.WrongReplica) {
	for _, w := range h.workers {
		if of := w.sample.wrong.Load(); of != nil {
			list = append(list, *of...)
		}
	}
	return list
}

// listWrong updates the worker's part of Wrong.
func (w *worker) listWrong() {
	var list []placement.WrongReplica
	for _, g := range w.groups {
		if g.raft != nil && g.wrong.why != nil && w.now.Mono >= g.wrong.reportAt {
			list = append(list, placement.WrongReplica{Group: g.id, Replica: g.replica})
		}
	}
	if old := w.sample.wrong.Load(); len(list) > 0 || old != nil && len(*old) > 0 {
		w.sample.wrong.Store(&list)
	}
}
