package sim

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/ring"
	"carillon/shard"
)

// TestMemberThatLostItsPlace: the meta group gives up the replica of a member that is cut off, as
// it does with one that goes silent while it joins, and assigns it another one later. The member
// can learn of that only by asking, because its copy of the cluster's state no longer gets entries.
func TestMemberThatLostItsPlace(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
				representative(p)
				p.nodes = 4
			}, script: func(w *World) {
				w.lay()
				w.found()
				w.loseAPlace(t)
				if !w.passUntil(time.Minute, w.agreed) {
					t.Errorf("seed %d: it gets no other: %s", seed, w.describe())
				}
			}})
			if r.Err != nil {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		})
	}
}

// loseAPlace removes one node's replica of the meta group without that node's knowledge.
func (w *World) loseAPlace(t *testing.T) {
	leader := w.metaLeader()
	row, _ := leader.state.Row(shard.Meta)
	at := slices.IndexFunc(row.Replicas, func(r ring.Replica) bool { return r.Learner })
	lost := row.Replicas[at]
	for _, n := range w.nodes {
		if n.id != lost.Node {
			w.net.cut[[2]uint64{n.id, lost.Node}], w.net.cut[[2]uint64{lost.Node, n.id}] = true, true
		}
	}
	others := slices.DeleteFunc(slices.Clone(row.Replicas), func(r ring.Replica) bool { return r == lost })
	w.operator(leader, func(ctx context.Context, n *node) error {
		_, err := n.member.Propose(ctx, ring.Command{Verb: ring.Place, Group: shard.Meta, Epoch: row.Epoch, To: others})
		return err
	}, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	w.pass(3 * time.Second)
	if row, _ := leader.state.Row(shard.Meta); slices.Contains(row.Replicas, lost) {
		t.Fatal("it has its place still")
	}
	w.net.heal(w.now)
}
