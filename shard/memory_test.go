package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"carillon/shard/raftlog"
	"carillon/shard/snapshot"
	"carillon/test/memfs"
	"carillon/timer"

	pb "go.etcd.io/raft/v3/raftpb"
)

// putBulky sets a timer with a payload of the given size.
func (h *hostHarness) putBulky(id string, size int) error {
	_, err := h.try(timer.Command{Kind: timer.Put, ID: id, Spec: &timer.Spec{DueMs: 1 << 41, PayloadKind: timer.BinaryPayload, Payload: make([]byte, size)}})
	return err
}

// putMany sets n timers of 4 KiB.
func (h *hostHarness) putMany(n int) {
	h.t.Helper()
	for i := range n {
		if err := h.putBulky(fmt.Sprint(i), 4<<10); err != nil {
			h.t.Fatal(err)
		}
	}
}

// limitTo sets the memory limit to the current use plus left bytes.
func (h *hostHarness) limitTo(left int64) {
	h.pass(2 * tickInterval)
	_, held := h.host.Memory()
	h.host.cfg.MemoryLimit = held.Sum() + left
}

// hangingSnapshot begins a snapshot of shard 1 with a writer that consumes nothing.
func (h *hostHarness) hangingSnapshot() *snapshotRun {
	g := h.host.group(1)
	run := &snapshotRun{group: g, feed: snapshot.NewFeed(shardOf(g).table.BeginSnapshot(), 0, func() {})}
	g.w.snapshot = run
	return run
}

// TestMemoryOfManyShardsCounts: of many shards each one is counted within as many ticks as there
// are parts, also by a worker whose turns are late, and further apart than its ticks.
func TestMemoryOfManyShardsCounts(t *testing.T) {
	h := makeHarness(t, memfs.New(), nil)
	h.change = func(c *Config) { c.Shards = 2*manyGroups + 2 }
	h.mustOpen()
	h.pass(time.Second)
	h.step(20 * tickInterval)
	h.turn()
	for _, w := range h.host.workers {
		for _, g := range w.groups {
			g.public.bytes.Store(-1)
		}
	}
	for range h.host.workers[0].parts() {
		h.step(2 * tickInterval)
		h.turn()
	}
	for _, w := range h.host.workers {
		if len(w.groups) <= manyGroups {
			t.Fatalf("a worker has %d groups", len(w.groups))
		}
		for _, g := range w.groups {
			if g.public.bytes.Load() < 0 {
				t.Fatalf("shard %d was not counted in time", g.shard)
			}
		}
	}
}

// TestMemoryOfASnapshotCounts: memory copied by changes during a slow snapshot counts against the
// limit for adds, until the snapshot is written.
func TestMemoryOfASnapshotCounts(t *testing.T) {
	r := newHostHarness(t, nil)
	r.putMany(400)
	run := r.hangingSnapshot()
	r.limitTo(100 << 10)
	for n := range 40 {
		r.do(timer.Command{Kind: timer.Modify, ID: fmt.Sprint(n), Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 2}}})
	}
	if err := r.putBulky("x", 1); !errors.Is(err, timer.ErrMemory) {
		t.Errorf("160 KiB are copied, 100 were left, and a timer more is %v", err)
	}
	if run.feed.Ended() {
		t.Error("a snapshot that holds little is given up")
	}
	run.feed.Abort()
	r.host.workers[0].snapshot = nil
	r.pass(tickInterval)
	if err := r.putBulky("x", 1); err != nil {
		t.Error(err)
	}
}

// TestSnapshotIsGivenUpForMemory: a snapshot that takes most of the excess memory is abandoned, and
// changes are still accepted.
func TestSnapshotIsGivenUpForMemory(t *testing.T) {
	r := newHostHarness(t, nil)
	r.putMany(400)
	run := r.hangingSnapshot()
	r.limitTo(100 << 10)
	most := int64(0)
	for n := range 400 {
		r.do(timer.Command{Kind: timer.Modify, ID: fmt.Sprint(n), Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 2}}})
		_, held := r.host.Memory()
		most = max(most, held.Sum())
	}
	if limit := r.host.cfg.MemoryLimit; most > limit+limit/memoryShareDivisor+64<<10 {
		t.Errorf("%d bytes are held, the limit is %d", most, limit)
	}
	if !run.feed.Ended() || !errors.Is(run.feed.End(), timer.ErrStopped) {
		t.Error("the snapshot goes on")
	}
	r.host.workers[0].snapshot = nil
	if err := r.putBulky("x", 1); err != nil {
		t.Error(err)
	}
}

