package sim

import (
	"time"

	"carillon/internal/clocks"
)

// epochMs is the initial wall clock time of all nodes.
const epochMs = int64(1_800_000_000_000)

// clock is a machine's three clocks. They drift together, as NTP slews all three.
type clock struct {
	world *World
	drift float64       // seconds added per second
	step  time.Duration // error of the wall clock

	monoStopped time.Duration // how long the monotonic clock has stood still in total
	bootStopped time.Duration // … and the boot clock

	left    struct{ off, at time.Duration } // its error before it was set last, and when that was
	touched time.Duration                   // when the wall clock was last set, or last stood still; 0: never

	asleep     bool // the monotonic clock stands still since asleepAt
	bootAsleep bool // … and the boot clock
	asleepAt   time.Duration

	frozen   bool // the wall clock stands still at frozenAt
	frozenAt time.Duration
}

// passed is the time since the start of the run, as the machine's oscillator measures it.
func (c *clock) passed() time.Duration {
	now := c.world.now
	return now + time.Duration(float64(now)*c.drift)
}

// Boot implements clocks.Source.
func (c *clock) Boot() time.Duration {
	return time.Hour + c.passed() - c.bootStopped - c.sleeps(c.bootAsleep)
}

// sleeps is how long the current sleep has stopped a clock; stands says whether it stops this one.
func (c *clock) sleeps(stands bool) time.Duration {
	if !c.asleep || !stands {
		return 0
	}
	return c.world.now - c.asleepAt
}

// Read implements clocks.Source.
func (c *clock) Read() clocks.Reading {
	return clocks.Reading{WallUs: epochMs*1000 + c.wall().Microseconds(), Mono: time.Hour + c.passed() - c.monoStopped - c.sleeps(true), Boot: c.Boot()}
}

// Mono is the clock that the process measures durations with.
func (c *clock) Mono() time.Duration { return c.Boot() }

// WallMs is the wall clock, trusted or not.
func (c *clock) WallMs() int64 { return c.wall().Milliseconds() + epochMs }

func (c *clock) wall() time.Duration {
	if c.frozen {
		return c.frozenAt
	}
	return c.passed() + c.step - c.sleeps(c.bootAsleep)
}
