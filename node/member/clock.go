package member

import (
	"time"

	"carillon/internal/clocks"
)

// heartbeatClock is the part of a heartbeat on a node's clock.
type heartbeatClock struct {
	Known   bool          // false: the node has sent no heartbeat yet
	AheadMs int64         // of the time that the node believes; 0 if it goes by its clock
	Steps   uint32        // since its process began
	Steady  time.Duration // since its last step, or since it began
	Sure    bool          // it goes by its clock
}

// maxSteadyMs is 35 years.
const maxSteadyMs = 1 << 40

// believedMs is the time that the node went by when it sent the heartbeat.
func (h *heartbeat) believedMs() int64 { return h.WallMs - h.Clock.AheadMs }

// judgeClock compares this node's clock with those that it hears, and says how it is.
func (m *Member) judgeClock(now time.Duration) clocks.State {
	var peers []clocks.Peer
	nodes := m.State.Nodes()
	for _, n := range nodes {
		s, ago, ok := m.liveness.last(now, n.ID)
		if n.ID == m.id || !ok || ago >= aliveFor {
			continue
		}
		if p, known := s.clock(n.ID, ago); known {
			peers = append(peers, p)
		}
	}
	m.clock.Judge(m.id, len(nodes), peers)
	s := m.clock.State()
	m.sayClock(&s)
	return s
}

// clock is the node's clock as it was heard.
func (s *peerStatus) clock(id uint64, ago time.Duration) (p clocks.Peer, known bool) {
	offset, known := s.measured.OffsetMs()
	c := &s.last.Clock
	return clocks.Peer{Node: id, OffsetMs: offset, Steps: c.Steps, Steady: c.Steady + ago, Sure: c.Sure}, known
}

// sayClock tells the operator when the clock ceases to be believed, and when it is believed again.
func (m *Member) sayClock(s *clocks.State) {
	switch held := s.Trust == clocks.Held; {
	case held && !m.clockHeld:
		m.log.Error("this node does not believe its clock: it starts, expires and forgets nothing until others confirm it, or, where none can, "+
			"until it is steady; check its time service", "why", s.Why, "ahead_ms", s.AheadMs)
		m.clockHeld = true
	case s.Trust == clocks.Sure && m.clockHeld:
		m.log.Warn("this node believes its clock again", "clock", time.UnixMilli(s.RawMs).UTC())
		m.clockHeld = false
	}
}

// ClockRight says whether this node hears, of more than half of the members, that they go by a
// clock of which right is true.
func (m *Member) ClockRight(right func(node uint64) bool) bool {
	now, heard := m.clock.Mono(), 0
	members := m.State.Nodes()
	for _, n := range members {
		s, ago, ok := m.liveness.last(now, n.ID)
		if n.ID != m.id && ok && ago < time.Second && s.last.Clock.Sure && right(n.ID) {
			heard++
		}
	}
	return 2*heard > len(members)
}
