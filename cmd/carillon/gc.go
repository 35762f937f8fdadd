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

// paceGC keeps the collector's pace fitting to the live heap until the context ends. Whoever sets GOGC decides for himself.
func paceGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(gcEach)
	defer tick.Stop()
	for was := 0; ; {
		metrics.Read(live)
		if percent := gcPercent(live[0].Value.Uint64()); percent != was {
			debug.SetGCPercent(percent)
			was = percent
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
