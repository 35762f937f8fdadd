package clocks

import "time"

// Reading is the machine's three clocks at one moment. Mono and Boot each count from a fixed moment
// of their own; within one boot of the machine Boot is the same in all processes.
type Reading struct {
	WallUs int64         // microseconds since the Unix epoch
	Mono   time.Duration // stands still while the machine sleeps
	Boot   time.Duration // runs while the machine sleeps
	Apart  time.Duration // the longest time between the readings of the clocks
}

// Source reads clocks. A Keeper calls Read with its lock held, so Read needs none.
type Source interface {
	Read() Reading
	// Boot is the boot clock alone, at a lower cost. It is safe for concurrent use.
	Boot() time.Duration
}

// Trust is whether the wall clock can be trusted.
type Trust uint8

// The states of trust.
const (
	// Sure: the wall clock is trusted, and Moment.WallMs is the wall clock.
	Sure Trust = iota
	// Held: the wall clock stepped, or differs from most nodes' clocks. Moment.WallMs is the time
	// trusted before, continued by the boot clock.
	Held
	// Unknown: nothing has confirmed the wall clock since the process began. Moment.WallMs is the
	// wall clock for want of anything better.
	Unknown
)

// Moment is the time for one turn of a loop.
type Moment struct {
	WallMs int64 // Unix ms, rounded down
	// Mono is the time that has surely passed, including sleep. It never steps.
	Mono time.Duration
	// Lease is the time that may have passed: Mono, plus a day for each step of the wall
	// clock. When a virtual machine resumes after a stop, such a step is the only sign of it.
	Lease time.Duration
	Trust Trust
}
