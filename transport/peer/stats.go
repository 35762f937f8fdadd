package peer

import (
	"cmp"
	"slices"
)

// PeerStat is one peer as metrics and the console see it.
type PeerStat struct {
	Node          uint64
	Starts        uint32 // of its newest process seen, 0 = none
	Control, Call bool   // our connections to it
	Heard         bool   // its control connection to us
	QueuedBytes   int    // control and call
	Calls         int    // ours in flight
	DroppedFrames uint64 // control
	BytesIn       uint64 // of all its connections, without the overhead of TLS
	BytesOut      uint64
}

// Stats lists the peers by node id.
func (t *Transport) Stats() []PeerStat {
	t.mu.RLock()
	peers := make([]*peer, 0, len(t.peers))
	heard := make(map[uint64]bool, len(t.peers))
	for node, p := range t.peers {
		peers = append(peers, p)
		heard[node] = t.heard[place{node, LaneControl}] != nil
	}
	t.mu.RUnlock()
	stats := make([]PeerStat, 0, len(peers))
	for _, p := range peers {
		s := p.stat()
		s.Heard = heard[p.node]
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b PeerStat) int { return cmp.Compare(a.Node, b.Node) })
	return stats
}

func (p *peer) stat() PeerStat {
	p.mu.Lock()
	s := PeerStat{Node: p.node, Starts: p.process.starts}
	lanes := p.lanes
	p.mu.Unlock()
	s.DroppedFrames, s.BytesIn, s.BytesOut = p.dropped.Load(), p.bytesIn.Load(), p.bytesOut.Load()
	for kind, l := range lanes {
		if l == nil {
			continue
		}
		l.mu.Lock()
		out, c := l.out, l.conn
		l.mu.Unlock()
		if out != nil {
			s.QueuedBytes += out.queuedBytes()
		}
		if c == nil {
			continue
		}
		s.Calls += c.calls.inFlight()
		if Lane(kind) == LaneControl {
			s.Control = true
		} else {
			s.Call = true
		}
	}
	return s
}
