package shard

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"carillon/test/memfs"
	"carillon/timer"
	"carillon/wal"
)

// smallLog sets generations of 16 KiB, so that a few hundred changes fill several.
func smallLog(c *Config) { c.Log.GenBytes, c.Log.SegmentBytes = 16<<10, 4<<10 }

// fill makes changes until the log has the given number of generations more.
func (h *hostHarness) fill(generations uint64) {
	h.t.Helper()
	for to, n := h.host.stream.Generation()+generations, 0; h.host.stream.Generation() < to; n++ {
		h.do(timer.Command{Kind: timer.Put, ID: fmt.Sprint("fill", n%50), Spec: &timer.Spec{DueMs: 1 << 41, Payload: []byte(strings.Repeat("x", 500))}})
	}
}

// snapshots advances time until every group has written its snapshots, and drops the log
// generations that are no longer needed.
func (h *hostHarness) snapshots() {
	h.t.Helper()
	h.pass(dropOlderAfter + time.Second)
	if err := h.host.Housekeep(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hostHarness) oldest() uint64 { return h.host.stream.Generations()[0].Gen }

func (h *hostHarness) snapshotFiles(id timer.ShardID) []wal.SnapshotInfo {
	h.t.Helper()
	all, err := wal.Snapshots(h.fs, h.host.snapshotDir())
	if err != nil {
		h.t.Fatal(err)
	}
	var list []wal.SnapshotInfo
	for _, s := range all {
		if s.Shard == uint32(id) {
			list = append(list, s)
		}
	}
	return list
}

// TestI12SnapshotAndLog: the state recovered from a snapshot and the rest of the log equals the
// live state, and old generations are deleted.
func TestI12SnapshotAndLog(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("kept", time.Hour)
		r.fill(12)
		r.snapshots()
		if n := len(r.snapshotFiles(1)); n == 0 || r.observer.snapshots == 0 {
			t.Fatalf("%d snapshots", n)
		}
		r.fill(6)
		r.snapshots()
		if r.oldest() == 1 {
			t.Error("the first generation is still there")
		}
		r.add("later", time.Hour)
		live := r.table().Hash()
		r.kill()
		r.freeze = true
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		r.freeze = false
		r.runIdle()
		r.wantState("kept", "scheduled 0")
		r.wantState("later", "scheduled 0")
		// The takeover and a canary follow the live state. So compare with the next process of the
		// same host.
		if r.table().Hash() == live {
			t.Error("no takeover")
		}
		r.audit()
	})
}

// TestI12Hash: recovery with and without snapshots gives the same state.
func TestI12Hash(t *testing.T) {
	bubbleHarness(t, func(c *Config) { c.Log.GenBytes, c.Log.SegmentBytes = 64<<10, 16<<10 }, func(r *hostHarness) {
		r.fill(3)
		w := r.host.workers[0]
		w.beginSnapshot(r.host.group(1))
		for n := 0; w.snapshot != nil; n++ {
			r.do(timer.Command{Kind: timer.Put, ID: fmt.Sprint("while", n), Spec: &timer.Spec{DueMs: 1 << 41}})
			r.pass(tickInterval)
		}
		r.fill(1)
		with := makeHarness(t, r.fs.CrashClone(calm{}, zeroLoss), r.change)
		without := makeHarness(t, r.fs.CrashClone(calm{}, zeroLoss), r.change)
		for _, s := range r.snapshotFiles(1) {
			if err := without.fs.Remove(r.host.snapshotDir() + "/" + s.Name); err != nil {
				t.Fatal(err)
			}
		}
		var hashes []uint64
		for _, s := range []*hostHarness{with, without} {
			s.starts, s.clock, s.freeze = 1, r.clock, true
			if err := s.open(); err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, s.table().Hash())
			if with == s && s.host.group(1).files.Newest.Index == 0 {
				t.Error("the snapshot was not used")
			}
		}
		if hashes[0] != hashes[1] {
			t.Errorf("hash %x with the snapshot, %x from the log alone", hashes[0], hashes[1])
		}
	})
}

