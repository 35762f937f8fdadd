package shard

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/wal"
)

// movedAway is a harness after an assignment removed its replica of shard 1, with a snapshot.
// begin runs right before the removal.
func movedAway(t *testing.T, begin func(r *hostHarness, c *fakePeers), then func(r *hostHarness)) {
	synctest.Test(t, func(t *testing.T) {
		r, c := withFakePeers(t, false, smallLog)
		r.bubble = true
		c.leads()
		r.fill(8)
		r.snapshots()
		if len(r.snapshotFiles(1)) == 0 {
			t.Fatal("no snapshot was written")
		}
		begin(r, c)
		r.host.Place([]Assignment{{Group: 1, Epoch: 2, Settled: true, Members: []Member{{Node: 8, Replica: ReplicaID(8, 1)}, {Node: 9, Replica: ReplicaID(9, 1)}}}})
		r.runIdle()
		if r.host.group(1).id != 0 {
			t.Fatal("the replica is there")
		}
		then(r)
		r.abort()
	})
}

// untilSnapshotFiles advances time until the shard has the wanted number of snapshot files.
func (h *hostHarness) untilSnapshotFiles(want int, limit time.Duration) {
	h.t.Helper()
	for end := h.clock.mono + limit; len(h.snapshotFiles(1)) != want; h.pass(time.Second) {
		synctest.Wait()
		if h.clock.mono >= end {
			h.t.Fatalf("after %s there are %d snapshot files, want %d", limit, len(h.snapshotFiles(1)), want)
		}
	}
}

// TestSnapshotThatComesTooLateGoes: a received snapshot is deleted if its replica was removed
// meanwhile.
func TestSnapshotThatComesTooLateGoes(t *testing.T) {
	var in *Incoming
	state := image(table.New(1, 0))
	movedAway(t, func(r *hostHarness, _ *fakePeers) {
		g := r.host.group(1)
		tbl := table.New(1, 0)
		m := &pb.Message{Type: pb.MsgSnap.Enum(), From: new(ReplicaID(8, 1)), To: new(g.id), Term: new(g.term + 1),
			Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(g.applied + 1000), Term: new(g.term + 1), ConfState: g.store.Conf}}}
		var err error
		if in, err = r.host.Receive(8, appendTransferHeader(nil, &transferHeader{group: 1, message: m, hash: tbl.Hash(), epoch: 1}), int64(len(state))); err != nil {
			t.Fatal(err)
		}
	}, func(r *hostHarness) {
		r.untilSnapshotFiles(0, 10*time.Second)
		if _, err := in.Write(state); err != nil {
			r.t.Fatal(err)
		}
		if err := in.Commit(); err != nil {
			r.t.Fatal(err)
		}
		if len(r.snapshotFiles(1)) != 1 {
			r.t.Fatal("it has not come")
		}
		r.untilSnapshotFiles(0, 10*time.Second)
	})
}

// TestLeftoversAreTriedAgain: files that could not be deleted are deleted later, without a restart.
func TestLeftoversAreTriedAgain(t *testing.T) {
	movedAway(t, func(r *hostHarness, _ *fakePeers) {
		r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
			if op == memfs.OpRemove && strings.Contains(name, "snapshots/") {
				return errors.New("not now")
			}
			return nil
		})
	}, func(r *hostHarness) {
		r.pass(5 * time.Second)
		if len(r.snapshotFiles(1)) == 0 {
			r.t.Fatal("they are gone")
		}
		r.fs.SetHook(nil)
		r.untilSnapshotFiles(0, snapshotRetry+10*time.Second)
	})
}

