package shard

import (
	"fmt"
	"sync"
	"sync/atomic"

	"carillon/timer"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// groupPublic is what other goroutines may know of a group without asking its worker: it may be a
// turn old.
type groupPublic struct {
	leader  atomic.Uint64                      // the node that leads, 0 unknown
	serves  atomic.Bool                        // this node leads, and has taken over
	present atomic.Bool                        // this node has a replica
	takes   atomic.Bool                        // commands may come here: this node leads, or is to know at any moment who does
	lowDisk atomic.Pointer[timer.LowDiskError] // why this leader refuses adds; nil: it does not
	applied atomic.Uint64                      // the last entry that is in the state
}

// publish brings it up to date.
func (g *group) publish() {
	g.public.leader.Store(g.leaderNode())
	g.public.serves.Store(g.serving)
	g.public.present.Store(g.raft != nil)
	g.public.takes.Store(!g.notLeading() || g.awaitsLeader())
	g.public.applied.Store(g.applied)
}

// Leads reports that this node leads the group and serves.
func (h *Host) Leads(id timer.ShardID) bool { return h.groups[id].public.serves.Load() }

// Takes reports that a command for the group may be given to this node: it leads, is about to
// serve, or is to know at any moment who leads and says so then.
func (h *Host) Takes(id timer.ShardID) bool { return h.groups[id].public.takes.Load() }

// Leader is the node that leads the group, as far as this node's replica knows.
func (h *Host) Leader(id timer.ShardID) (node uint64, ok bool) {
	node = h.groups[id].public.leader.Load()
	return node, node != 0
}

// Applied is the last entry of the group that is in this node's copy of its state.
func (h *Host) Applied(id timer.ShardID) uint64 { return h.groups[id].public.applied.Load() }

// LogEnd is how many frames this node's log had when this process began, and how many are on disk
// now, of all processes.
func (h *Host) LogEnd() (opened, synced uint64) { return h.opened, h.stream.Synced() }

// Confirm has a majority confirm that this node leads the group. index is an entry that is in its
// state by then, and before which everything is that was committed when Confirm was called.
func (h *Host) Confirm(id timer.ShardID) (index uint64, err error) {
	err = h.read(id, false, func(g *group, _ int) bool {
		index = g.applied
		return true
	})
	return index, err
}

// GroupStatus is a group as this node has it.
type GroupStatus struct {
	Group    timer.ShardID
	Replica  uint64 // 0: none here; then the rest is empty
	Leader   uint64 // node; 0 unknown
	Leads    bool
	Term     uint64
	Applied  uint64
	Epoch    uint32 // of the row that the membership follows
	Voters   []uint64
	Learners []uint64
	Joint    bool
	Compared uint64            // the last entry after which the replicas have compared their states
	Fault    string            // why it cannot go on, or is not trusted; empty: all is well
	Timers   int               // pending and dead ones
	Hash     uint64            // of the state after Applied, the same on every replica; not of the meta group
	Behind   map[uint64]uint64 // leader: entries that a replica which is heard from lacks; absent: not heard from
}

// Groups says how the groups stand.
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
	s.Applied, s.Epoch, s.Compared = g.applied, g.epoch, g.compare.last
	s.Voters, s.Learners, s.Joint = g.store.conf.Voters, g.store.conf.Learners, len(g.store.conf.VotersOutgoing) > 0
	if g.table != nil {
		c := g.table.Totals()
		s.Hash = g.table.Hash()
		s.Timers = int(c.Scheduled + c.Leased + c.Dead)
	}
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

// fault is what is wrong with this replica; empty: nothing is known.
func (g *group) fault() string {
	switch {
	case g.stopped != nil:
		return g.stopped.Error()
	case g.quarantine != nil:
		return fmt.Sprintf("shard %d: %v", g.id, g.quarantine.why)
	case g.damaged:
		return fmt.Sprintf("shard %d: %v", g.id, ErrMemoryFault)
	}
	return ""
}

// Fault is what is wrong with one of this node's replicas: it is stopped, or its state is wrong. A
// node of which this is so should lead nothing. Empty: nothing is known.
func (h *Host) Fault() string {
	for _, w := range h.workers {
		if text := w.fault.Load(); text != nil && *text != "" {
			return *text
		}
	}
	return ""
}

// Cordon says whether this node should lead: one that should not (its clock or its disk is off, or
// it is about to stop) gives its leaderships to others that may, and takes none for longer than
// that takes.
func (h *Host) Cordon(on bool) { h.cordoned.Store(on) }

func (h *Host) isCordoned() bool { return h.cordoned.Load() }