// TestLoadersGiveOneState: every group recovers the same state with any number of goroutines, and
// with or without a damaged newest snapshot.
func TestLoadersGiveOneState(t *testing.T) {
	const shards = 5
	bubbleHarness(t, func(c *Config) { smallLog(c); c.Shards = shards }, func(r *hostHarness) {
		at := func(n int) timer.ShardID { return timer.ShardID(1 + n%shards) }
		for to, n := r.host.stream.Generation()+20, 0; r.host.stream.Generation() < to; n++ {
			r.host.Submit(at(n), &timer.Command{Kind: timer.Put, Topic: 1, ID: fmt.Sprint("some", n%50), Spec: &timer.Spec{DueMs: 1 << 41, Payload: []byte(strings.Repeat("x", 500))}}, true,
				func(_ timer.Result, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			r.runIdle()
			if n%100 == 0 {
				r.pass(time.Second)
			}
		}
		list := r.snapshotFiles(3)
		if len(list) < 2 {
			t.Fatalf("%d snapshots", len(list))
		}
		r.kill()
		for _, damage := range []bool{false, true} {
			if damage {
				if err := r.fs.FlipBit(r.host.snapshotDir()+"/"+list[0].Name, list[0].Bytes*4); err != nil {
					t.Fatal(err)
				}
			}
			var want string
			for _, loaders := range []int{1, 2, 3, shards + 1} {
				s := makeHarness(t, r.fs.CrashClone(calm{}, zeroLoss), func(c *Config) { r.change(c); c.Loaders = loaders })
				s.starts, s.clock, s.freeze = 1, r.clock, true
				if err := s.open(); err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, g := range s.host.all() {
					f := &g.files.Log
					got += fmt.Sprintln(g.shard, g.applied, g.appliedTerm, f.Needed(), f.Newest.Index, f.Older(), f.Bytes(), g.written.hard, g.store.Last())
					if tbl := s.host.Table(g.shard); tbl != nil {
						got += fmt.Sprintf("%x %x\n", tbl.Hash(), image(tbl))
					}
				}
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%d loaders, damage %v: another state than with one", loaders, damage)
				}
				if said := strings.Contains(s.log.String(), list[0].Name); said != damage {
					t.Errorf("%d loaders: the damaged file is named: %v, want %v", loaders, said, damage)
				}
			}
		}
	})
}

// TestRestartReadsLittleLog: with many writes and few pending timers, the log keeps only the
// current generation and the one before it. So the time of a restart does not grow with the node's
// uptime.
func TestRestartReadsLittleLog(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	small := func(c *Config) { c.Log.GenBytes, c.Log.SegmentBytes = 1<<20, 64<<10 }
	bubbleHarness(t, small, func(r *hostHarness) {
		for round := range 20 {
			r.fill(1)
			r.snapshots()
			if n := len(r.host.stream.Generations()); n > 2 {
				t.Errorf("after %d generations there are still %d", round, n)
			}
		}
		if n := r.observer.snapshots; n > 2*20+4 {
			t.Errorf("%d snapshots of 2 groups in 20 generations", n)
		}
	})
}

// TestDamagedSnapshot: the previous snapshot and the log replace a damaged newest one. Without them
// the host refuses to start.
func TestDamagedSnapshot(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("first", time.Hour)
		r.fill(8)
		r.snapshots()
		r.fill(8)
		r.snapshots()
		r.add("last", time.Hour)
		list := r.snapshotFiles(1)
		if len(list) != 2 || r.oldest() == 1 {
			t.Fatalf("%d snapshots, log from generation %d", len(list), r.oldest())
		}
		r.kill()
		damage := func(s wal.SnapshotInfo) {
			if err := r.fs.FlipBit(r.host.snapshotDir()+"/"+s.Name, s.Bytes*4); err != nil {
				t.Fatal(err)
			}
		}
		damage(list[0])
		r.mustOpen()
		if r.log.Len() == 0 || !strings.Contains(r.log.String(), list[0].Name) {
			t.Errorf("the log does not name the damaged file: %s", r.log.String())
		}
		r.wantState("first", "scheduled 0")
		r.wantState("last", "scheduled 0")
		r.audit()
		r.kill()
		damage(list[1])
		if err := r.open(); err == nil {
			t.Error("it starts without a snapshot that is whole")
		}
	})
}

