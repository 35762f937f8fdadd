//go:build chaos

package node

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/feature"
)

func init() { highestLevel = feature.LevelOfTests }

// clockFileEnv names a file with the errors of this node's clocks, so that tests of real
// processes can set one machine's clocks of several on one machine: "WALL PPM MONO BOOT", all but
// the first may be left out. WALL is by how many ms the wall clock is ahead, PPM by how much it
// also runs fast, or slow; MONO and BOOT are how many ms the monotonic and the boot clock have
// stood still. The file is read again all the time, and whenever a process that stood still goes
// on; while it is missing or malformed the last content holds. It is repeated in another file,
// whose name ends in .seen.
const (
	clockFileEnv      = "CARILLON_CHAOS_CLOCK"
	clockFileInterval = 10 * time.Millisecond
)

// wrongClocks is a clocks.Source: the machine's clocks with the errors from the file.
type wrongClocks struct {
	machine *clocks.System
	file    string
	now     atomic.Pointer[shift]
	last    atomic.Int64 // monotonic ns of the last reading
}

// shift is how far the clocks are off, and since when the wall clock drifts from there.
type shift struct {
	text                     string
	wallMs, ppm              int64
	monoStopped, bootStopped time.Duration
	since                    time.Duration // monotonic
}

func newClocks() clocks.Source {
	c := &wrongClocks{machine: clocks.NewSystem(), file: os.Getenv(clockFileEnv)}
	c.now.Store(&shift{})
	if c.file != "" {
		c.look()
		go func() { // until the process ends
			for range time.Tick(clockFileInterval) {
				c.look()
			}
		}()
	}
	return c
}

func (c *wrongClocks) look() {
	text, err := os.ReadFile(c.file)
	if err != nil || string(text) == c.now.Load().text {
		return
	}
	next := shift{text: string(text), since: c.machine.Boot()}
	var monoMs, bootMs int64
	if n, _ := fmt.Sscan(next.text, &next.wallMs, &next.ppm, &monoMs, &bootMs); n > 0 {
		next.monoStopped, next.bootStopped = time.Duration(monoMs)*time.Millisecond, time.Duration(bootMs)*time.Millisecond
		c.now.Store(&next)
		_ = os.WriteFile(c.file+".seen", text, 0o600) // the one that waits for it gives up
	}
}

func (c *wrongClocks) Boot() time.Duration {
	c.wokeUp(c.machine.Boot())
	return c.machine.Boot() - c.now.Load().bootStopped
}

// wokeUp reads the file if this process stood still: the one that stopped it may have set its
// clocks.
func (c *wrongClocks) wokeUp(now time.Duration) {
	if last := time.Duration(c.last.Swap(int64(now))); c.file != "" && now-last > 5*clockFileInterval {
		c.look()
	}
}

func (c *wrongClocks) Read() clocks.Reading {
	r := c.machine.Read()
	c.wokeUp(r.Boot)
	s := c.now.Load()
	drifted := (r.Boot - s.since).Microseconds() * s.ppm / 1_000_000
	r.WallUs += s.wallMs*1000 + drifted
	r.Mono -= s.monoStopped
	r.Boot -= s.bootStopped
	return r
}
