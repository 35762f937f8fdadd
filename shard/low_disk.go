package shard

import (
	"slices"

	"carillon/timer"
	"carillon/wal"
)

// Disks says whose disks are low.
type Disks interface {
	// LowDisks describes the other nodes whose disk is low, as far as they are heard. It must be
	// quick.
	LowDisks() []timer.LowDiskError
}

// Disk says how much room the log's disk has. It may be called from any goroutine.
func (h *Host) Disk() wal.Disk { return h.stream.Disk() }

// lowDisks are the nodes whose disk is low, this one first.
func (h *Host) lowDisks() (low []timer.LowDiskError) {
	if d := h.Disk(); d.Low {
		low = append(low, timer.LowDiskError{Node: h.cfg.Node, Name: h.cfg.Name, Path: h.cfg.Dir, Free: d.Free, Limit: d.Limit})
	}
	if h.cfg.Disks != nil {
		low = append(low, h.cfg.Disks.LowDisks()...)
	}
	return low
}

// noteLowDisks has a led group refuse adds while the disk of one that has a vote is low: each of
// them writes what is added, and one that came to the end of its disk could not even free anything.
// A follower's own word would not reach those who add.
func (g *group) noteLowDisks(low []timer.LowDiskError) {
	i := -1
	if len(low) > 0 && g.leader {
		i = slices.IndexFunc(low, func(e timer.LowDiskError) bool { return g.hasVoter(e.Node) })
	}
	if i < 0 {
		if g.public.lowDisk.Load() != nil {
			g.public.lowDisk.Store(nil)
		}
		return
	}
	g.public.lowDisk.Store(&low[i])
}

// hasVoter says whether a replica of a node has a vote, or is about to lose it.
func (g *group) hasVoter(node uint64) bool {
	of := func(id uint64) bool { return nodeOf(id) == node }
	return slices.ContainsFunc(g.store.conf.Voters, of) || slices.ContainsFunc(g.store.conf.VotersOutgoing, of)
}
