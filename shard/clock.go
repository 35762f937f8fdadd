package shard

import "time"

// Clock is the time as a host sees it. The wall clock says when a timer is due, and may step; the monotonic one measures
// leases, time-outs and elections, and never does.
type Clock interface {
	WallMs() int64       // Unix ms, rounded down
	Mono() time.Duration // since any fixed moment
	// UntilWall is how long it is until the wall clock reads ms; negative when it does already.
	UntilWall(ms int64) time.Duration
}

// SystemClock is the machine's.
type SystemClock struct{ start time.Time }

// NewSystemClock starts its monotonic clock at zero.
func NewSystemClock() *SystemClock { return &SystemClock{start: time.Now()} }

// WallMs implements Clock.
func (c *SystemClock) WallMs() int64 { return time.Now().UnixMilli() }

// Mono implements Clock.
func (c *SystemClock) Mono() time.Duration { return time.Since(c.start) }

// UntilWall implements Clock.
func (c *SystemClock) UntilWall(ms int64) time.Duration {
	now := time.Now()
	if ahead := ms - now.UnixMilli(); ahead > int64(time.Hour/time.Millisecond) {
		return time.Hour // also keeps far times from overflowing
	}
	return time.UnixMilli(ms).Round(0).Sub(now.Round(0))
}
