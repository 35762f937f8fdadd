package shard

import (
	"testing"
	"testing/synctest"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/test/memfs"
)

// TestUnappliedLogKeepsItsBeginning: a replica has entries, and has applied none of them since its
// leader is gone. It keeps its creation record before them, however long the logs of the other
// groups become.
func TestUnappliedLogKeepsItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := makeHarness(t, memfs.New(), nil)
		r.bubble = true
		c := &fakePeers{r: r, mute: true}
		r.change = func(cfg *Config) {
			smallLog(cfg)
			cfg.Peers = c
		}
		row := Assignment{Group: 1, Epoch: 1, Settled: true}
		for node := uint64(7); node <= 9; node++ {
			row.Members = append(row.Members, Member{Node: node, Replica: ReplicaID(node, 1)})
		}
		r.rows = append(soleRows(1, 7), row)
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		defer func() { r.abort() }()
		r.fillMeta(1) // later records are not in the generation of its creation
		c.send(1, &pb.Message{
			Type: pb.MsgApp.Enum(), From: new(ReplicaID(8, 1)), To: new(ReplicaID(7, 1)), Term: new(uint64(2)),
			Index: new(uint64(foundingIndex)), LogTerm: new(uint64(foundingTerm)), Commit: new(uint64(foundingIndex)),
			Entries: []*pb.Entry{{Type: pb.EntryNormal.Enum(), Index: new(uint64(foundingIndex + 1)), Term: new(uint64(2))}},
		})
		r.runIdle()
		has := func() bool {
			g := r.host.group(1)
			return g.id == ReplicaID(7, 1) && g.applied == foundingIndex && g.store.Last() == foundingIndex+1
		}
		if !has() {
			t.Fatal("the entry has not arrived")
		}
		for range 6 {
			r.fillMeta(6)
			r.snapshots()
		}
		r.kill()
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		if !has() {
			t.Fatal("the entry is gone")
		}
	})
}
