package clocks

import (
	"slices"
	"time"
)

// waited is by how much a message must have been faster than the one before to show that the former
// one had waited, in ms. Heartbeats are sent at longer intervals.
const waited = 50

// Measured is another node's wall clock, as its last messages showed it.
type Measured struct {
	// its wall clock minus this node's boot clock at the arrival of a message, in ms
	offsets [8]int64
	n       int // comparable measurements so far
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
	offset := wallMs - boot.Milliseconds()
	// Messages that waited together, because this node or the network stood still, are read one
	// after the other. They are one measurement, or else they would take the place of all that were
	// exact.
	if m.n > 0 && offset-m.offsets[(m.n-1)%len(m.offsets)] >= waited {
		m.n--
	}
	m.offsets[m.n%len(m.offsets)] = offset
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
