package clocks

import (
	"slices"
	"time"
)

const (
	// burst is how far apart two messages must arrive to be measured apart. What lay in a socket
	// while this node or its network stood still arrives at once, however old it is.
	burst = 200 * time.Millisecond
	// silence is how long nothing must arrive for the next burst to be of any age.
	silence = 1500 * time.Millisecond
)

// Measured is another node's wall clock, as its last messages showed it.
type Measured struct {
	// its wall clock minus this node's boot clock at the arrival of a message, in ms; of a burst the
	// largest
	offsets [8]int64
	n       int           // comparable bursts so far
	at      time.Duration // when the last one began, by this node's boot clock
	before  time.Duration // … and the one before
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
	if m.n == 0 || boot-m.at >= burst {
		m.offsets[m.n%len(m.offsets)] = offset
		m.n++
		m.before, m.at = m.at, boot
	}
	last := &m.offsets[(m.n-1)%len(m.offsets)]
	*last = max(*last, offset)
	return true
}

// OffsetMs is the sender's wall clock minus this node's boot clock; false: it is not known. The first
// burst, and the first after a silence, may be of any age; the next one tells. The delay of a
// message only makes the clock look late, so the largest of several offsets is the most exact.
func (m *Measured) OffsetMs() (ms int64, ok bool) {
	if m.n < 2 || m.at-m.before >= silence {
		return 0, false
	}
	return slices.Max(m.offsets[:min(m.n, len(m.offsets))]), true
}

// Heard is when the last burst but one began. If the wall clock stepped since, the boot clock may
// have stood still, and there may have been a silence.
func (m *Measured) Heard() time.Duration { return m.before }
