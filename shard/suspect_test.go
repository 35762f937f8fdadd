package shard

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// TestSuspectSnapshotsAreNotSent: a snapshot that may hold a wrong state is offered to no follower,
// refills no replica and is in no backup. A message that names it fails. A new one is made instead.
func TestSuspectSnapshotsAreNotSent(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		g := r.host.groups[1]
		r.fill(8)
		r.pass(time.Second)
		g.wantSnapshot = true
		r.pass(time.Second)
		named, err := g.offerSnapshot()
		if err != nil {
			t.Fatalf("no snapshot is offered: %v", err)
		}
		g.files.suspect, g.wantSnapshot = g.files.newest, false // as takeRefill does
		if _, err := g.offerSnapshot(); !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) || !g.wantSnapshot {
			t.Errorf("it is offered (%v), another one is made: %v", err, g.wantSnapshot)
		}
		g.wantSnapshot = false
		m := &pb.Message{Type: pb.MsgSnap.Enum(), From: new(g.replica), To: new(uint64(1)), Snapshot: named}
		if _, err := g.streamSnapshot(m, true, func(int64, error) {}); !errors.Is(err, errSuspect) || !g.wantSnapshot {
			t.Errorf("it is sent: %v", err)
		}
		g.wantSnapshot = false
		g.refills = []refillRequest{{replica: g.replica, least: 1, until: g.w.now.Mono + refillKept}}
		g.tickRefills()
		if len(g.refills) != 1 || g.refills[0].sending || !g.wantSnapshot {
			t.Errorf("it refills: %+v", g.refills)
		}
		g.refills = nil
		r.pass(time.Second)
		if _, err := g.offerSnapshot(); err != nil || g.files.suspect != 0 {
			t.Errorf("the new snapshot is not offered: %v", err)
		}
	})
}
