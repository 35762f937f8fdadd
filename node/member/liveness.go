package member

import (
	"slices"
	"sync"
	"time"

	"carillon/ring"
)

const (
	aliveFor   = 1500 * time.Millisecond // without a heartbeat; then suspect
	suspectFor = 5 * time.Second         // then down
	ownStepMs  = 100                     // this node's clock was set if it goes on by so much more or less than the monotonic one between two heartbeats
)

// liveness keeps the last heartbeat of each node, and since when there was none.
type liveness struct {
	mu       sync.Mutex
	began    time.Duration
	ownMs    int64 // this node's wall clock less its monotonic one
	nodes    map[uint64]*peerStatus
	expected map[uint64]time.Duration // since when nodes are known that have sent none
}

// peerStatus is one node's last heartbeat.
type peerStatus struct {
	at      time.Duration // monotonic
	last    heartbeat
	offsets [8]int64 // its clock less this node's, by the last heartbeats; the largest is the least delayed
	n       int      // heartbeats since they can be compared
}

func newLiveness(now time.Duration) *liveness {
	return &liveness{began: now, nodes: map[uint64]*peerStatus{}, expected: map[uint64]time.Duration{}}
}

// receive takes a heartbeat.
func (l *liveness) receive(now time.Duration, wallMs int64, node uint64, h *heartbeat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteStepLocked(wallMs - now.Milliseconds())
	s := l.nodes[node]
	delete(l.expected, node)
	if s == nil || s.last.Starts != h.Starts {
		s = &peerStatus{}
		l.nodes[node] = s
	}
	s.at, s.last = now, *h
	s.offsets[s.n%len(s.offsets)] = h.WallMs - wallMs
	s.n++
}

// noteStepLocked forgets what was measured by this node's own clock before it was set. Were it not so, a clock that jumps ahead would go
// unnoticed for as many heartbeats as are kept, and what the node leads would fire too soon for so long.
func (l *liveness) noteStepLocked(ownMs int64) {
	if d := ownMs - l.ownMs; d > ownStepMs || d < -ownStepMs {
		for _, s := range l.nodes {
			s.n = 0
		}
	}
	l.ownMs = ownMs
}

// touch takes note of a node that was spoken to but has sent no heartbeat: it is there, and not to lead yet.
func (l *liveness) touch(now time.Duration, wallMs int64, node uint64, starts uint32) {
	if _, ago, ok := l.last(now, node); !ok || ago >= aliveFor {
		l.receive(now, wallMs, node, &heartbeat{WallMs: wallMs, Starts: starts, Cordoned: true})
	}
}

// expect notes which nodes there are: one that joins cannot be heard before, so it is not silent for longer than it is known.
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

// offset is how far the node's clock is ahead, in ms. A heartbeat's way only makes it look behind: the largest of some is nearest.
func (s *peerStatus) offset() (ms int64, ok bool) {
	if s.n == 0 {
		return 0, false
	}
	return slices.Max(s.offsets[:min(s.n, len(s.offsets))]), true
}

// forget drops a removed node.
func (l *liveness) forget(node uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
	delete(l.expected, node)
}

// last is a copy of what a node said, and how long ago; false: it was never heard.
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

// facts are what the controller knows of the nodes.
func (l *liveness) facts(now time.Duration, wallMs int64, self uint64, unhealthy string, nodes []ring.Node) ring.Facts {
	f := ring.Facts{NowMs: wallMs, Nodes: map[uint64]ring.NodeFacts{self: {Alive: true, Unfit: unhealthy}}}
	for _, n := range nodes {
		if n.ID == self {
			continue
		}
		s, ago, ok := l.last(now, n.ID)
		facts := ring.NodeFacts{Alive: ok && ago < suspectFor, Unfit: s.last.Unhealthy}
		if !facts.Alive {
			facts.DownForMs = ago.Milliseconds()
		}
		f.Nodes[n.ID] = facts
	}
	return f
}

// clockOff says how far this node's clock is from the median of all that are heard, itself included; ok when there are three or more.
func (l *liveness) clockOff(now time.Duration) (ms int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	offsets := []int64{0}
	for _, s := range l.nodes {
		if ms, ok := s.offset(); ok && now-s.at < aliveFor {
			offsets = append(offsets, ms)
		}
	}
	if len(offsets) < 3 {
		return 0, false
	}
	slices.Sort(offsets)
	return -offsets[len(offsets)/2], true
}
