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

// TestCrashAtANewPlace: a member learns that it has lost its place in the meta group and gets
// another, and crashes before its log has that. The next process has the old replica, and takes the
// new place all the same.
func TestCrashAtANewPlace(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
				representative(p)
				p.nodes = 4
			}, script: func(w *World) {
				w.lay()
				w.found()
				n := w.loseAPlace(t)
				n.hungUntil = w.now + time.Hour
				old := n.host.Progress(shard.Meta).Replica
				if !w.passUntil(time.Minute, func() bool { return n.host.Progress(shard.Meta).Replica > old }) {
					t.Fatalf("seed %d: it gets no other: %s", seed, w.describe())
				}
				n.stop(true)
				n.hungUntil = 0
				if !w.passUntil(time.Minute, w.agreed) {
					t.Errorf("seed %d: after the crash it gets no other: %s", seed, w.describe())
				}
			}})
			if r.Err != nil {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		})
	}
}

// loseAPlace removes one node's replica of the meta group without that node's knowledge, and
// returns the node.
func (w *World) loseAPlace(t *testing.T) *node {
	row, _ := w.metaLeader().state.Row(shard.Meta)
	at := slices.IndexFunc(row.Replicas, func(r ring.Replica) bool { return r.Learner })
	w.cutOff(row.Replicas[at].Node)
	w.takePlace(t, row.Replicas[at].Node)
	w.net.heal(w.now)
	return w.node(row.Replicas[at].Node)
}

// cutOff cuts a node off from all others.
func (w *World) cutOff(node uint64) {
	for _, n := range w.nodes {
		if n.id != node {
			w.net.cut[[2]uint64{n.id, node}], w.net.cut[[2]uint64{node, n.id}] = true, true
		}
	}
}

// takePlace removes a node's replica of the meta group. A node that was heard lately gets another
// one at once.
func (w *World) takePlace(t *testing.T, id uint64) {
	leader := w.metaLeader()
	row, _ := leader.state.Row(shard.Meta)
	lost, _ := row.Replica(id)
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
}

// TestMemberWithAnEmptyCopy: a member is cut off when it has been told its first place in the meta
// group, and has no entry of it yet. The meta group gives the place up. The member's next process
// knows no other member by its own copy of the cluster's state, and is one again all the same.
func TestMemberWithAnEmptyCopy(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: representative, script: func(w *World) {
				w.lay()
				w.found()
				fresh := w.newNode("n4")
				w.join(fresh)
				for end := w.now + time.Minute; fresh.self.Identity().Meta == nil; w.pass(100 * time.Microsecond) {
					if w.now > end { // looked at so often that no entry comes before the cut
						t.Fatalf("seed %d: it gets no place: %s", seed, w.describe())
					}
				}
				w.cutOff(fresh.id)
				fresh.held = true
				fresh.stop(true)
				w.pass(6 * time.Second) // it is not heard any more
				w.takePlace(t, fresh.id)
				fresh.held = false
				fresh.start()
				if fresh.state != nil && len(fresh.state.Nodes()) > 0 {
					t.Fatalf("seed %d: it knows other members", seed)
				}
				w.net.heal(w.now)
				if !w.passUntil(20*time.Second, func() bool { return w.agreed() && len(fresh.state.Nodes()) == len(w.nodes) }) {
					t.Errorf("seed %d: it is no member: %s", seed, w.describe())
				}
			}})
			if r.Err != nil {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		})
	}
}
