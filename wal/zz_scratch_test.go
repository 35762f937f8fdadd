package wal

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

func TestScratchLatency(t *testing.T) {
	if os.Getenv("SCRATCH") == "" { t.Skip() }
	q := func(d []time.Duration) string {
		if len(d) == 0 { return "-" }
		slices.Sort(d)
		at := func(f float64) time.Duration { return d[min(int(f*float64(len(d))), len(d)-1)].Round(10*time.Microsecond) }
		return fmt.Sprintf("n=%d p50 %v p99 %v p99.9 %v max %v", len(d), at(.5), at(.99), at(.999), at(1))
	}
	for round := range 2 {
		_ = round
		for _, backend := range []string{"tidwall", "file"} {
			for _, mb := range []int64{1, 2, 4} {
				b := &testing.B{}
				_ = b
				tmp, _ := os.MkdirTemp("/work", "lat")
				var fsys FS = OSFS{}
				dir := tmp
				if backend == "file" { fsys, dir = prefixFS{OSFS{}, tmp}, "x" }
				var syncs, turns []time.Duration
				o := Options{SegmentBytes: mb << 20}
				o.Observe.Sync = func(d time.Duration) { syncs = append(syncs, d) }
				o.Observe.Turn = func(d time.Duration) { turns = append(turns, d) }
				s, err := Open(fsys, dir, o, nil)
				must(t, err)
				ctx, cancel := context.WithCancel(context.Background())
				ran := make(chan error, 1)
				go func() { ran <- s.Run(ctx) }()
				start := time.Now()
				took := appendByMany(b, s, 64, 300000)
				el := time.Since(start)
				cancel()
				must(t, <-ran)
				fmt.Printf("%s %d MiB: %.0f/s wait %s\n   sync %s\n   turn %s\n", backend, mb, 300000/el.Seconds(), q(took), q(syncs), q(turns))
				os.RemoveAll(tmp)
			}
		}
	}
}
