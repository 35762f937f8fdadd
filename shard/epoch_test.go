package shard

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestI8OrderOfAnOldEpochIsRefused: an entry that changes the members by a placement older than the
// one followed changes nothing. It may have been proposed before that one, by another leader. Nor
// does a leader propose by an older placement.
func TestI8OrderOfAnOldEpochIsRefused(t *testing.T) {
	r := newHostHarness(t, nil)
	r.runIdle()
	g := r.host.group(1)
	order := func(epoch, node uint64) []uint64 {
		t.Helper()
		replica := ReplicaID(node, uint32(epoch))
		err := g.raft.ProposeConfChange(&pb.ConfChangeV2{
			Context: binary.AppendUvarint(nil, epoch), Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: &replica}},
		})
		if err != nil {
			t.Fatal(err)
		}
		g.w.touchNext(g)
		r.pass(100 * time.Millisecond)
		return g.store.Conf.Learners
	}
	g.membership.row.Epoch = 0 // no assignment, so that the leader does not take back what the test orders
	if got := order(5, 8); !slices.Equal(got, []uint64{ReplicaID(8, 5)}) || g.membership.epoch != 5 {
		t.Fatalf("learners %x, epoch %d", got, g.membership.epoch)
	}
	if got := order(4, 9); !slices.Equal(got, []uint64{ReplicaID(8, 5)}) || g.membership.epoch != 5 {
		t.Errorf("after an order of epoch 4: learners %x, epoch %d", got, g.membership.epoch)
	}
	last := g.store.Last()
	g.membership.row = Assignment{Group: 1, Epoch: 4, Members: []Member{{Node: r.host.cfg.Node, Replica: g.id}}, Settled: true}
	r.pass(10 * reconcileEvery)
	if g.store.Last() != last || len(g.store.Conf.Learners) != 1 {
		t.Errorf("by the placement of epoch 4: %d entries after %d, learners %x", g.store.Last(), last, g.store.Conf.Learners)
	}
	g.membership.row.Epoch = 6
	r.pass(10 * reconcileEvery)
	if len(g.store.Conf.Learners) != 0 || g.membership.epoch != 6 {
		t.Errorf("by the placement of epoch 6: learners %x, epoch %d", g.store.Conf.Learners, g.membership.epoch)
	}
}
