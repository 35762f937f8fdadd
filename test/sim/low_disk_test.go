package sim

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLowDiskThatWasNotHeardForAWhile: a node with a low disk counts as one with room while nobody
// hears it, so a leader may take an add then. The leader must refuse adds only from the next
// heartbeat on.
func TestLowDiskThatWasNotHeardForAWhile(t *testing.T) {
	script := func(w *World) {
		w.lay()
		w.found()
		a := w.leader(1)
		b := w.others(a)[0]
		const huge = 1 << 40
		b.disk.SetCapacity(huge)
		free, err := b.disk.Free(dataDir)
		if err != nil {
			t.Fatal(err)
		}
		b.disk.SetCapacity(huge - int64(free) + lowLimit/2)
		w.pass(2 * time.Second)
		first, low := a.low[b.id]
		if !low {
			t.Fatal("it was not heard that the disk is low")
		}
		w.pass(2 * time.Second)
		if a.low[b.id] != first {
			t.Error("what is heard all the time counts from another beat than the first")
		}
		w.net.cut[[2]uint64{b.id, a.id}] = true
		w.pass(3 * time.Second)
		delete(w.net.cut, [2]uint64{b.id, a.id})
		w.pass(time.Second)
		if since, low := a.low[b.id]; !low || since < first+5*time.Second {
			t.Errorf("heard %s after it was first heard (%v), it counts from then on", a.clock.Mono()-first, since-first)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := Run(Config{Seed: 1, Settle: synctest.Wait, script: script, Change: func(p *Plan) {
			p.nodes, p.shards, p.replicas, p.early = 2, 2, 2, false
			p.segmentBytes, p.genBytes = 16<<10, 64<<10
			p.calm()
		}})
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
}
