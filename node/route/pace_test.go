package route

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

func TestRestAfter(t *testing.T) {
	ms := time.Millisecond
	for took, want := range map[time.Duration]time.Duration{
		0: 0, ms: ms, 2 * ms: 2 * ms, 4 * ms: 8 * ms, 8 * ms: 32 * ms, 10 * ms: 40 * ms, 13 * ms: 50 * ms, 40 * ms: 50 * ms, 200 * ms: 200 * ms,
	} {
		if got := restAfter(took); got != want {
			t.Errorf("after %v a rest of %v, want %v", took, got, want)
		}
	}
}

// TestBulkLeavesRoom: several bulk changes at once have no more than paceLanes small batches under
// way, and leave the shards alone for half of each lane's time; three quarters of it where a batch
// takes long.
func TestBulkLeavesRoom(t *testing.T) {
	for takes, share := range map[time.Duration]float64{time.Millisecond: 0.5, 10 * time.Millisecond: 0.25} {
		synctest.Test(t, func(t *testing.T) {
			const several, each = 4, 500
			f := newBulkCluster(3)
			f.takes = takes
			for i := range each * several {
				f.add(timer.ShardID(1+i%3), fmt.Sprintf("s%d-%d", i%several, i), time.Hour.Milliseconds())
			}
			begin := time.Now()
			var wg sync.WaitGroup
			for i := range several {
				wg.Go(func() {
					b := cancelAll(fmt.Sprint("s", i))
					if err := f.nodes[1].Bulk(t.Context(), b); err != nil || b.Changed.Load() != each {
						t.Errorf("%d cancelled of %d: %v", b.Changed.Load(), each, err)
					}
				})
			}
			wg.Wait()
			most := max(smallBatch, smallBatch*int(takes/paceQuick))
			if f.most > paceLanes*most {
				t.Errorf("%d commands were under way at once", f.most)
			}
			if used := float64(f.working) / float64(time.Since(begin)) / paceLanes; used > share+0.01 {
				t.Errorf("batches that take %v: %.0f %% of the time was theirs, not %.0f", takes, 100*used, 100*share)
			}
		})
	}
}