// TestMemoryOfUncommittedEntries: a leader with followers that respond but append nothing buffers
// its proposals up to its limit.
func TestMemoryOfUncommittedEntries(t *testing.T) {
	const size, atOnce = 60 << 10, 8
	flood := func(r *hostHarness) (held Memory, errs map[error]int) {
		errs = map[error]int{}
		var list []*pending
		for n := range 400 {
			spec := &timer.Spec{DueMs: 1 << 41, PayloadKind: timer.BinaryPayload, Payload: make([]byte, size)}
			p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("flood", n), Spec: spec})
			if err != nil {
				errs[err]++
				continue
			}
			if list = append(list, p); len(list)%atOnce != 0 {
				continue
			}
			r.turn()
			_, m := r.host.Memory()
			held.Entries, held.Frames = max(held.Entries, m.Entries), max(held.Frames, m.Frames)
		}
		r.pass(waitLimit + tickInterval)
		for _, p := range list {
			if p.answered() {
				errs[p.op.err]++
			}
		}
		return held, errs
	}
	t.Run("of a node", func(t *testing.T) {
		r, c := withFakePeers(t, false, nil)
		c.leads()
		r.putMany(800)
		c.hung = true
		r.limitTo(100 << 10)
		held, errs := flood(r)
		if kept := int64(retainBytes); held.Entries > kept+100<<10+2*atOnce*size || errs[timer.ErrMemory] < 300 {
			t.Errorf("%d bytes of entries are held, answers %v", held.Entries, errs)
		}
	})
	t.Run("of a group", func(t *testing.T) {
		r, c := withFakePeers(t, false, func(cfg *Config) { cfg.MemoryLimit = 60 << 20 })
		c.leads()
		c.hung = true
		held, errs := flood(r)
		if held.Entries > 60<<20/uncommittedShare+2*atOnce*size || errs[timer.ErrMemory] > 0 || errs[timer.ErrOverloaded] < 300 {
			t.Errorf("%d bytes of entries are held, answers %v", held.Entries, errs)
		}
	})
}

// TestMemoryForASlowFollower: the entries that a leader keeps for a reachable but stuck follower
// are dropped when memory is tight. Adds go on, and the follower gets a snapshot once its disk is
// back.
func TestMemoryForASlowFollower(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newHostCluster(t, 3, []int{0, 1, 2}, tightFrames, func(cfg *Config) { cfg.RetainBytes = 256 << 10 })
		defer c.end()
		r := c.hosts[0]
		c.until("the first leads", 5*time.Second, func() bool { return c.leader() == r })
		puts := 0
		put := func() *pending {
			puts++
			spec := &timer.Spec{DueMs: 1 << 41, PayloadKind: timer.BinaryPayload, Payload: make([]byte, 10<<10)}
			p, err := r.submit(1, timer.Command{Kind: timer.Put, Topic: 1, ID: fmt.Sprint(puts % 200), Spec: spec})
			if err != nil {
				t.Fatalf("put %d: %v", puts, err)
			}
			c.tick()
			return p
		}
		for range 400 {
			put()
		}
		g := r.host.group(1)
		c.hung = 1
		for range 150 {
			put()
		}
		if g.store.Bytes() < 1<<20 {
			t.Errorf("%d bytes of entries are kept for a follower that is behind, and there is room", g.store.Bytes())
		}
		r.host.cfg.MemoryLimit = shardOf(g).table.MemoryBytes() + 200<<10
		c.tick()
		c.tick()
		taken, limit := 0, r.host.cfg.MemoryLimit
		for n := range 300 {
			if p := put(); p.answered() && p.op.err == nil {
				taken++
			}
			if _, m := r.host.Memory(); m.Sum() > limit {
				t.Fatalf("%+v is held after put %d, the limit is %d", m, n, limit)
			}
		}
		if taken < 290 {
			t.Errorf("%d of 300 are taken", taken)
		}
		c.hung = -1
		c.until("the follower has everything", 20*time.Second, c.followed)
	})
}

// TestKeptEntriesShrinkWithTheLimit: the entries kept for followers, of all groups together, are
// limited to a share of the memory.
func TestKeptEntriesShrinkWithTheLimit(t *testing.T) {
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.MemoryLimit = 8 << 20 })
	c.leads()
	for n := range 300 {
		if err := r.putBulky(fmt.Sprint(n%10), 10<<10); err != nil {
			t.Fatal(err)
		}
	}
	if _, m := r.host.Memory(); m.Entries > 1<<20/2+32<<10 {
		t.Errorf("%d bytes of entries are kept of a limit of 8 MiB", m.Entries)
	}
}

// TestMemoryIsCountedAsItIs: the host's count matches the memory in use after every operation.
func TestMemoryIsCountedAsItIs(t *testing.T) {
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.RetainBytes = 64 << 10 })
	c.leads()
	check := func(after string) {
		t.Helper()
		r.pass(2 * tickInterval)
		if counted, held := r.host.Memory(); counted < held.Sum() || counted > held.Sum()+held.Entries {
			t.Errorf("after %s: %d bytes are counted, %+v held", after, counted, held)
		}
	}
	for n := range 100 {
		if err := r.putBulky(fmt.Sprint(n%10), 5<<10); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprint("put ", n))
	}
	c.hung = true
	for n := range 20 {
		if _, err := r.submit(1, timer.Command{Kind: timer.Put, Topic: 1, ID: "x", Spec: &timer.Spec{DueMs: 1 << 41, PayloadKind: timer.BinaryPayload, Payload: make([]byte, 5<<10)}}); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprint("uncommitted ", n))
	}
	g := r.host.group(1)
	r.deliverMessage(1, &pb.Message{Type: pb.MsgApp.Enum(), From: new(ReplicaID(8, 1)), To: new(ReplicaID(7, 1)), Term: new(g.term + 1),
		LogTerm: &g.appliedTerm, Index: &g.applied, Entries: emptyEntries(g.applied+1, 1, g.term+1), Commit: &g.applied})
	check("another leader has taken their place")
	g.remove() // by the turn of the meta group, say: this group has no work of its own
	check("the replica was given up")
}

