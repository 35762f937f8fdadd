package clocks

import "time"

// Reading is the machine's three clocks at one moment. Mono and Boot count from any fixed moment
// of their own; within one boot of the machine, Boot counts from the same one in all processes.
type Reading struct {
	WallUs int64         // microseconds since the Unix epoch
	Mono   time.Duration // stands still while the machine sleeps
	Boot   time.Duration // goes on while the machine sleeps
	Apart  time.Duration // the clocks were read at most this long after one another
}

// Source reads clocks. A Keeper calls Read with its lock held, so a Source needs none for it.
type Source interface {
	Read() Reading
	// Boot is the boot clock alone, at less cost. It may be called by any goroutine.
	Boot() time.Duration
}

// Trust says whether the wall clock can be believed.
type Trust uint8

// The states of trust.
const (
	// Sure: the wall clock is believed, and Moment.WallMs is it.
	Sure Trust = iota
	// Held: the wall clock stepped, or differs from what most nodes have. Moment.WallMs is what was
	// believed before, moved on by the boot clock.
	Held
	// Unknown: nothing has confirmed the wall clock since the process began. Moment.WallMs is it
	// for want of anything better.
	Unknown
)

// Moment is what one turn of a loop goes by.
type Moment struct {
	WallMs int64 // Unix ms, rounded down
	// Mono is time that has passed for sure, also while the machine slept. It never steps.
	Mono time.Duration
	// Lease is time that may have passed: Mono, and at least a day for each step of the wall clock. When a
	// virtual machine goes on after a stop, that is all that its clocks show of it.
	Lease time.Duration
	Trust Trust
}
