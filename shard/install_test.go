package shard

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/test/memfs"
)

// entriesFrom delivers entries that node 8, the leader of a term, appends after an index. The
// entries are empty unless data is given.
func (p *fakePeers) entriesFrom(term, after, afterTerm uint64, count int, data ...byte) {
	m := &pb.Message{Type: pb.MsgApp.Enum(), From: new(ReplicaID(8, 1)), To: new(ReplicaID(7, 1)), Term: &term,
		Index: &after, LogTerm: &afterTerm, Commit: new(uint64(foundingIndex))}
	for i := range count {
		m.Entries = append(m.Entries, &pb.Entry{Index: new(after + 1 + uint64(i)), Term: &term, Data: data})
	}
	p.send(1, m)
}

// TestFramesAfterASnapshot: entries that a replica receives after it has installed a snapshot are
// on disk and acknowledged, also where they take several frames.
func TestFramesAfterASnapshot(t *testing.T) {
	const term, index, count = 6, 3, 20
	r, c := withFakePeers(t, true, func(cfg *Config) { cfg.FrameBytes = 2 << 10 })
	c.send(1, heartbeat(term))
	c.arrive(term, index)
	r.runIdle()
	if g := r.host.group(1); g.snapshots.installs == 0 || g.applied != index {
		t.Fatalf("%d snapshots were installed, applied is %d", g.snapshots.installs, g.applied)
	}
	r.freeze = true
	c.entriesFrom(term, index, term, count, make([]byte, 700)...)
	r.runIdle()
	if frames := len(r.host.workers[0].out.inflight); frames < 5 {
		t.Fatalf("%d frames are on their way", frames)
	}
	r.freeze = false
	r.pass(spareFor)
	if last := r.host.group(1).store.Last(); last != index+count || !c.acknowledged(index+count) {
		t.Errorf("the log ends at %d, want %d; acknowledged: %v", last, index+count, c.acknowledged(index+count))
	}
}

// TestSnapshotOvertakesAFrame: a replica installs a snapshot while older entries are being written
// to its disk. Those entries are void: the snapshot came from a leader that has others in their
// place. They were once logged after the snapshot, so that the replica voted with a log that lacked
// a committed entry, or the log had a gap, which is a panic.
func TestSnapshotOvertakesAFrame(t *testing.T) {
	for name, durable := range map[string]int{"stale entries": 0, "a gap": 5} {
		t.Run(name, func(t *testing.T) {
			const old, term, index = 5, 6, 3
			r, c := withFakePeers(t, true, nil)
			c.send(1, heartbeat(old))
			r.runIdle()
			after, afterTerm := uint64(foundingIndex), uint64(foundingTerm)
			if durable > 0 {
				c.entriesFrom(old, after, afterTerm, durable)
				r.pass(spareFor)
				after, afterTerm = after+uint64(durable), old
			}
			r.freeze = true
			c.entriesFrom(old, after, afterTerm, 6)
			after += 6
			r.pass(spareFor)
			if len(r.host.workers[0].out.inflight) == 0 {
				t.Fatal("no frame is on its way")
			}
			c.send(1, heartbeat(term))
			c.arrive(term, index)
			r.runIdle()
			c.sent = nil
			r.freeze = false
			r.runIdle()
			g := r.host.group(1)
			if g.applied != index || g.store.Last() != index || !c.acknowledged(index) {
				t.Errorf("applied %d, the log ends at %d, want %d", g.applied, g.store.Last(), index)
			}
			for _, m := range c.sent {
				if m.GetType() == pb.MsgAppResp && m.GetIndex() > index {
					t.Errorf("entry %d is acknowledged, which is void", m.GetIndex())
				}
			}
			c.sent = nil
			c.send(1, &pb.Message{Type: pb.MsgVote.Enum(), From: new(ReplicaID(9, 1)), To: new(ReplicaID(7, 1)), Term: new(uint64(term + 1)),
				Index: new(after), LogTerm: new(uint64(old)), Context: []byte("CampaignTransfer")})
			r.runIdle()
			for _, m := range c.sent {
				if m.GetType() == pb.MsgVoteResp && !m.GetReject() {
					t.Error("it votes for a log that lacks the snapshot's last entry, which is committed")
				}
			}
			r.kill()
			if err := r.open(); err != nil {
				t.Fatal(err)
			}
			if g := r.host.group(1); g.applied != index || g.store.Last() != index {
				t.Errorf("after a restart: applied %d, the log ends at %d, want %d", g.applied, g.store.Last(), index)
			}
		})
	}
}

