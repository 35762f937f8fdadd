package main

import (
	"testing"
	"time"
)

// TestGCPercent: the headroom is what it is to be, and little more, but for the smallest and the
// largest heaps; and it changes seldom.
func TestGCPercent(t *testing.T) {
	changes := 0
	for live := uint64(8 << 20); live < 320<<20; live += 1 << 20 {
		percent := gcPercent(live)
		if room := live * uint64(percent) / 100; room < gcHeadroom || room > gcHeadroom*120/100 {
			t.Errorf("live heap of %d MiB: %d %%, %d MiB", live>>20, percent, room>>20)
		}
		if percent != gcPercent(live+1<<20) {
			changes++
		}
	}
	if changes > 60 {
		t.Errorf("%d changes between 8 and 320 MiB", changes)
	}
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 10_000 << 20: 10} {
		if got := gcPercent(live); got != want {
			t.Errorf("live heap of %d MiB: %d %%, want %d", live>>20, got, want)
		}
	}
}

// Memory goes back once after a burst, not during it, and not for little.
func TestReleaseAfterABurst(t *testing.T) {
	var c calm
	allocated := uint64(0)
	ticks := func(n int, bytes, free uint64) (released int) {
		for range n {
			allocated += bytes
			if c.release(gcInterval, allocated, free, 100<<20) {
				released++
			}
		}
		return released
	}
	for i, step := range []struct {
		ticks       int
		bytes, free uint64
		want        int
	}{
		{100, 4 << 20, 32 << 20, 0},                        // the burst
		{int(quietTime/gcInterval) - 1, 1000, 32 << 20, 0}, // not over for long
		{1, 1000, 32 << 20, 1},
		{100, 1000, 32 << 20, 0}, // once
		{1, 4 << 20, 32 << 20, 0},
		{100, 1000, 1 << 20, 0}, // another burst that left little
		{1, 4 << 20, 32 << 20, 0},
		{100, 1000, 32 << 20, 1},
	} {
		if got := ticks(step.ticks, step.bytes, step.free); got != step.want {
			t.Errorf("step %d: released %d times, want %d", i, got, step.want)
		}
	}
}

// An object that dies while all is quiet, such as an answer whose reader has gone, is not known to
// be garbage before the next collection, and nothing that is allocated brings that about.
func TestReleaseOfWhatDiedInTheQuiet(t *testing.T) {
	const held, live = 1 << 20, 300 << 20 // as the last collection found it
	var c calm
	c.release(gcInterval, 64<<20, held, live)
	released := 0
	looks := 0
	for left := 30 * time.Second; left > 0; looks++ {
		after := c.lookIn()
		left -= after
		if c.release(after, 64<<20, held, live) {
			released++
		}
	}
	if looks > 60 {
		t.Errorf("%d looks in half a minute of quiet", looks)
	}
	if c.release(gcQuietInterval, 128<<20, held, live); c.lookIn() != gcInterval {
		t.Error("no closer look once it is not quiet")
	}
	if released != 1 {
		t.Errorf("released %d times in half a minute of quiet, want once", released)
	}
}

// Under load, too, much of the memory that is held for nothing goes back, after some seconds and
// not all the time.
func TestReleaseUnderLoad(t *testing.T) {
	var c calm
	allocated := uint64(0)
	released := func(ticks int, held uint64) (n int) {
		for range ticks {
			allocated += 4 << 20
			if c.release(gcInterval, allocated, held, 400<<20) {
				n++
			}
		}
		return n
	}
	if n := released(10*int(holdTime/gcInterval), 160<<20); n != 0 {
		t.Errorf("room for a heap of that size was released %d times", n)
	}
	if n := released(int(holdTime/gcInterval)-1, 800<<20); n != 0 {
		t.Error("released at once")
	}
	if n := released(1+3*int(holdTime/gcInterval), 800<<20); n != 4 {
		t.Errorf("released %d times, want 4", n)
	}
}