// TestDamagedSnapshotOfIdleShard: if the log has no entries after a damaged snapshot, an older
// snapshot must not be taken for the state.
func TestDamagedSnapshotOfIdleShard(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		g := r.host.group(1)
		r.add("first", time.Hour)
		r.take(g)
		r.add("second", time.Hour)
		r.take(g)
		shardOf(g).canary.next = 1 << 62 // idle from here on
		if g.files.Newest.Index != g.applied {
			t.Fatalf("snapshot at %d of %d", g.files.Newest.Index, g.applied)
		}
		r.fillMeta(8)
		r.snapshots()
		if g.files.Older() != g.files.Newest.Index || r.oldest() == 1 {
			t.Fatalf("older %d, newest %d, log from generation %d: it still pins the log", g.files.Older(), g.files.Newest.Index, r.oldest())
		}
		list := r.snapshotFiles(1)
		r.kill()
		if err := r.fs.FlipBit(r.host.snapshotDir()+"/"+list[0].Name, list[0].Bytes*4); err != nil {
			t.Fatal(err)
		}
		if err := r.open(); err == nil {
			t.Errorf("it starts; timer second is %s", r.state("second"))
		}
	})
}

// TestIdleShardKeepsItsOlderSnapshotAtAStart: when its snapshots were made is not known after a
// start. A group that has no new entries yet must not give up the older one at once.
func TestIdleShardKeepsItsOlderSnapshotAtAStart(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		g := r.host.group(1)
		for _, id := range []string{"first", "second"} {
			r.add(id, time.Hour)
			r.take(g)
		}
		r.fillMeta(8)
		r.kill()
		r.pass(time.Hour)
		r.mustOpen()
		g = r.host.group(1)
		g.w.now.Mono = r.host.cfg.Clock.Mono()
		g.applied = g.files.Newest.Index // as before the entry of the new leader
		g.w.tickFiles(g)
		if g.files.Older() == g.files.Newest.Index || g.files.Needed()+1 >= g.w.stream.Generation() {
			t.Errorf("older %d, newest %d; it needs generation %d of %d", g.files.Older(), g.files.Newest.Index, g.files.Needed(), g.w.stream.Generation())
		}
	})
}

// TestDamagedNewestSnapshot: a group whose newest snapshot was found to be damaged makes another,
// until one succeeds, and keeps the older one, and the log from there on, all the while and with
// the new one, too.
func TestDamagedNewestSnapshot(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		g := r.host.group(1)
		for _, id := range []string{"first", "second"} {
			r.add(id, time.Hour)
			r.take(g)
		}
		shardOf(g).canary.next = 1 << 62 // idle from here on
		older, newest := g.files.Older(), g.files.Newest.Index
		r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
			if op == memfs.OpCreate && strings.Contains(name, "snapshots/00000001-") {
				return syscall.EIO
			}
			return nil
		})
		g.w.box.post(&damagedSnapshot{g, newest, errors.New("a flipped bit")})
		r.runIdle()
		r.fillMeta(8)
		r.pass(2 * max(snapshotRetry, dropOlderAfter))
		if err := r.host.Housekeep(); err != nil {
			t.Fatal(err)
		}
		if g.applied != newest || g.files.Older() != older || g.files.Needed() < r.oldest() || r.oldest() != 1 {
			t.Fatalf("applied %d of %d; older %d, want %d; the log is kept from generation %d on", g.applied, newest, g.files.Older(), older, r.oldest())
		}
		r.fs.SetHook(nil)
		for end := r.clock.mono + snapshotRetry + time.Second; !g.files.Readable() && r.clock.mono < end; {
			r.pass(time.Second)
		}
		if !g.files.Readable() || g.files.Older() != older || len(r.snapshotFiles(1)) != 2 {
			t.Fatalf("another one was made: %v; older %d, want %d; %d files", g.files.Readable(), g.files.Older(), older, len(r.snapshotFiles(1)))
		}
		list := r.snapshotFiles(1)
		r.kill()
		if err := r.fs.FlipBit(r.host.snapshotDir()+"/"+list[0].Name, list[0].Bytes*4); err != nil {
			t.Fatal(err)
		}
		r.mustOpen()
		r.wantState("second", "scheduled 0")
	})
}

// TestStartKnowsHowMuchLogMayBeHeld: a start knows before its first tick how many generations a
// group may hold back. It once took that for the least, and wrote snapshots for which nothing
// asked.
func TestStartKnowsHowMuchLogMayBeHeld(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		for i := range 100 {
			r.do(timer.Command{Kind: timer.Put, ID: fmt.Sprint("much", i), Spec: &timer.Spec{DueMs: 1 << 41, Payload: []byte(strings.Repeat("x", 2000))}})
		}
		r.snapshots()
		r.kill()
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		atStart := r.host.pinnable.Load()
		r.snapshots()
		if n := r.host.pinnable.Load(); n < 5 || atStart != n {
			t.Errorf("at the start a group may hold back %d generations, later %d", atStart, n)
		}
	})
}

