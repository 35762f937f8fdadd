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

	left struct{ off, at time.Duration } // its error before it was set last, and when that was
	steadiness

	asleep     bool // the monotonic clock stands still since asleepAt
	bootAsleep bool // … and the boot clock
	asleepAt   time.Duration

	frozen   bool // the wall clock stands still at frozenAt
	frozenAt time.Duration
}

// steadiness is for how long a process may take the wall clock for steady.
type steadiness struct {
	touched time.Duration // when the wall clock last stepped, or last stood still; 0: never
	// when the window began in which it may move by clocks.Slew, and its lead over the boot clock
	// then
	baseAt, base time.Duration
}

// move changes the clocks. A move of the wall clock against the boot clock by no more than Slew
// within SlewWindow is no step, however it came about: to a process the clock is steady. A clock
// that stood still has moved until now.
func (c *clock) move(change func()) {
	stepped := c.stepped()
	c.window()
	change()
	if stepped || c.stepped() {
		c.touch()
	}
}

func (c *clock) stepped() bool { return (c.lead() - c.base).Abs() > clocks.Slew }

// window begins another window if the last one has passed.
func (c *clock) window() {
	if passed := c.world.now - c.baseAt; passed >= clocks.SlewWindow {
		c.baseAt, c.base = c.world.now-passed%clocks.SlewWindow, c.lead()
	}
}

// touch takes note of a step of the wall clock.
func (c *clock) touch() {
	c.touched = c.world.now
	c.rebase()
}

// rebase begins another window.
func (c *clock) rebase() { c.baseAt, c.base = c.world.now, c.lead() }

// lead is how far the wall clock is ahead of the boot clock, which is all that a process sees. A
// virtual machine that was stopped may come back to the lead that it trusted, at another time.
func (c *clock) lead() time.Duration { return c.wall() - c.Boot() }

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
