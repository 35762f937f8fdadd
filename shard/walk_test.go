package shard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/timer"
)

// TestHostWalk scans the host: a held lease shows as scheduled, a started one as leased, and the
// scan is complete across slices.
func TestHostWalk(t *testing.T) {
	r := newHostHarness(t, nil)
	for i := range 300 {
		r.add(fmt.Sprint("t", i), time.Hour)
	}
	r.add("running", 0)
	var ids []string
	steps := 0
	r.blocking(func() {
		q := &timer.Query{Topic: 1, States: 1<<timer.Scheduled | 1<<timer.Leased, Limit: 7}
		for at := (timer.ScanCursor{}); !at.Done(); steps++ {
			marks, next, err := r.host.Walk(1, q, at)
			if err != nil {
				t.Error(err)
				return
			}
			for _, m := range marks {
				ids = append(ids, m.ID)
				if m.Leased != (m.ID == "running") {
					t.Errorf("%+v", m)
				}
			}
			at = next
		}
	})
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 301 || len(ids) != 301 || steps < 301/7 {
		t.Errorf("%d timers, %d of them different, in %d steps", len(ids), n, steps)
	}
}
