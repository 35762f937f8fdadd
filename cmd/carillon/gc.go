package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Timers live in memory without pointers: marking a million of them costs the collector next to
// nothing, so it may run often and the heap need not double between two runs. A small heap gets
// more room, or it would be collected all the time.
const (
	gcHeadroom      = 32 << 20 // bytes between two collections, at least
	gcPercentMin    = 10       // … and this share of the live heap
	gcPercentMax    = 400
	gcInterval      = 100 * time.Millisecond // a log is replayed at hundreds of megabytes a second
	gcQuietInterval = time.Second            // in the quiet: each look wakes an idle node
)

// The memory of a burst goes back to the system once the burst is over; while there is work it
// would only be taken again.
const (
	quietBytes      = 256 << 10        // allocated in gcInterval, at most, that count as quiet
	quietTime       = 2 * time.Second  // … without a break
	releaseAbove    = 8 << 20          // bytes held for nothing that are worth a collection
	collectInterval = 20 * time.Second // looks for garbage since then, as long as it is quiet
)

// Under load, too, memory that is held for nothing goes back in the end: much of it, that has been
// there for some seconds.
const (
	idleHeapLimit = 64 << 20 // and a quarter of the live heap
	holdTime      = 15 * time.Second
)

// paceGC keeps the collector's pace and the memory that is held fitting to the live heap until the
// context ends. An operator that sets GOGC decides alone.
func paceGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	each := gcInterval
	tick := time.NewTicker(each)
	defer tick.Stop()
	var calm calm
	for was := 0; ; {
		metrics.Read(heap)
		if percent := gcPercent(heap[0].Value.Uint64()); percent != was {
			debug.SetGCPercent(percent)
			was = percent
		}
		live, objects := heap[0].Value.Uint64(), heap[3].Value.Uint64()
		// Free, or garbage that no collection has found yet.
		held := heap[2].Value.Uint64() + objects - min(objects, live)
		if calm.release(each, heap[1].Value.Uint64(), held, live) {
			debug.FreeOSMemory()
		}
		if next := calm.lookIn(); next != each {
			each = next
			tick.Reset(each)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// gcPercent is the headroom as a share of the live heap, rounded up by steps of about an eighth, so
// that it does not change all the time.
func gcPercent(live uint64) int {
	live = max(live, 1<<20)
	percent := int((gcHeadroom*100 + live - 1) / live)
	step := max(percent/8, 1)
	return min(max((percent+step-1)/step*step, gcPercentMin), gcPercentMax)
}

// calm notices that a burst is over.
type calm struct {
	allocated uint64        // in all, at the last look
	quiet     time.Duration // since the burst
	much      time.Duration // for which much was held for nothing
}

// release is true once after each burst that has left memory behind, now and then while much is
// held for nothing, and now and then while all is quiet, since objects that die then are garbage
// that nothing has the collector find. after is the time since the last look. allocated are the
// bytes since the start, held those that the process has and does not need, live those that the
// last collection left.
func (c *calm) release(after time.Duration, allocated, held, live uint64) bool {
	if c.much += after; held <= idleHeapLimit+live/4 {
		c.much = 0
	}
	if c.much >= holdTime {
		c.much = 0
		return true
	}
	before := c.quiet
	if c.quiet += after; allocated-c.allocated > quietBytes*uint64(after/gcInterval) {
		c.quiet = 0
	}
	c.allocated = allocated
	return before < quietTime && c.quiet >= quietTime && held > releaseAbove || c.quiet/collectInterval > before/collectInterval
}

// lookIn is the time until the next look.
func (c *calm) lookIn() time.Duration {
	if c.quiet > quietTime {
		return gcQuietInterval
	}
	return gcInterval
}
