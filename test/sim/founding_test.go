package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/ring"
	"carillon/timer"
)

// TestFounderThatIsLate: a founder loses its power before it has heard of the first assignments,
// and is told to drain, so its replicas are moved without it. Whenever it comes back, it must make
// the replicas that it founded and leave them properly: others may still count on it (I14).
func TestFounderThatIsLate(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	moved, leaving := 0, 0
	for seed := uint64(1); seed <= 12; seed++ {
		synctest.Test(t, func(*testing.T) {
			r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
				representative(p)
				p.nodes, p.replicas, p.shards = 4, 3, 4
			}, script: func(w *World) {
				w.lay()
				w.after(0, func() { w.strikeFounder(&moved, &leaving) })
				w.found()
				w.employ()
				w.pass(3 * time.Second)
				w.conclude()
			}})
			if r.Err != nil {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		})
	}
	if moved == 0 || leaving == 0 {
		t.Errorf("%d rows were moved on while their founder was away, %d were just being moved when it came back", moved, leaving)
	}
}

// strikeFounder waits until the meta group's leader knows of the cluster, and stops a node that
// does not. It counts the assignments that are changed meanwhile, and those that this node has yet
// to leave.
func (w *World) strikeFounder(moved, leaving *int) {
	leader := w.metaLeader()
	if leader == nil || leader.state.Version() == 0 {
		w.after(50*time.Microsecond, func() { w.strikeFounder(moved, leaving) })
		return
	}
	at := slices.IndexFunc(w.nodes, func(n *node) bool { return n != leader && n.state != nil && n.state.Version() == 0 })
	if at < 0 {
		return
	}
	late := w.nodes[at]
	late.held = true
	late.stop(true)
	w.setState(leader, late, ring.NodeDraining)
	w.after(w.chance.between(500*time.Millisecond, 4*time.Second), func() {
		for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
			row, _ := leader.state.Row(id)
			*moved += int(b2u(row.Epoch > 1))
			*leaving += int(b2u(slices.ContainsFunc(row.Leaving, func(r ring.Replica) bool { return r.Node == late.id })))
		}
		late.held = false
		late.start()
	})
}
