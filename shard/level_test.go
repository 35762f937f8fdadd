package shard

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/feature"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/wal"

	"go.etcd.io/raft/v3/raftpb"
)

// inReleases runs a test with three nodes of the given levels, which have agreed on *agreed.
func inReleases(t *testing.T, levels []feature.Level, agreed *feature.Level, run func(c *hostCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newHostClusterOf(t, len(levels), []int{0, 1, 2}, func(i int, cfg *Config) {
			cfg.Level, cfg.Agreed = levels[i], func() feature.Level { return *agreed }
		})
		defer c.end()
		run(c)
	})
}

// stopped returns the error that stopped a node's replica of shard 1; nil: it runs.
func (c *hostCluster) stopped(i int) error { return c.shard(i).stopped }

// TestNothingAboveTheLevelIsProposed: while one replica runs an older release, the leader proposes
// nothing that release does not know. Once all have agreed on a higher level, it does.
func TestNothingAboveTheLevelIsProposed(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	levels, agreed := []feature.Level{feature.LevelOfTests, feature.LevelFirst, feature.LevelOfTests}, feature.LevelFirst
	inReleases(t, levels, &agreed, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.pass(time.Minute)
		c.alive()
		c.crash(1)
		levels[1] = feature.LevelOfTests // the release of the others
		c.open(1)
		c.takes(5 * time.Second)
		for i := range c.hosts {
			if got := c.newest(i); got != feature.LevelFirst {
				t.Errorf("node %d has an entry of level %d", firstNode+i, got)
			}
		}
		agreed = feature.LevelOfTests
		c.pass(time.Minute)
		c.takes(5 * time.Second)
		c.alive()
		for i := range c.hosts {
			if got := c.newest(i); got != agreed {
				t.Errorf("node %d has entries of level %d", firstNode+i, got)
			}
		}
		c.concludes(10 * time.Second)
	})
}

// newest returns the highest level of the entries of shard 1 that a node has in memory.
func (c *hostCluster) newest(i int) (level feature.Level) {
	g := c.shard(i)
	first, _ := g.store.FirstIndex()
	entries, err := g.store.Entries(first, g.store.Last()+1, 1<<30)
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		if e.GetType() == raftpb.EntryNormal {
			level = max(level, feature.EntryLevel(e.Data))
		}
	}
	return level
}

// TestEntryOfANewerRelease: a replica that meets an entry unknown to its release stops and logs the
// remedy. Its process goes on with everything else, also after a restart. The release that knows
// the entry continues from there. This was once a panic, at every start.
func TestEntryOfANewerRelease(t *testing.T) {
	// The last node does not know of the agreement yet.
	levels, agreed := []feature.Level{feature.LevelOfTests, feature.LevelOfTests, feature.LevelFirst}, feature.LevelOfTests
	inReleases(t, levels, &agreed, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.until("the old node is stopped", time.Minute, func() bool { c.add(); return c.stopped(2) != nil })
		for range 2 {
			r := c.hosts[2]
			if err := c.stopped(2); !errors.Is(err, feature.ErrNewer) || !strings.Contains(r.log.String(), "start the release that wrote it") {
				t.Fatalf("it says %v\n%s", err, r.log.String())
			}
			if err := r.host.failed(); err != nil {
				t.Fatalf("its process ends: %v", err)
			}
			if g := r.host.group(Meta); !g.serving {
				t.Error("its other groups do not serve")
			}
			if status := r.host.group(1).status(); status.Fault == "" {
				t.Error("its status does not say so")
			}
			c.takes(5 * time.Second)
			c.crash(2)
			c.open(2)
			c.pass(5 * time.Second)
		}
		c.crash(2)
		levels[2] = feature.LevelOfTests
		c.open(2)
		c.concludes(20 * time.Second)
		c.alive()
	})
}

// TestMetaEntryOfANewerRelease: the same for the meta group. Its commands may have content that a
// release does not know, and carry no version.
func TestMetaEntryOfANewerRelease(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.elects(Meta)
	r.pass(time.Second)
	if o := r.metaOp("bad"); !o.ended() || !errors.Is(o.err, encoding.ErrFormat) || len(r.machine.lines) != 0 {
		t.Errorf("what must not be proposed: ended %v, %v", o.ended(), o.err)
	}
	o := r.metaOp("of a later release") // proposed by a leader of that release
	g := r.host.group(Meta)
	if !errors.Is(g.stopped, feature.ErrNewer) || g.raft != nil {
		t.Fatalf("it goes on: %v", g.stopped)
	}
	if !o.ended() || !errors.Is(o.err, timer.ErrUnknown) {
		t.Errorf("who proposed it hears %v", o.err)
	}
	if err := r.failure(); err != nil {
		t.Errorf("the process ends: %v", err)
	}
	if o := r.metaOp("x"); !o.ended() || !errors.Is(o.err, timer.ErrNoLeader) {
		t.Errorf("afterwards: %v", o.err)
	}
	r.kill()
	if err := r.open(); err != nil {
		t.Fatalf("it does not start again: %v", err)
	}
	r.pass(5 * time.Second)
	if g := r.host.group(Meta); !errors.Is(g.stopped, feature.ErrNewer) {
		t.Errorf("after a restart: %v", g.stopped)
	}
}

