package shard

import "math"

// A node counts what its groups hold as it grows, and takes nothing more that grows it when that
// comes to Config.MemoryLimit. What the process needs in all (Config.MemoryUse) is known only after
// the collector has run: by then a burst may have filled the memory.

// Memory is what a host's groups hold, in bytes.
type Memory struct {
	Tables    int64 // timers and their indexes
	Snapshots int64 // what changes have copied for a snapshot that is being written, and pieces that the file has not taken
	Arrivals  int64 // states from other nodes that are not in their place yet
	Entries   int64 // of raft's logs: not on disk, not committed, not applied, or kept for followers
	Frames    int64 // of the log, on their way to the disk
	Messages  int64 // from other nodes, that no worker has taken yet
}

// Sum is all of it.
func (m *Memory) Sum() int64 {
	return m.Tables + m.Snapshots + m.Arrivals + m.Entries + m.Frames + m.Messages
}

func (m *Memory) add(o *Memory) {
	m.Tables += o.Tables
	m.Snapshots += o.Snapshots
	m.Arrivals += o.Arrivals
	m.Entries += o.Entries
	m.Frames += o.Frames
	m.Messages += o.Messages
}

// pressure is how near the memory is to its limit.
type pressure uint8

const (
	roomy pressure = iota
	tight          // followers that are behind are not waited for: they are sent snapshots
	over           // what grows the state is refused, and a snapshot that holds much is given up
)

// Shares of the memory limit: what the groups together keep of their logs for followers, and what
// one group has uncommitted. The last shareth is where memory is tight.
const (
	shareth          = 8
	uncommittedShare = 16
	mostUncommitted  = 64 << 20
)

// share is a part of the memory limit, of at most so much.
func (c *Config) share(parts int64, most int64) int64 { return min(c.MemoryLimit/parts, most) }

// laden reports that as much of a group is proposed, and not applied yet, as may be, but for one
// entry more.
func (g *group) laden() bool {
	bytes := 0
	for i := range g.proposals {
		bytes += g.proposals[i].bytes
	}
	return int64(bytes) >= g.w.host.cfg.share(uncommittedShare, mostUncommitted)
}

// needed is what of the memory limit is in use.
func (h *Host) needed() int64 {
	n := h.memory.Load()
	if h.cfg.MemoryUse != nil {
		n = max(n, h.cfg.MemoryUse())
	}
	return n
}

func (h *Host) pressure() pressure {
	switch n, limit := h.needed(), h.cfg.MemoryLimit; {
	case n > limit:
		return over
	case n > limit-limit/shareth:
		return tight
	}
	return roomy
}

// kept is how much applied log a group of the worker keeps for followers that were away, and the
// most for such that are here and behind.
func (w *worker) kept() (least, most int) {
	least = w.host.cfg.RetainBytes
	most = int(w.host.cfg.share(shareth, int64(least)*laggards))
	switch w.pressure {
	case tight:
		least /= laggards
	case over:
		least, most = 0, 0
	}
	return least, most
}

// countEntries takes note of what a group's log holds in memory.
func (w *worker) countEntries(g *group) {
	w.entries += g.store.held() - g.counted
	g.counted = g.store.held()
}

// holds is what the worker's groups hold, but for states that are read back (see Host.arriving).
func (w *worker) holds() Memory {
	waiting := int64(w.waitingBytes())
	m := Memory{
		Tables: w.tables, Arrivals: w.arrivals,
		Entries: int64(w.entries) + waiting, // a frame's entries are in memory beside it until it is on disk
		Frames:  waiting, Messages: w.peerBytes.Load(),
	}
	if w.snapshot != nil {
		m.Snapshots = w.snapshot.held()
	}
	return m
}

// weigh counts what a start has read: groups that have nothing to do are looked at no sooner than
// with the first tick.
func (w *worker) weigh() {
	for _, g := range w.groups {
		w.countEntries(g)
		w.tables += g.stateBytes()
	}
	w.account()
}

// account tells the host, at the end of a turn, how much more or less the worker holds.
func (w *worker) account() {
	m := w.holds()
	if sum := m.Sum(); sum != w.told {
		w.host.memory.Add(sum - w.told)
		w.told = sum
	}
	if run := w.snapshot; run != nil && run.state.Held() > w.host.cfg.share(shareth, math.MaxInt64) && w.host.pressure() == over {
		w.host.cfg.Logger.Error("a snapshot is given up: what changes while it is written fills the memory; it is tried again",
			"shard", uint32(run.group.id), "bytes", m.Snapshots, "limit", w.host.cfg.MemoryLimit)
		run.abort()
	}
}
