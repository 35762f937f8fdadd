package clocks

import (
	"slices"
	"time"
)

// Measured is another node's wall clock, as its last messages showed it.
type Measured struct {
	// its wall clock minus this node's boot clock at the arrival of a message, in ms
	offsets [8]int64
	n       int // comparable messages so far
	steps   uint32
}

// Take records a message: the sender's wall clock, and how often that was set. boot is this node's
// boot clock. It returns false for a message from before a step that arrives after a newer one.
func (m *Measured) Take(boot time.Duration, wallMs int64, steps uint32) bool {
	if steps < m.steps {
		return false
	}
	if steps > m.steps {
		m.n, m.steps = 0, steps // older measurements are from before the clock was set
	}
	m.offsets[m.n%len(m.offsets)] = wallMs - boot.Milliseconds()
	m.n++
	return true
}

// OffsetMs is the sender's wall clock minus this node's boot clock; false: nothing was measured.
// The delay of a message only makes the clock look late, so the largest of several offsets is the
// most exact.
func (m *Measured) OffsetMs() (ms int64, ok bool) {
	if m.n == 0 {
		return 0, false
	}
	return slices.Max(m.offsets[:min(m.n, len(m.offsets))]), true
}
