package shard

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/vfs"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/wal"
)

// fakeShortages reports to a harness what other nodes lack.
type fakeShortages struct {
	low   []timer.LowDiskError
	tight []uint64
}

func (s *fakeShortages) LowDisks() []timer.LowDiskError { return s.low }
func (s *fakeShortages) Tight() []uint64                { return s.tight }

// TestLowDiskOfAVoter: a leader refuses adds to shards with a voter on a low disk. The error names
// the node and its free space. Everything else continues. The disk of a node without a replica does
// not matter.
func TestLowDiskOfAVoter(t *testing.T) {
	disks := &fakeShortages{}
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Shortages = disks })
	c.leads()
	r.add("goes", time.Hour)
	add := func() error {
		r.pass(2 * tickInterval)
		_, err := r.try(timer.Command{Kind: timer.Add, ID: "x", Spec: &timer.Spec{DueMs: r.clock.wallMs + 3_600_000}})
		return err
	}
	for node := uint64(7); node <= 10; node++ {
		disks.low = []timer.LowDiskError{{Node: 99}, {Node: node, Name: "n2", Path: "/var/lib/carillon", Free: 195 << 20, Limit: 256 << 20}}
		err := add()
		var low timer.LowDiskError
		switch {
		case node == 10: // it has no replica
			if err != nil {
				t.Errorf("the disk of a stranger is low: %v", err)
			}
		case !errors.Is(err, timer.ErrLowDisk) || !errors.As(err, &low) || low.Node != node:
			t.Errorf("the disk of voter %d is low: %v", node, err)
		case err.Error() != "n2 has 195 MiB free, and adds are refused at 256 MiB or less (/var/lib/carillon)":
			t.Errorf("it says %q", err)
		}
	}
	disks.low = []timer.LowDiskError{{Node: 8}}
	if err := add(); err == nil || !strings.Contains(err.Error(), "node 0000000008 has 0 KiB free") {
		t.Errorf("without a name: %v", err)
	}
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "goes"}); got.Code != timer.Prevented {
		t.Errorf("cancel: %v", got.Code)
	}
	disks.low = nil
	if err := add(); !errors.Is(err, nil) {
		t.Errorf("the disk is well again: %v", err)
	}
}

// TestSnapshotsLeaveRoomForTheLog: the limit for adds includes the size of the next snapshot. No
// snapshot is begun, or received from another node, without room for it next to the log.
func TestSnapshotsLeaveRoomForTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	bubbleHarness(t, func(c *Config) { smallLog(c); c.Log.LowDiskBytes = 1 << 20 }, func(r *hostHarness) {
		spec := timer.Spec{DueMs: 1 << 41, Payload: []byte(strings.Repeat("x", 1000))}
		g := r.host.group(1)
		for n := 0; g.machine.bytes() < 2<<20; n++ {
			r.do(timer.Command{Kind: timer.Add, ID: fmt.Sprint("t", n), Spec: &spec})
		}
		r.snapshots()
		newest := g.files.Newest.Index
		if newest == 0 {
			t.Fatal("no snapshot was written while there was room")
		}
		r.snapshots()
		if limit := r.host.stream.Disk().Limit; limit < 3<<20 {
			t.Errorf("with a state of 2 MiB adds are refused at %d bytes", limit)
		}
		r.fs.SetFree(2 << 20) // room for the log, but not for a snapshot
		for n := range 400 {
			r.do(timer.Command{Kind: timer.Modify, ID: fmt.Sprint("t", n), Patch: &timer.Patch{Spec: spec, Payload: true}})
		}
		r.snapshots()
		if g.files.Newest.Index != newest || g.files.failedAt == 0 || len(r.snapshotFiles(1)) > 2 {
			t.Errorf("a snapshot was begun for which there is no room: %d then %d, failed at %v, %d files", newest, g.files.Newest.Index, g.files.failedAt, len(r.snapshotFiles(1)))
		}
		ship := &transferHeader{group: 1, message: &pb.Message{Type: pb.MsgSnap.Enum(), From: new(uint64(8 << 24)), To: new(r.host.cfg.Node << 24), Snapshot: &pb.Snapshot{}}}
		if _, err := r.host.Receive(8, appendTransferHeader(nil, ship), 2<<20); err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("a snapshot from another node: %v", err)
		}
		r.fs.SetCapacity(0)
		r.snapshots()
		if g.files.Newest.Index == newest {
			t.Error("there is room, and no snapshot is written")
		}
	})
}

