package clocks

import (
	"slices"
	"time"
)

// Measured is another node's wall clock as some of its last messages showed it.
type Measured struct {
	offsets [8]int64 // its wall clock less this node's boot clock when the message came, in ms
	n       int      // messages since they can be compared
	steps   uint32
}

// Take notes what a message of a process says: its wall clock, and how often that was set. boot is this
// node's boot clock. It is false for a message that was overtaken by one of after a step.
func (m *Measured) Take(boot time.Duration, wallMs int64, steps uint32) bool {
	if steps < m.steps {
		return false
	}
	if steps > m.steps {
		m.n, m.steps = 0, steps // what was measured is of before the clock was set
	}
	m.offsets[m.n%len(m.offsets)] = wallMs - boot.Milliseconds()
	m.n++
	return true
}

// OffsetMs is the wall clock less this node's boot clock; false: nothing was measured. A message's way
// only makes the clock look behind, so the largest of some is nearest.
func (m *Measured) OffsetMs() (ms int64, ok bool) {
	if m.n == 0 {
		return 0, false
	}
	return slices.Max(m.offsets[:min(m.n, len(m.offsets))]), true
}
