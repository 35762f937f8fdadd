package sim

import (
	"time"

	"carillon/clocks"
)

// epochMs is where the nodes' wall clocks begin.
const epochMs = int64(1_800_000_000_000)

// clock is a machine's three clocks. They drift together, as the time service of a real one slews all three.
type clock struct {
	world *World
	drift float64       // added to each second
	step  time.Duration // how far the wall clock is off

	monoStopped time.Duration // for how long the monotonic clock has stood still
	bootStopped time.Duration // … and the boot clock

	touched time.Duration // when the wall clock was last set, or stood still against the others; 0: never

	asleep     bool // the monotonic clock has stood still since asleepAt
	bootAsleep bool // … and the boot clock
	asleepAt   time.Duration

	frozen   bool // the wall clock shows frozenAt
	frozenAt time.Duration
}

// passed is how long the machine has been there, by its own clocks.
func (c *clock) passed() time.Duration {
	now := c.world.now
	return now + time.Duration(float64(now)*c.drift)
}

// Boot implements clocks.Source.
func (c *clock) Boot() time.Duration {
	return time.Hour + c.passed() - c.bootStopped - c.sleeps(c.bootAsleep)
}

// sleeps is for how long a clock has stood still by now that stands still in this sleep, or does not.
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

// Mono is what the process measures spans with.
func (c *clock) Mono() time.Duration { return c.Boot() }

// WallMs is the wall clock, believed or not.
func (c *clock) WallMs() int64 { return c.wall().Milliseconds() + epochMs }

func (c *clock) wall() time.Duration {
	if c.frozen {
		return c.frozenAt
	}
	return c.passed() + c.step - c.sleeps(c.bootAsleep)
}