// TestSnapshotGivesUpWithoutRoom: a snapshot is abandoned if the disk fills while it is written.
func TestSnapshotGivesUpWithoutRoom(t *testing.T) {
	fs := memfs.New()
	w, err := wal.CreateSnapshot(fs, "snap", wal.SnapshotMeta{Shard: 1, Index: 1, Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	fs.SetCapacity(32 << 20)
	w.KeepFree(8 << 20)
	for err == nil {
		_, err = w.Write(make([]byte, 256<<10))
	}
	if free, _ := fs.Free("snap"); !vfs.IsFull(err) || free < 3<<20 {
		t.Fatalf("it ends with %d bytes free: %v", free, err)
	}
	w.Abort()
	if free, _ := fs.Free("snap"); free != 32<<20 {
		t.Errorf("%d bytes are free when it is given up", free)
	}
}

// TestStateOnAFullDisk: where the disk has no room for the snapshot of which a backup is made, the
// backup is told so at once. With room the same request is answered.
func TestStateOnAFullDisk(t *testing.T) {
	r := newHostHarness(t, func(cfg *Config) { cfg.Name = "n1" })
	r.add("first", time.Hour)
	index := r.confirm()
	r.fs.SetFree(1 << 20)
	var err error
	r.blocking(func() { _, err = r.host.OpenState(1, index) })
	if low, _ := errors.AsType[timer.LowDiskError](err); low.Name != "n1" || low.Path != "data" {
		t.Errorf("no room: %v", err)
	}
	r.fs.SetCapacity(0)
	s := r.openState(index)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r.fs.SetFree(1 << 20)
	if err := r.openState(index).Close(); err != nil {
		t.Errorf("the snapshot is there: %v", err)
	}
}

// TestFullDiskInATurnOfTheLog: the log finds no room for the name of its next segment, when the one
// before is sealed. The process continues: what it cannot make durable is not acknowledged, and
// with room all continues by itself.
func TestFullDiskInATurnOfTheLog(t *testing.T) {
	r := newHostHarness(t, nil)
	full := false
	r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
		if full && op == memfs.OpRename && strings.HasPrefix(name, "data/wal/") {
			return fmt.Errorf("%w: %w", syscall.ENOSPC, vfs.ErrNoInodes)
		}
		return nil
	})
	add := func(i int) (*pending, error) {
		return r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("t", i), Spec: &timer.Spec{DueMs: r.clock.wallMs + 3_600_000,
			Payload: make([]byte, 300<<10), PayloadKind: timer.BinaryPayload}})
	}
	full = true
	var waiting []*pending
	for i := 0; !r.host.Full(); i++ {
		p, err := add(i)
		if err != nil || i > 50 {
			t.Fatalf("add %d: %v", i, err)
		}
		waiting = append(waiting, p)
		r.turn()
		r.turn()
	}
	for range 20 {
		r.step(time.Second)
		r.turn()
	}
	if err := errors.Join(r.failed, r.failure()); err != nil || !r.host.Full() {
		t.Fatalf("a full disk: %v, waits for room: %v", err, r.host.Full())
	}
	told := make(chan error, 1)
	go func() {
		_, err := r.host.OpenState(1, 1<<40)
		told <- err
	}()
	for len(told) == 0 {
		r.turn()
	}
	told <- errors.Join(<-told, r.host.group(1).timeoutError())
	if err := <-told; strings.Count(err.Error(), "the disk has no inodes left, and its log waits (data)") != 2 || !errors.Is(err, timer.ErrLowDisk) {
		t.Errorf("a backup and an add are told %v", err)
	}
	acked := 0
	for i, p := range waiting {
		switch {
		case p.answered() && p.op.err == nil:
			acked++
		case !p.answered() || !errors.Is(p.op.err, timer.ErrLowDisk) && !errors.Is(p.op.err, timer.ErrUnknown):
			t.Errorf("add %d is answered: %v, %v", i, p.answered(), p.op.err)
		}
	}
	if acked == len(waiting) || acked == 0 {
		t.Errorf("%d of %d adds are acknowledged", acked, len(waiting))
	}
	full = false
	r.step(time.Second)
	r.turn()
	r.pass(2 * time.Second)
	if p, err := add(99); err == nil {
		if r.runIdle(); r.host.Full() || !p.answered() || p.op.err != nil {
			t.Errorf("there is room: it waits: %v, an add: %v", r.host.Full(), p.op.err)
		}
	} else {
		t.Errorf("there is room: %v", err)
	}
	r.restart()
	if n := r.table().Totals().Scheduled; int(n) <= acked {
		t.Errorf("%d timers after a restart, %d adds and one more were acknowledged", n, acked)
	}
}
