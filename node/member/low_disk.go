package member

import (
	"cmp"
	"slices"
	"time"

	"carillon/timer"
)

// LowDisks implements shard.Disks: the others' reports of their disks. One that is not heard says
// nothing: it writes nothing either, and may come back with room.
func (m *Member) LowDisks() []timer.LowDiskError { return m.liveness.lowDisks(m.clock.Mono()) }

// ownLowDisk is this node's report of its disk; no Limit: it has room.
func (m *Member) ownLowDisk() timer.LowDiskError {
	d := m.host.Disk()
	if !d.Low {
		return timer.LowDiskError{}
	}
	return timer.LowDiskError{Node: m.id, Name: m.cfg.Name, Path: m.cfg.Dir, Free: d.Free, Limit: d.Limit}
}

// sayLowDisks tells the operator when adds begin to be refused because of a disk, and when that
// ends.
func (m *Member) sayLowDisks(own *timer.LowDiskError) {
	low := m.LowDisks()
	if own.Limit > 0 {
		low = append(low, *own)
	}
	now := map[uint64]bool{}
	for i := range low {
		e := &low[i]
		now[e.Node] = true
		if !m.low[e.Node] {
			m.log.Warn("a disk is low: shards with a voter there refuse adds", "node", e.Name, "path", e.Path, "free", e.Free, "limit", e.Limit)
		}
	}
	for node := range m.low {
		if !now[node] {
			m.log.Info("a disk that was low has room again, or its node is away: shards with a voter there take adds", "node", m.NameOf(node))
		}
	}
	m.low = now
}

// lowDisks are those that were said to be low by the nodes that are heard, in the order of nodes.
func (l *liveness) lowDisks(now time.Duration) (low []timer.LowDiskError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, s := range l.nodes {
		if s.last.LowDisk.Limit > 0 && now-s.at < aliveFor {
			e := s.last.LowDisk
			e.Node = node
			low = append(low, e)
		}
	}
	slices.SortFunc(low, func(a, b timer.LowDiskError) int { return cmp.Compare(a.Node, b.Node) })
	return low
}
