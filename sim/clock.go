package sim

import "time"

// epochMs is where the nodes' wall clocks begin.
const epochMs = int64(1_800_000_000_000)

// clock is a node's: a monotonic one that drifts, and a wall clock that may step.
type clock struct {
	world *World
	drift float64       // added to each second
	step  time.Duration // how far the wall clock is off

	frozen   bool // the wall clock shows frozenAt
	frozenAt time.Duration
}

// Mono implements shard.Clock.
func (c *clock) Mono() time.Duration {
	now := c.world.now
	return time.Hour + now + time.Duration(float64(now)*c.drift)
}

// WallMs implements shard.Clock.
func (c *clock) WallMs() int64 { return c.wall().Milliseconds() + epochMs }

func (c *clock) wall() time.Duration {
	if c.frozen {
		return c.frozenAt
	}
	return c.Mono() - time.Hour + c.step
}

// UntilWall implements shard.Clock.
func (c *clock) UntilWall(ms int64) time.Duration {
	ahead := min(max(ms-epochMs, -1<<40), 1<<40)
	return min(time.Duration(ahead)*time.Millisecond-c.wall(), time.Hour)
}
