package sim

import (
	"testing"
	"time"
)

// TestBacklogOfOneReceiver: at the repair a receiver that takes one call at a time has more due
// timers than it can take within healLimit. All shards take and fire timers of another topic at
// once, so that is no violation.
func TestBacklogOfOneReceiver(t *testing.T) {
	r := run(t, Config{Seed: 1, Safety: 20 * time.Second, Change: func(p *Plan) {
		representative(p)
		p.calm()
		p.slots, p.safety = 1, 20*time.Second
	}, script: func(w *World) {
		for i := range 40 {
			w.after(17*time.Second+time.Duration(i)*50*time.Millisecond, w.storm)
		}
		w.live()
	}})
	if r.Err != nil {
		t.Error(r.Err)
	}
}
