package shard

import (
	"slices"
	"sync"
	"time"
)

const (
	// silentAfter is how long nothing has arrived from a node when the groups that it led elect other
	// leaders. It is the shortest time-out that raft draws; the longest is twice as long.
	silentAfter = electionTicks * raftTick
	// maxLookGap bounds what one look adds to a silence: a process that stood still has received
	// nothing, through no fault of the others.
	maxLookGap = 2 * tickInterval
)

// silences finds the nodes that fall silent: a machine that loses its power, or its network, ends
// no connection. Cost: O(1) for each frame, and O(nodes in contact) for each look.
//
// Invariant: a node is found silent only if nothing has arrived from it for as long as raft's
// shortest time-out, and this process ran meanwhile. So every election that begins by it is one
// that raft may have begun by its own time-out.
//
// Its methods may be called from any goroutine.
type silences struct {
	mu     sync.Mutex
	lasts  map[uint64]time.Duration // how long ago a node was heard last; a silent one is not in it
	looked time.Duration
}

// InContact reports that something has arrived from a node. Deliver does so by itself.
func (s *silences) InContact(node uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasts == nil {
		s.lasts = map[uint64]time.Duration{}
	}
	s.lasts[node] = 0
}

// look returns the nodes that have fallen silent, each once, in order.
func (s *silences) look(now time.Duration) (silent []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := min(now-s.looked, maxLookGap)
	s.looked = now
	for node := range s.lasts {
		if s.lasts[node] += passed; s.lasts[node] >= silentAfter {
			delete(s.lasts, node)
			silent = append(silent, node)
		}
	}
	slices.Sort(silent)
	return silent
}

// watchSilences makes the groups that silent nodes led elect other leaders. The first worker does
// it for all.
func (w *worker) watchSilences() {
	if w.number > 0 {
		return
	}
	for _, node := range w.host.look(w.now.Mono) {
		w.host.eachGroup(func(r *replica) { r.election.leaderSeemsGone(r, node) })
	}
}
