package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/ring"
	"carillon/shard"
)

// TestFounderThatIsLate: a founder loses its power before it has heard of the rows, and while it still counts as alive it is told to drain: its rows are moved on. Both
// replicas of a shard are needed for that, so once it is back it has to make one that is to leave (I14). Before, it did not, and the shard had no
// leader for ever.
func TestFounderThatIsLate(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		moved := 0
		synctest.Test(t, func(*testing.T) {
			r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
				representative(p)
				p.replicas, p.shards = 2, 4
			}, script: func(w *World) {
				w.lay()
				w.after(0, func() { w.strikeFounder(&moved) })
				w.found()
				w.employ()
				w.pass(3 * time.Second)
				w.conclude()
			}})
			if r.Err != nil {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		})
		if moved == 0 {
			t.Errorf("seed %d: no row was moved on while its founder was away", seed)
		}
	}
}

// strikeFounder waits until the meta group's leader knows of the cluster, and stops a node that does not. It counts the rows that this one is to leave.
func (w *World) strikeFounder(moved *int) {
	leader := w.metaLeader()
	if leader == nil || leader.state.Version() == 0 {
		w.after(50*time.Microsecond, func() { w.strikeFounder(moved) })
		return
	}
	at := slices.IndexFunc(w.nodes, func(n *node) bool { return n != leader && n.state.Version() == 0 })
	if at < 0 {
		return
	}
	late := w.nodes[at]
	late.held = true
	late.stop(true)
	w.setState(leader, late, ring.NodeDraining)
	w.after(4*time.Second, func() {
		for id := shard.ID(1); int(id) <= w.swarm.shards; id++ {
			row, _ := leader.state.Row(id)
			*moved += int(b2u(slices.ContainsFunc(row.Leaving, func(r ring.Replica) bool { return r.Node == late.id })))
		}
		late.held = false
		late.restart()
	})
}