// TestSnapshotListsNoDirectory: a node may have the snapshots of 4,096 shards. To write one, and to
// remove those before it, takes no listing of all.
func TestSnapshotListsNoDirectory(t *testing.T) {
	bubbleHarness(t, nil, func(r *hostHarness) {
		g, listed := r.host.group(1), 0
		r.fs.SetHook(func(_ int, op memfs.Op, _ string) error {
			if op == memfs.OpReadDir {
				listed++
			}
			return nil
		})
		for i := range 4 {
			r.add(fmt.Sprint(i), time.Hour)
			r.take(g)
		}
		r.fs.SetHook(nil)
		if list := r.snapshotFiles(1); listed != 0 || len(list) != 2 || list[0].Index != g.files.Newest.Index || list[1].Index != g.files.Older() {
			t.Errorf("listed %d times; %+v are left", listed, list)
		}
	})
}

// take writes a snapshot of a group now.
func (h *hostHarness) take(g *replica) {
	h.t.Helper()
	g.w.beginSnapshot(g)
	for n := 0; g.w.snapshot != nil; n++ {
		if n > 1000 {
			h.t.Fatal("the snapshot does not end")
		}
		h.turn()
	}
	h.runIdle()
}

// fillMeta is fill with commands of the meta group.
func (h *hostHarness) fillMeta(generations uint64) {
	for to := h.host.stream.Generation() + generations; h.host.stream.Generation() < to; {
		if _, err := h.propose(strings.Repeat("m", 500)); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *hostHarness) propose(cmd string) (any, error) {
	o := &metaOp{meta: h.host.metaGroup(), cmd: []byte(cmd), deadline: h.clock.mono + waitLimit, wait: fakeWaiter()}
	if err := o.meta.g.w.box.offer(o); err != nil {
		return nil, err
	}
	h.runIdle()
	select {
	case <-o.wait.ch:
		return o.result, o.err
	default:
		return nil, errors.New("no answer yet")
	}
}

// TestSnapshotWhileBusy: changes made while a snapshot is written are not in the snapshot, and are
// not lost.
func TestSnapshotWhileBusy(t *testing.T) {
	bubbleHarness(t, nil, func(r *hostHarness) {
		for i := range 300 {
			r.add(fmt.Sprint("t", i), time.Hour, func(s *timer.Spec) { s.Payload = []byte(strings.Repeat("p", 20_000)) })
		}
		g := r.host.group(1)
		w := g.w
		w.beginSnapshot(g)
		at, slices := g.applied, 0
		for ; w.snapshot != nil; slices++ {
			r.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: fmt.Sprint("t", slices)})
			r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("new", slices), Spec: &timer.Spec{DueMs: 1 << 41}})
			r.turn()
		}
		r.runIdle()
		if slices < 5 || g.files.Newest.Index != at || g.applied < at+uint64(slices) {
			t.Errorf("%d turns, snapshot at %d, begun at %d, applied %d", slices, g.files.Newest.Index, at, g.applied)
		}
		r.restart()
		for i := range slices {
			r.wantState(fmt.Sprint("t", i), "cancelled 0")
			r.wantState(fmt.Sprint("new", i), "scheduled 0")
		}
		r.wantState(fmt.Sprint("t", slices), "scheduled 0")
		r.audit()
	})
}

// TestSnapshotWriteError: after a failed write the log grows until a later snapshot succeeds.
func TestSnapshotWriteError(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("a", time.Hour)
		broken := errors.New("no such luck")
		r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
			if op == memfs.OpWrite && strings.Contains(name, "snapshots/") {
				return broken
			}
			return nil
		})
		r.fill(8)
		r.snapshots()
		if n := len(r.snapshotFiles(1)); n != 0 || r.oldest() != 1 || r.failure() != nil {
			t.Errorf("%d snapshots, log from generation %d, failure %v", n, r.oldest(), r.failure())
		}
		if !strings.Contains(r.log.String(), "no such luck") {
			t.Error("nobody is told")
		}
		r.fs.SetHook(nil)
		r.pass(snapshotRetry)
		r.snapshots()
		r.fill(8)
		r.snapshots()
		if n := len(r.snapshotFiles(1)); n == 0 || r.oldest() == 1 {
			t.Errorf("%d snapshots, log from generation %d", n, r.oldest())
		}
		r.restart()
		r.wantState("a", "scheduled 0")
	})
}

