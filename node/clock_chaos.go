//go:build chaos

package node

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"carillon/shard"
)

// clockFileEnv names a file that says how far this node's wall clock is off, so that tests of real processes can step one clock of
// several on one machine: "MS" or "MS PPM", the second for a clock that also runs fast, or slow. It is read again all the time; while
// it is missing or malformed the last word holds. What holds is repeated in a file beside it, whose name ends in .seen.
const (
	clockFileEnv  = "CARILLON_CHAOS_CLOCK"
	clockFileEach = 10 * time.Millisecond
)

// wrongClock is the machine's but for the wall clock.
type wrongClock struct {
	*shard.SystemClock
	now atomic.Pointer[shift]
}

// shift is how far the wall clock is off, and since when it drifts from there.
type shift struct {
	text  string
	ms    int64
	ppm   int64
	since time.Duration // monotonic
}

func newClock() (shard.Clock, func() time.Time) {
	c := &wrongClock{SystemClock: shard.NewSystemClock()}
	c.now.Store(&shift{})
	if file := os.Getenv(clockFileEnv); file != "" {
		c.look(file)
		go func() { // until the process ends
			for range time.Tick(clockFileEach) {
				c.look(file)
			}
		}()
	}
	return c, func() time.Time { return time.Now().Add(c.off()) }
}

func (c *wrongClock) look(file string) {
	text, err := os.ReadFile(file)
	if err != nil || string(text) == c.now.Load().text {
		return
	}
	next := shift{text: string(text), since: c.Mono()}
	if n, _ := fmt.Sscan(next.text, &next.ms, &next.ppm); n > 0 {
		c.now.Store(&next)
		_ = os.WriteFile(file+".seen", text, 0o600) // who waits for it gives up
	}
}

func (c *wrongClock) off() time.Duration {
	s := c.now.Load()
	drifted := (c.Mono() - s.since).Microseconds() * s.ppm / 1_000_000
	return time.Duration(s.ms)*time.Millisecond + time.Duration(drifted)*time.Microsecond
}

// WallMs implements shard.Clock.
func (c *wrongClock) WallMs() int64 { return time.Now().Add(c.off()).UnixMilli() }

// UntilWall implements shard.Clock.
func (c *wrongClock) UntilWall(ms int64) time.Duration {
	ahead := time.UnixMilli(ms).Sub(time.Now().Round(0).Add(c.off()))
	return min(ahead, time.Hour)
}
