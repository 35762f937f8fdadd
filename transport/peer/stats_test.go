package peer

import (
	"cmp"
	"slices"
)

// peerStat is what a transport has of one peer.
type peerStat struct {
	Node          uint64
	Starts        uint32 // of its newest process seen, 0 = none
	Control, Call bool   // our connections to it
	Heard         bool   // its control connection to us
	QueuedBytes   int    // control and call
	Calls         int    // ours in flight
}

// Stats lists the peers by node id.
func (t *Transport) Stats() []peerStat {
	t.mu.RLock()
	peers := make([]*peer, 0, len(t.peers))
	heard := make(map[uint64]bool, len(t.peers))
	for node, p := range t.peers {
		peers = append(peers, p)
		heard[node] = t.heard[place{node, LaneControl}] != nil
	}
	t.mu.RUnlock()
	stats := make([]peerStat, 0, len(peers))
	for _, p := range peers {
		s := p.stat()
		s.Heard = heard[p.node]
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b peerStat) int { return cmp.Compare(a.Node, b.Node) })
	return stats
}

func (p *peer) stat() peerStat {
	p.mu.Lock()
	s := peerStat{Node: p.node, Starts: p.process.starts}
	lanes := p.lanes
	p.mu.Unlock()
	for kind, l := range lanes {
		if l == nil {
			continue
		}
		l.mu.Lock()
		out, c := l.out, l.conn
		l.mu.Unlock()
		if out != nil {
			out.mu.Lock()
			s.QueuedBytes += out.bytes
			out.mu.Unlock()
		}
		if c == nil {
			continue
		}
		c.calls.mu.Lock()
		s.Calls += len(c.calls.waiting)
		c.calls.mu.Unlock()
		if Lane(kind) == LaneControl {
			s.Control = true
		} else {
			s.Call = true
		}
	}
	return s
}
