package shard

import (
	"slices"

	"carillon/timer"
	"carillon/wal"
)

// Disks reports the low disks of other nodes.
type Disks interface {
	// LowDisks returns the other nodes that report a low disk. It must be quick.
	LowDisks() []timer.LowDiskError
}

// Disk returns the state of the log's disk. It may be called from any goroutine.
func (h *Host) Disk() wal.Disk { return h.stream.Disk() }

// lowDisks returns the nodes whose disk is low, this node first.
func (h *Host) lowDisks() (low []timer.LowDiskError) {
	if d := h.Disk(); d.Low {
		low = append(low, timer.LowDiskError{Node: h.cfg.Node, Name: h.cfg.Name, Path: h.cfg.Dir, Free: d.Free, Limit: d.Limit})
	}
	if h.cfg.Disks != nil {
		low = append(low, h.cfg.Disks.LowDisks()...)
	}
	return low
}

// noteLowDisks makes a leader refuse adds while the disk of a voter is low. Every voter writes the
// added data, and a voter with a full disk could not even write commands that free something. The
// leader must refuse, because clients' commands do not pass through followers.
func (r *replica) noteLowDisks(low []timer.LowDiskError) {
	i := -1
	if len(low) > 0 && r.leader {
		i = slices.IndexFunc(low, func(e timer.LowDiskError) bool { return r.membership.hasVoter(r, e.Node) })
	}
	if i < 0 {
		if r.public.lowDisk.Load() != nil {
			r.public.lowDisk.Store(nil)
		}
		return
	}
	r.public.lowDisk.Store(&low[i])
}

// hasVoter reports whether a replica on the node has a vote, or had one before a joint change that
// is not complete.
func (m *membership) hasVoter(r *replica, node uint64) bool {
	of := func(id uint64) bool { return nodeOf(id) == node }
	return slices.ContainsFunc(r.store.Conf.Voters, of) || slices.ContainsFunc(r.store.Conf.VotersOutgoing, of)
}