// TestCrashBeforeASnapshotsMark: the process ends when a snapshot from a peer is on disk, and the
// log does not say so yet. The entries behind it in the log are void, because others are in their
// place: the next process says that in the log before anything else, so that the one after it does
// not take new entries for void ones.
func TestCrashBeforeASnapshotsMark(t *testing.T) {
	const old, term, index, more = 5, 6, 4, 3
	r, c := withFakePeers(t, true, nil)
	c.send(1, heartbeat(old))
	r.runIdle()
	c.entriesFrom(old, foundingIndex, foundingTerm, 8)
	r.pass(spareFor)
	if !c.acknowledged(foundingIndex + 8) {
		t.Fatal("the entries are not on disk")
	}
	r.freeze = true
	c.send(1, heartbeat(term))
	c.arrive(term, index)
	r.runIdle()
	restart := func(last uint64) {
		t.Helper()
		r.freeze = false
		r.kill()
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		if g := r.host.group(1); g.applied != index || g.store.Last() != last {
			t.Fatalf("applied %d, want %d; the log ends at %d, want %d", g.applied, index, g.store.Last(), last)
		}
		c.sent = nil
	}
	restart(index)
	restart(index)
	c.send(1, heartbeat(term))
	r.runIdle()
	c.entriesFrom(term, index, term, more)
	r.pass(spareFor)
	if !c.acknowledged(index + more) {
		t.Fatal("the entries after the snapshot are not acknowledged")
	}
	restart(index + more)
}

// TestSnapshotThatCannotBeReadBack: a snapshot arrives once more, and cannot be read back. The one
// of the same name that the log goes on from stays (1090371).
func TestSnapshotThatCannotBeReadBack(t *testing.T) {
	const term, index = 6, 4
	r, c := withFakePeers(t, true, nil)
	c.send(1, heartbeat(term))
	c.arrive(term, index)
	r.runIdle()
	c.entriesFrom(term, index, term, 3)
	r.pass(spareFor)
	r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
		if op == memfs.OpRead && strings.Contains(name, "snapshots/") {
			return syscall.EIO
		}
		return nil
	})
	if err := c.deliver(term, index); !errors.Is(err, syscall.EIO) {
		t.Errorf("the snapshot arrives: %v", err)
	}
	r.fs.SetHook(nil)
	r.runIdle()
	r.kill()
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	if g := r.host.group(1); g.applied != index || g.store.Last() != index+3 {
		t.Errorf("applied %d, want %d; the log ends at %d, want %d", g.applied, index, g.store.Last(), index+3)
	}
}

// TestDamagedSnapshotWithoutItsMark: the process ends when a snapshot from a peer is on disk, and
// the log does not name it yet. The next process acknowledges nothing of it before the log does.
// Otherwise damage to the file would take the replica back behind what it acknowledged, and no
// start would notice.
func TestDamagedSnapshotWithoutItsMark(t *testing.T) {
	const old, term, index = 5, 6, 9
	r, c := withFakePeers(t, true, nil)
	c.send(1, heartbeat(old))
	r.runIdle()
	c.entriesFrom(old, foundingIndex, foundingTerm, 3)
	r.pass(spareFor)
	r.freeze = true
	c.send(1, heartbeat(term))
	c.arrive(term, index)
	r.runIdle()
	r.kill()
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	c.sent = nil
	c.send(1, heartbeat(term))
	c.entriesFrom(term, index, term, 0)
	r.runIdle()
	if c.acknowledged(index) {
		t.Error("entries are acknowledged that only the file of a snapshot has")
	}
	r.freeze = false
	r.pass(spareFor)
	if !c.acknowledged(index) {
		t.Fatal("nothing is acknowledged: the test is about nothing")
	}
	r.kill()
	file := "data/snapshots/" + r.snapshotFiles(1)[0].Name
	if err := r.fs.Damage(file, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	if err := r.open(); !Damaged(err) {
		t.Errorf("it starts with entries up to %d, and acknowledged %d: %v", r.host.group(1).store.Last(), index, err)
	}
}

// TestSnapshotOvertakesTheCreation: a replica takes the place of an earlier one, and a snapshot
// from its leader arrives before its creation is on disk. It does not keep the log from the earlier
// one's tombstone on.
func TestSnapshotOvertakesTheCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const term, index = 6, 40
		r, c := withFakePeers(t, true, nil)
		r.bubble = true
		defer func() { r.abort() }()
		r.freeze = true
		row := r.rows[1]
		row.Epoch, row.Members = 2, append([]Member{{Node: 7, Replica: ReplicaID(7, 2)}}, row.Members[1:]...)
		r.host.Place([]Assignment{row})
		r.runIdle()
		c.arrive(term, index)
		r.runIdle()
		g := r.host.group(1)
		if g.id != ReplicaID(7, 2) || g.applied != index {
			t.Fatalf("replica %x, applied %d", g.id, g.applied)
		}
		r.freeze = false
		for range 100 {
			synctest.Wait()
			r.pass(tickInterval)
		}
		if g.files.restating {
			t.Error("its creation is being written")
		}
		g.files.Hard(5)
		if needed := g.files.Needed(); needed != 5 {
			t.Errorf("it keeps the log from generation %d on", needed)
		}
	})
}
