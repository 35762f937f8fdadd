package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
)

// silenceLimit is how soon a group takes changes again after its leader has fallen silent.
const silenceLimit = 1500 * time.Millisecond

// TestSilentLeader: a node that leads falls silent, because its process is stopped, as by the loss of
// its machine's power, or because its network is cut. All groups that it led have other leaders
// soon, and all is well when it is back.
func TestSilentLeader(t *testing.T) {
	for name, silence := range map[string]func(w *World, n *node){
		"stopped": func(w *World, n *node) { n.pause(5 * time.Second) },
		"cut off": func(w *World, n *node) {
			w.cutOff(n.id)
			w.after(5*time.Second, func() { w.net.heal(w.now) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			worst := time.Duration(0)
			for seed := uint64(1); seed <= 30; seed++ { // in some, time-outs end at one moment
				synctest.Test(t, func(t *testing.T) {
					r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: representative, script: func(w *World) {
						w.lay()
						w.found()
						w.pass(20 * time.Second) // leaderships are transferred to where they belong
						victim := w.leader(timer.ShardID(seed % 3))
						if victim == nil {
							t.Fatalf("seed %d: nobody leads", seed)
						}
						var led []timer.ShardID
						for id := timer.ShardID(0); int(id) <= w.shards(); id++ {
							if w.leader(id) == victim {
								led = append(led, id)
							}
						}
						silence(w, victim)
						began := w.now
						for _, id := range led {
							if !w.passUntil(began+silenceLimit-w.now, func() bool { n := w.leader(id); return n != nil && n != victim }) {
								t.Errorf("seed %d: group %d has no other leader after %v", seed, id, w.now-began)
							}
						}
						worst = max(worst, w.now-began)
						w.pass(20 * time.Second)
						if !w.passUntil(time.Minute, w.agreed) {
							t.Errorf("seed %d: %s", seed, w.describe())
						}
					}})
					if r.Err != nil {
						t.Errorf("seed %d: %v", seed, r.Err)
					}
				})
			}
			t.Logf("after at most %v", worst)
		})
	}
}