// TestStoppedReplicaIsReplaced: a stopped replica can be removed and replaced.
func TestStoppedReplicaIsReplaced(t *testing.T) {
	levels, agreed := []feature.Level{feature.LevelOfTests, feature.LevelOfTests, feature.LevelFirst}, feature.LevelOfTests
	inReleases(t, levels, &agreed, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.until("the old node is stopped", time.Minute, func() bool { c.add(); return c.stopped(2) != nil })
		levels[2] = feature.LevelOfTests
		c.hosts[2].host.cfg.Level = feature.LevelOfTests
		c.row.Epoch, c.row.Settled = 2, false
		c.row.Members = []Member{c.row.Members[0], c.row.Members[1]}
		c.placeAll()
		c.until("it is given up", 20*time.Second, func() bool { c.add(); return c.shard(2).id == 0 && c.row.Settled })
		if c.stopped(2) != nil {
			t.Errorf("a replica that is not there is stopped: %v", c.stopped(2))
		}
		c.row.Epoch, c.row.Settled = 3, false
		c.row.Members = append(c.row.Members, Member{Node: firstNode + 2, Replica: ReplicaID(firstNode+2, 3)})
		c.placeAll()
		c.concludes(30 * time.Second)
	})
}

// setSnapshotVersion gives the newest snapshot of shard 1 another version and returns the one it
// had.
func (h *hostHarness) setSnapshotVersion(version byte) (was byte) {
	h.t.Helper()
	dir := h.host.snapshotDir()
	infos, err := wal.Snapshots(h.fs, dir)
	if err != nil {
		h.t.Fatal(err)
	}
	at := slices.IndexFunc(infos, func(info wal.SnapshotInfo) bool { return info.Shard == 1 }) // the newest is the first
	f, err := wal.OpenSnapshot(h.fs, dir, infos[at].Name)
	if err != nil {
		h.t.Fatal(err)
	}
	body, err := io.ReadAll(f)
	f.Close()
	if err != nil {
		h.t.Fatal(err)
	}
	was, body[4] = body[4], version // behind its magic
	w, err := wal.CreateSnapshot(h.fs, dir, f.Meta())
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return was
}

// TestSnapshotOfANewerRelease: a process of an older release finds a snapshot on its disk that it
// cannot read. That is no damage: nothing is deleted, the process goes on with everything else, and
// the newer release reads the snapshot.
func TestSnapshotOfANewerRelease(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("a", time.Hour)
		r.fill(12)
		r.take(r.host.group(1))
		r.fill(3)
		r.kill()
		was := r.setSnapshotVersion(99)
		if err := r.open(); err != nil {
			t.Fatalf("it does not start: %v", err)
		}
		g := r.host.group(1)
		if !errors.Is(g.stopped, feature.ErrNewer) || g.raft != nil || g.store.Last() < g.applied || !r.host.group(Meta).serving {
			t.Fatalf("stopped: %v", g.stopped)
		}
		r.pass(time.Minute)
		r.kill()
		r.setSnapshotVersion(was)
		r.mustOpen()
		r.wantState("a", "scheduled 0")
		r.audit()
	})
}

// TestTraceIsKept: a timer keeps its trace through a change and a start.
func TestTraceIsKept(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("with", time.Hour, func(s *timer.Spec) { s.Trace = testkit.SomeTrace() })
	r.add("without", time.Hour)
	r.do(timer.Command{Kind: timer.Modify, ID: "with", Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 9}}})
	r.restart()
	if got := r.timer("with"); got.Trace == nil || *got.Trace != *testkit.SomeTrace() || got.Priority != 9 {
		t.Errorf("changed, and after a start: %+v, %+v", got, got.Trace)
	}
	if got := r.timer("without"); got.Trace != nil {
		t.Errorf("a trace from nowhere: %+v", got.Trace)
	}
}
