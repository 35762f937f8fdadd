package shard

import (
	"fmt"
	"sync"
	"sync/atomic"

	"carillon/timer"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// groupPublic is the part of a group's status that other goroutines may read without asking its
// worker. It may be a turn old.
type groupPublic struct {
	leader  atomic.Uint64                      // node; 0: unknown
	serves  atomic.Bool                        // this node leads and has taken over
	present atomic.Bool                        // this node has a replica
	takes   atomic.Bool                        // commands may come here; see Host.Takes
	lowDisk atomic.Pointer[timer.LowDiskError] // why this leader refuses adds; nil: it does not
	applied atomic.Uint64                      // index of the last applied entry
}

// publish updates g.public.
func (g *group) publish() {
	g.public.leader.Store(g.leaderNode())
	g.public.serves.Store(g.serving)
	g.public.present.Store(g.raft != nil)
	g.public.takes.Store(!g.notLeading() || g.awaitsLeader())
	g.public.applied.Store(g.applied)
}

// Leads reports whether this node leads the group and serves.
func (h *Host) Leads(id timer.ShardID) bool { return h.groups[id].public.serves.Load() }

// Takes reports whether commands for the group may be sent to this node: it leads, is about to
// serve, or will soon know the leader and name it.
func (h *Host) Takes(id timer.ShardID) bool { return h.groups[id].public.takes.Load() }

// Leader returns the node that leads the group, as far as this node's replica knows.
func (h *Host) Leader(id timer.ShardID) (node uint64, ok bool) {
	node = h.groups[id].public.leader.Load()
	return node, node != 0
}

// Applied returns the index of the last entry in this node's copy of the group's state.
func (h *Host) Applied(id timer.ShardID) uint64 { return h.groups[id].public.applied.Load() }

// LogEnd returns the number of frames that this node's log had on disk when the process began, and
// the number now. Both count the frames of all processes.
func (h *Host) LogEnd() (opened, synced uint64) { return h.opened, h.stream.Synced() }

// Confirm makes a majority confirm that this node leads the group. It returns an applied index that
// covers everything committed before the call.
func (h *Host) Confirm(id timer.ShardID) (index uint64, err error) {
	err = h.read(id, false, func(int) bool {
		index = h.groups[id].applied
		return true
	})
	return index, err
}

// GroupStatus is the status of a group on this node.
type GroupStatus struct {
	Group    timer.ShardID
	Replica  uint64 // 0: none here, or stopped; then only Fault may be set
	Leader   uint64 // node; 0: unknown
	Leads    bool
	Term     uint64
	Applied  uint64
	Epoch    uint32 // of the assignment that the membership follows
	Voters   []uint64
	Learners []uint64
	Joint    bool
	Compared uint64            // last entry after which the replicas compared their states
	Fault    string            // why the replica is stopped or not trusted; empty: no fault is known
	Timers   int               // scheduled, leased and dead
	Hash     uint64            // of the state, equal on all replicas; 0: the meta group
	Behind   map[uint64]uint64 // on the leader: entries that each active replica lacks
}

// Groups returns the status of all groups.
func (h *Host) Groups() []GroupStatus {
	out := make([]GroupStatus, len(h.groups))
	var mu sync.Mutex
	h.onWorkers(func(w *worker) {
		mu.Lock()
		defer mu.Unlock()
		for _, g := range w.groups {
			out[g.id] = g.status()
		}
	})
	return out
}

func (g *group) status() GroupStatus {
	s := GroupStatus{Group: g.id}
	s.Fault = g.fault()
	if s.Fault == "" && g.compare.differs {
		s.Fault = "replicas have different states, and none of these has a majority"
	}
	if g.raft == nil {
		return s
	}
	basic := g.raft.BasicStatus()
	s.Replica, s.Leader, s.Leads, s.Term = g.replica, nodeOf(basic.Lead), g.leader, basic.GetTerm()
	s.Applied, s.Epoch, s.Compared = g.applied, g.membership.epoch, g.compare.last
	s.Voters, s.Learners, s.Joint = g.store.conf.Voters, g.store.conf.Learners, len(g.store.conf.VotersOutgoing) > 0
	g.machine.status(&s)
	if g.leader {
		s.Behind = map[uint64]uint64{}
		last := g.store.last()
		g.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
			if id == g.replica || pr.RecentActive {
				s.Behind[id] = last - min(pr.Match, last)
			}
		})
	}
	return s
}

// fault describes the fault of this replica. It is empty if none is known.
func (g *group) fault() string {
	switch {
	case g.stopped != nil:
		return g.stopped.Error()
	case g.wrong.why != nil:
		return fmt.Sprintf("shard %d: %v", g.id, g.wrong.why)
	}
	return ""
}

// Fault describes a fault of one of this node's replicas: it is stopped, or its state is wrong.
// Such a node should lead nothing. The description is empty if no fault is known.
func (h *Host) Fault() string {
	for _, w := range h.workers {
		if text := w.sample.fault.Load(); text != nil && *text != "" {
			return *text
		}
	}
	return ""
}

// Cordon sets whether the node is cordoned, because its clock or disk is faulty or it is about to
// stop. A cordoned node transfers its leaderships to nodes that may lead. It can still be elected,
// and then transfers that leadership too.
func (h *Host) Cordon(on bool) { h.cordoned.Store(on) }

func (h *Host) isCordoned() bool { return h.cordoned.Load() }