// TestMemoryCountsFromTheStart: memory used by recovery counts before the first request.
func TestMemoryCountsFromTheStart(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	for n := range 20 {
		if err := r.putBulky(fmt.Sprint(n), 5<<10); err != nil {
			t.Fatal(err)
		}
	}
	r.kill()
	cfg := r.host.cfg
	cfg.MemoryUse = func() int64 { return 1 << 40 }
	host, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Open(); err != nil {
		t.Fatal(err)
	}
	if counted, held := host.Memory(); counted < held.Sum() || held.Entries < 100<<10 || held.Tables < 100<<10 {
		t.Errorf("%d bytes are counted, %+v held", counted, held)
	}
	if n := host.needed(); n != 1<<40 {
		t.Errorf("%d bytes are needed, the process uses a terabyte", n)
	}
}

// TestFramesGoWithTheirEntries: a small entry that waits for a hung disk does not retain the frame
// in which it arrived.
func TestFramesGoWithTheirEntries(t *testing.T) {
	r, _ := withFakePeers(t, true, nil)
	g := r.host.group(1)
	message := func(at uint64, size int) []byte {
		e := emptyEntries(at, 1, 5)
		e[0].Data = make([]byte, size)
		return raftlog.AppendMessage(nil, &pb.Message{Type: pb.MsgApp.Enum(), From: new(ReplicaID(8, 1)), To: new(ReplicaID(7, 1)), Term: new(uint64(5)),
			LogTerm: &g.appliedTerm, Index: new(at - 1), Entries: e, Commit: new(uint64(0))})
	}
	frame := make([]byte, 0, 2<<20)
	frame = append(frame, frameVersion)
	for _, m := range []struct {
		kind byte
		body []byte
	}{{raftMessage, message(g.applied+1, 100)}, {reportMessage, make([]byte, 1<<20)}} {
		frame = binary.AppendUvarint(append(frame, m.kind), 1)
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(m.body))), m.body...)
	}
	gone := make(chan struct{})
	runtime.AddCleanup(&frame[0], func(struct{}) { close(gone) }, struct{}{})
	r.freeze = true
	r.host.Deliver(8, frame)
	frame = nil
	r.runIdle()
	for n, left := 0, true; left; n++ {
		if n == 1000 {
			t.Fatal("the frame is kept by its entry")
		}
		runtime.GC()
		select {
		case <-gone:
			left = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	r.freeze = false
	r.runIdle()
	if list := storedIn(r.t, g.store); len(list) == 0 || len(list[len(list)-1].Data) != 100 {
		t.Fatalf("%d entries have come", len(list))
	}
}

// emptyEntries returns n entries without data.
func emptyEntries(from, n, term uint64) (list []*pb.Entry) {
	for i := range n {
		list = append(list, &pb.Entry{Index: new(from + i), Term: &term})
	}
	return list
}

// TestFullShardRefusesAdds: a shard's table has room for so much, whatever memory there is. Beyond it
// an entry would end every replica: adds are refused before that, and what frees something is not.
// Answers of receivers that refuse are not kept: the room that is left is for what must be.
func TestFullShardRefusesAdds(t *testing.T) {
	r, c := withFakePeers(t, false, func(*Config) {})
	c.leads()
	g := r.host.group(1)
	g.public.full.Store(true)
	for _, kind := range []timer.Kind{timer.Add, timer.Cancel} {
		err := r.host.admit(g, &timer.Command{Kind: kind, Topic: 1, ID: "a"})
		if errors.Is(err, timer.ErrMemory) != (kind == timer.Add) {
			t.Errorf("command %v: %v", kind, err)
		}
	}
	full := func() int {
		var s Stats
		g.stats(&s)
		return s.FullShards
	}
	env := schedulerEnv{shardOf(g)}
	if _, shown := r.host.Size(1); !env.Full() || full() != 1 || !shown {
		t.Errorf("answers are kept, or it is not counted: %d, or not shown: %v", full(), shown)
	}
	r.pass(2 * tickInterval)
	if _, shown := r.host.Size(1); env.Full() || full() != 0 || shown {
		t.Errorf("with room: answers are not kept, or it is counted: %d", full())
	}
	if err := r.host.admit(g, &timer.Command{Kind: timer.Add, Topic: 1, ID: "a"}); err != nil {
		t.Errorf("with room: %v", err)
	}
}