// TestLeftoversOfAnEarlierReplica: a replica returns under another ID before the tombstone of the
// earlier one is on disk. The earlier replica's files are deleted, and the new replica's files
// stay.
func TestLeftoversOfAnEarlierReplica(t *testing.T) {
	movedAway(t, func(r *hostHarness, _ *fakePeers) { r.freeze = true }, func(r *hostHarness) {
		row := Assignment{Group: 1, Epoch: 3, Settled: true, Members: []Member{{Node: 7, Replica: ReplicaID(7, 3)}, {Node: 8, Replica: ReplicaID(8, 1)}}}
		r.host.Place([]Assignment{row})
		r.runIdle()
		g := r.host.group(1)
		if g.id != ReplicaID(7, 3) || len(r.snapshotFiles(1)) == 0 {
			r.t.Fatalf("replica %x", g.id)
		}
		own := wal.SnapshotMeta{Shard: 1, Index: 1 << 30, Term: 9, Conf: record.AppendMark(nil, record.Mark{Replica: g.id, Index: 1 << 30, Term: 9, Conf: &pb.ConfState{}})}
		w, err := wal.CreateSnapshot(r.fs, r.host.snapshotDir(), own)
		if err == nil {
			err = w.Commit()
		}
		if err != nil {
			r.t.Fatal(err)
		}
		r.freeze = false
		r.untilSnapshotFiles(1, 10*time.Second)
		r.pass(snapshotRetry + time.Second)
		if list := r.snapshotFiles(1); len(list) != 1 || list[0].Index != 1<<30 {
			r.t.Errorf("left: %+v", list)
		}
	})
}

// TestTombstoneOutlivesAStart: a replica took the place of an earlier one, the files of which
// cannot be deleted. A start keeps the tombstone, without which the next one takes these for the
// new replica's, and goes on as the earlier one.
func TestTombstoneOutlivesAStart(t *testing.T) {
	movedAway(t, func(r *hostHarness, _ *fakePeers) {
		r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
			if op == memfs.OpRemove && strings.Contains(name, "snapshots/00000001-") {
				return errors.New("not now")
			}
			return nil
		})
	}, func(r *hostHarness) {
		id := ReplicaID(7, 3)
		row := Assignment{Group: 1, Epoch: 3, Settled: true, Members: []Member{{Node: 7, Replica: id}, {Node: 8, Replica: ReplicaID(8, 1)}}}
		r.host.Place([]Assignment{row})
		r.runIdle()
		for range 3 {
			if g := r.host.group(1); g.id != id {
				r.t.Fatalf("replica %x, want %x", g.id, id)
			}
			r.kill()
			if err := r.open(); err != nil {
				r.t.Fatal(err)
			}
			meta := r.host.group(Meta)
			r.take(meta)
			meta.files.DropOlder()
			for range 10 {
				for range 40 {
					meta.w.mark(meta) // fills the log
					meta.w.rewriteMarker(r.host.group(1))
					r.runIdle()
				}
				synctest.Wait()
				r.pass(time.Second)
				if err := r.host.Housekeep(); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		if g := r.host.group(1); g.id != id {
			r.t.Fatalf("replica %x, want %x", g.id, id)
		}
	})
}

// TestReturnedReplicaLetsTheLogGo: a replica that takes the place of an earlier one on the same node
// does not keep the log from the earlier one's tombstone on.
func TestReturnedReplicaLetsTheLogGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHostCluster(t, 3, []int{0, 1, 2}, smallLog, func(cfg *Config) { cfg.SnapshotLogBytes = 32 << 10 })
		defer c.end()
		c.takes(5 * time.Second)
		back := c.at(false)
		c.replace(back)
		g, r := c.shard(back), c.hosts[back]
		before := r.host.stream.Generation()
		for n := 0; r.host.stream.Generation() < before+20; n++ {
			c.bulkyAdd(n%50, 500)
			c.tick()
		}
		for range 100 { // its snapshots are written
			synctest.Wait()
			c.add()
			c.tick()
		}
		if oldest := g.files.Needed(); oldest <= before {
			t.Errorf("the log is at generation %d and is kept from %d on, as when it came back at %d: snapshots of %d and %d", r.host.stream.Generation(), oldest, before, g.files.Older(), g.files.Newest.Index)
		}
	})
}
