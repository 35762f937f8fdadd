package member

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"carillon/internal/clocks"
	"carillon/ring"
	"carillon/timer"
)

const (
	suspectAfter = 1500 * time.Millisecond // without a heartbeat
	downAfter    = 5 * time.Second
)

// liveness keeps each node's last heartbeat, and since when there was none. O(nodes + shards).
type liveness struct {
	mu       sync.Mutex
	began    time.Duration
	nodes    map[uint64]*peerStatus
	leads    map[timer.ShardID][]uint64 // the nodes whose last heartbeats list a shard, in ascending order
	expected map[uint64]time.Duration   // since when nodes are known that have sent none
	wrong    map[uint64]wrongReport     // by node: see recordWrong
}

// peerStatus is one node's last heartbeat.
type peerStatus struct {
	at       time.Duration // monotonic
	last     heartbeat
	measured clocks.Measured
	unheard  bool // was in contact, and has sent no heartbeat since
}

func newLiveness(now time.Duration) *liveness {
	return &liveness{began: now, nodes: map[uint64]*peerStatus{}, leads: map[timer.ShardID][]uint64{}, expected: map[uint64]time.Duration{}}
}

// receive records a heartbeat, and returns the shards that it lists and the one before did not.
func (l *liveness) receive(now time.Duration, node uint64, h *heartbeat) (news []timer.ShardID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.nodes[node]
	delete(l.expected, node)
	news = l.follow(node, s, h.Leads)
	if s == nil || s.last.Starts != h.Starts {
		s = &peerStatus{}
		l.nodes[node] = s
	}
	s.at, s.last, s.unheard = now, *h, false
	s.last.Limits = ring.AllocationReport{} // large, and for the allocator alone
	if h.Clock.Known {
		s.measured.Take(now, h.WallMs, h.Clock.Steps)
	}
	return news
}

// follow brings leads in line with what a node lists now: O(shards of the node).
func (l *liveness) follow(node uint64, s *peerStatus, now []timer.ShardID) (news []timer.ShardID) {
	var before []timer.ShardID
	if s != nil {
		before = s.last.Leads
	}
	if slices.Equal(before, now) {
		return nil
	}
	for _, id := range before {
		if _, still := slices.BinarySearch(now, id); still {
			continue
		}
		left := slices.DeleteFunc(l.leads[id], func(n uint64) bool { return n == node })
		if l.leads[id] = left; len(left) == 0 {
			delete(l.leads, id)
		}
	}
	for _, id := range now {
		if i, known := slices.BinarySearch(l.leads[id], node); !known {
			l.leads[id] = slices.Insert(l.leads[id], i, node)
			news = append(news, id)
		}
	}
	return news
}

// leaders are the nodes that list a shard and are not down, the silent ones last: O(their number).
func (l *liveness) leaders(now time.Duration, id timer.ShardID) (nodes []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var silent []uint64
	for _, node := range l.leads[id] {
		switch ago := now - l.nodes[node].at; {
		case ago < 2*heartbeatInterval:
			nodes = append(nodes, node)
		case ago < downAfter:
			silent = append(silent, node)
		}
	}
	return append(nodes, silent...)
}

// touch records a node that was in contact but has sent no heartbeat: it is up, and must not lead
// yet.
func (l *liveness) touch(now time.Duration, node uint64, starts uint32) {
	if _, ago, ok := l.last(now, node); ok && ago < suspectAfter {
		return
	}
	l.receive(now, node, &heartbeat{Starts: starts, Cordoned: true})
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.nodes[node]; s != nil { // else it has been forgotten meanwhile
		s.unheard = true
	}
}

// expect records which nodes there are. A node that joins sends no heartbeat before, so it is not
// silent for longer than it is known.
func (l *liveness) expect(now time.Duration, nodes []ring.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range nodes {
		_, known := l.expected[n.ID]
		if l.nodes[n.ID] == nil && !known {
			l.expected[n.ID] = now
		}
	}
}

// offset is how far the node's clock is ahead of this node's, in ms, which are wallMs and now.
func (s *peerStatus) offset(now time.Duration, wallMs int64) (ms int64, ok bool) {
	ms, ok = s.measured.OffsetMs()
	return ms - (wallMs - now.Milliseconds()), ok
}

func (l *liveness) forget(node uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow(node, l.nodes[node], nil)
	delete(l.nodes, node)
	delete(l.expected, node)
	delete(l.wrong, node)
}

// last returns a copy of a node's last report and its age. false: there was none.
func (l *liveness) last(now time.Duration, node uint64) (s peerStatus, ago time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.nodes[node]
	if v == nil {
		since, known := l.expected[node]
		if !known {
			since = l.began
		}
		return peerStatus{}, now - since, false
	}
	return *v, now - v.at, true
}

// facts is what the controller knows of the nodes.
func (l *liveness) facts(now time.Duration, wallMs int64, self uint64, own ring.NodeFacts, nodes []ring.Node) ring.Observations {
	f := ring.Observations{NowMs: wallMs, Nodes: map[uint64]ring.NodeFacts{self: own}}
	for _, n := range nodes {
		if n.ID == self {
			continue
		}
		s, ago, ok := l.last(now, n.ID)
		facts := ring.NodeFacts{Alive: ok && ago < downAfter, Unfit: s.last.Unhealthy, LowDisk: s.last.LowDisk.Limit > 0, Unheard: s.unheard}
		if !facts.Alive {
			facts.DownForMs = ago.Milliseconds()
		}
		f.Nodes[n.ID] = facts
	}
	f.Wrong = l.allWrong(now)
	return f
}

func (l *liveness) lowDisks(now time.Duration) (low []timer.LowDiskError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, s := range l.nodes {
		if s.last.LowDisk.Limit > 0 && now-s.at < suspectAfter {
			e := s.last.LowDisk
			e.Node = node
			low = append(low, e)
		}
	}
	slices.SortFunc(low, func(a, b timer.LowDiskError) int { return cmp.Compare(a.Node, b.Node) })
	return low
}

// tight are the nodes that report tight memory.
func (l *liveness) tight(now time.Duration) (nodes []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, s := range l.nodes {
		if s.last.Tight && now-s.at < suspectAfter {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// clock is the node's clock by its last heartbeat. It is not known if a contact without a heartbeat
// followed that.
func (s *peerStatus) clock(id uint64, ago time.Duration) (p clocks.Peer, known bool) {
	offset, known := s.measured.OffsetMs()
	c := &s.last.Clock
	return clocks.Peer{Node: id, OffsetMs: offset, Heard: s.at, Steps: c.Steps, Steady: c.Steady + ago, Sure: c.Sure}, known && c.Known
}
