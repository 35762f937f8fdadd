package sim

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowTurnsLoseElections: on a machine as slow as any that is drawn a storm of timers costs no
// leadership. On one whose turns take longer than an election it does, so a turn that does too much
// is found.
func TestSlowTurnsLoseElections(t *testing.T) {
	elections := func(seed uint64, toil float64) (n int) {
		var r Report
		synctest.Test(t, func(*testing.T) {
			r = Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
				representative(p)
				p.toil = toil
			}, script: func(w *World) {
				w.lay()
				w.found()
				w.pass(20 * time.Second) // leaderships are transferred to where they belong
				before := w.counts.Elections
				w.storm()
				w.pass(20 * time.Second)
				n = w.counts.Elections - before
			}})
		})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return n
	}
	lost := 0
	for seed := range uint64(8) {
		if n := elections(seed, slowestTurns); n != 0 {
			t.Errorf("seed %d: %d elections with turns %d times as slow as ours", seed, n, slowestTurns)
		}
		lost += elections(seed, 20_000)
	}
	if lost == 0 {
		t.Error("turns of seconds cost no leadership")
	}
}