// TestIdleShardsPinNothing: idle shards do not retain the log, and are recovered without it.
func TestIdleShardsPinNothing(t *testing.T) {
	bubbleHarness(t, func(c *Config) { smallLog(c); c.Shards, c.Workers = 4, 2 }, func(r *hostHarness) {
		for _, g := range r.host.all()[2:] {
			shardOf(g).canary.next = 1 << 62
		}
		for range 6 {
			r.fill(6)
			r.snapshots()
		}
		if n := len(r.host.stream.Generations()); n > 12 {
			t.Errorf("%d generations are kept", n)
		}
		r.restart()
		for _, g := range r.host.all()[1:] {
			if !g.serving {
				t.Errorf("shard %d does not serve", g.shard)
			}
		}
		r.audit()
	})
}

func TestMetaMachine(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		for i := 1; i <= 3; i++ {
			if got, err := r.propose(fmt.Sprint("line ", i)); err != nil || got != any(i) {
				t.Fatalf("%v, %v; want %d", got, err, i)
			}
		}
		want := strings.Join(r.machine.lines, "\n")
		r.restart()
		if got := strings.Join(r.machine.lines, "\n"); got != want {
			t.Errorf("after a restart: %q, want %q", got, want)
		}
		r.take(r.host.group(Meta))
		if got, err := r.propose("after"); err != nil || got != any(4) {
			t.Fatalf("%v, %v", got, err)
		}
		want = strings.Join(r.machine.lines, "\n")
		r.restart()
		if got := strings.Join(r.machine.lines, "\n"); got != want || r.host.group(Meta).files.Newest.Index == 0 {
			t.Errorf("from a snapshot and the log: %q, want %q", got, want)
		}
		r.freeze = true
		late := &metaOp{meta: r.host.metaGroup(), cmd: []byte("late"), deadline: r.clock.mono + waitLimit, wait: fakeWaiter()}
		r.propose("x") // two frames in flight
		r.propose("y")
		r.host.workers[0].box.post(late)
		r.pass(2 * time.Second)
		if !errors.Is(late.err, timer.ErrNoLeader) {
			t.Errorf("while the disk hangs: %v", late.err)
		}
	})
}

// TestI15TwoSnapshotsAreKept: older files are removed, and so is a damaged one.
func TestI15TwoSnapshotsAreKept(t *testing.T) {
	bubbleHarness(t, nil, func(r *hostHarness) {
		g := r.host.group(1)
		for i := range 5 {
			r.add(fmt.Sprint("t", i), time.Hour)
			r.take(g)
		}
		list := r.snapshotFiles(1)
		if len(list) != 2 || list[0].Index != g.files.Newest.Index || list[1].Index != g.files.Older() {
			t.Fatalf("files %+v, want those of %d and %d", list, g.files.Newest.Index, g.files.Older())
		}
		r.kill()
		if err := r.fs.FlipBit(r.host.snapshotDir()+"/"+list[0].Name, list[0].Bytes*4); err != nil {
			t.Fatal(err)
		}
		r.mustOpen()
		g = r.host.group(1)
		r.add("more", time.Hour)
		r.take(g)
		got := r.snapshotFiles(1)
		if len(got) != 2 || got[0].Index != g.files.Newest.Index || got[1].Name != list[1].Name {
			t.Errorf("files %+v, want a new one and %s, which is whole", got, list[1].Name)
		}
	})
}

// TestOldLogGoesWhileSnapshotsAreDue: even if the next snapshot is always due, old generations of
// the log are deleted, and no group waits for ever for its turn.
func TestOldLogGoesWhileSnapshotsAreDue(t *testing.T) {
	bubbleHarness(t, func(c *Config) { smallLog(c); c.SnapshotLogBytes = 1 }, func(r *hostHarness) {
		for range 40 {
			if _, err := r.propose("always due"); err != nil {
				t.Fatal(err)
			}
			r.fill(1)
			r.pass(tickInterval)
			synctest.Wait()
		}
		if err := r.host.dropLog(); err != nil {
			t.Fatal(err)
		}
		if now, oldest := r.host.stream.Generation(), r.oldest(); now-oldest > 20 {
			t.Errorf("all %d generations of the log are still there", now-oldest+1)
		}
		if n := len(r.snapshotFiles(1)); n == 0 {
			t.Error("the shard has no snapshot")
		}
	})
}
