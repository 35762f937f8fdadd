package clocks

import (
	"math"
	"sync/atomic"
	"time"
)

// Manual is the clock of a node under test: it stands still until MoveTo. Only Moment.Mono, and
// Manual.Mono, are the machine's. All methods are safe for concurrent use; their cost is O(1).
type Manual struct {
	machine *Keeper
	beganMs int64
	nowMs   atomic.Int64
}

// NewManual returns a clock that shows ms.
func NewManual(machine *Keeper, ms int64) *Manual {
	m := &Manual{machine: machine, beganMs: ms}
	m.nowMs.Store(ms)
	return m
}

// LastMs is the latest time that the clock can show, 292 years after its beginning: Lease has no
// place for more.
func (m *Manual) LastMs() int64 { return m.beganMs + int64(math.MaxInt64/time.Millisecond) }

// MoveTo sets the clock to ms, at most to LastMs. It has one caller at a time. It does not move
// the clock back.
func (m *Manual) MoveTo(ms int64) { m.nowMs.Store(max(ms, m.nowMs.Load())) }

// Look reads the clock, which is always trusted. Lease is what the clock has been moved by.
func (m *Manual) Look() Moment {
	ms := m.nowMs.Load()
	return Moment{WallMs: ms, Mono: m.machine.Mono(), Lease: m.passed(ms)}
}

func (m *Manual) passed(ms int64) time.Duration {
	return time.Duration(ms-m.beganMs) * time.Millisecond
}

// Mono is Keeper.Mono.
func (m *Manual) Mono() time.Duration { return m.machine.Mono() }

// Lease is Moment.Lease.
func (m *Manual) Lease() time.Duration { return m.passed(m.nowMs.Load()) }

// WallMs is Moment.WallMs.
func (m *Manual) WallMs() int64 { return m.nowMs.Load() }

// Wall is the clock's time.
func (m *Manual) Wall() time.Time { return time.UnixMilli(m.nowMs.Load()) }

// UntilWall is 0 if the clock shows ms or later, else an hour: it does not get there by itself.
func (m *Manual) UntilWall(ms int64) time.Duration {
	if ms <= m.nowMs.Load() {
		return 0
	}
	return time.Hour
}

// Fault is Keeper.Fault: "".
func (m *Manual) Fault() string { return "" }
