package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Timers live in memory without pointers: marking a million of them costs the collector next to nothing, so it may run often and
// the heap need not double between two runs. A small heap gets more room, or it would be collected all the time.
const (
	gcHeadroom   = 32 << 20 // bytes between two collections, at least
	gcPercentMin = 10       // … and this share of the live heap
	gcPercentMax = 400
	gcEach       = 100 * time.Millisecond // a log is replayed at hundreds of megabytes a second
)

// What a burst took goes back to the system once the burst is over; while there is work it would only be taken again.
const (
	quietBytes   = 256 << 10 // allocated in a tick, at most, that count as quiet
	quietTicks   = 20        // … in a row: two seconds
	releaseAbove = 8 << 20   // free bytes that are worth a collection
)

// paceGC keeps the collector's pace and the memory that is held fitting to the live heap until the context ends. Whoever sets
// GOGC decides for himself.
func paceGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	tick := time.NewTicker(gcEach)
	defer tick.Stop()
	var calm calm
	for was := 0; ; {
		metrics.Read(heap)
		if percent := gcPercent(heap[0].Value.Uint64()); percent != was {
			debug.SetGCPercent(percent)
			was = percent
		}
		if calm.release(heap[1].Value.Uint64(), heap[2].Value.Uint64()) {
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// gcPercent is the headroom as a share of the live heap, in steps, so that it does not change all the time.
func gcPercent(live uint64) int {
	const step = 10
	percent := int(gcHeadroom * 100 / max(live, 1<<20))
	return min(max(percent/step*step, gcPercentMin), gcPercentMax)
}

// calm notices that a burst is over.
type calm struct {
	allocated uint64 // in all, at the tick before
	ticks     int    // quiet ones since the burst
}

// release is true once after each burst that has left much free memory behind: allocated are the bytes since the start, free
// those that are held and not used.
func (c *calm) release(allocated, free uint64) bool {
	if allocated-c.allocated > quietBytes {
		c.ticks = 0
	} else {
		c.ticks++
	}
	c.allocated = allocated
	return c.ticks == quietTicks && free > releaseAbove
}
