package shard

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/shard/feature"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/timer/testkit"
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
	levels, agreed := []feature.Level{feature.LevelCompare, feature.LevelFirst, feature.LevelCompare}, feature.LevelFirst
	inReleases(t, levels, &agreed, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.pass(time.Minute)
		c.alive()
		for i := range c.hosts {
			if last := c.shard(i).compare.last; last != 0 {
				t.Errorf("node %d has applied a comparison, entry %d", firstNode+i, last)
			}
		}
		c.crash(1)
		levels[1] = feature.LevelCompare // the release of the others
		c.open(1)
		agreed = feature.LevelCompare
		c.pass(time.Minute)
		c.alive()
		for i := range c.hosts {
			if c.shard(i).compare.last == 0 {
				t.Errorf("node %d has compared nothing", firstNode+i)
			}
		}
		c.concludes(10 * time.Second)
	})
}

// TestSnapshotForARelease: a snapshot sent to a node of an older release has the hash of that
// release.
func TestSnapshotForARelease(t *testing.T) {
	levels, agreed := []feature.Level{feature.LevelCompare, feature.LevelCompare, feature.LevelFirst}, feature.LevelFirst
	inReleases(t, levels, &agreed, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.away[2] = true
		c.pass(time.Minute) // more entries than are kept in memory
		c.away[2] = false
		c.concludes(20 * time.Second)
		if c.hosts[2].observer.received == 0 {
			t.Error("the node was sent no snapshot")
		}
		c.alive()
	})
}

// TestEntryOfANewerRelease: a replica that meets an entry unknown to its release stops and logs the
// remedy. Its process goes on with everything else, also after a restart. The release that knows
// the entry continues from there. This was once a panic, at every start.
func TestEntryOfANewerRelease(t *testing.T) {
	// The last node does not know of the agreement yet.
	levels, agreed := []feature.Level{feature.LevelCompare, feature.LevelCompare, feature.LevelFirst}, feature.LevelCompare
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
			if g := r.host.groups[Meta]; !g.serving {
				t.Error("its other groups do not serve")
			}
			if status := r.host.groups[1].status(); status.Fault == "" {
				t.Error("its status does not say so")
			}
			c.takes(5 * time.Second)
			c.crash(2)
			c.open(2)
			c.pass(5 * time.Second)
		}
		c.crash(2)
		levels[2] = feature.LevelCompare
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
	g := r.host.groups[Meta]
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
	if g := r.host.groups[Meta]; !errors.Is(g.stopped, feature.ErrNewer) {
		t.Errorf("after a restart: %v", g.stopped)
	}
}

// TestStoppedReplicaIsReplaced: a stopped replica can be removed and replaced.
func TestStoppedReplicaIsReplaced(t *testing.T) {
	levels, agreed := []feature.Level{feature.LevelCompare, feature.LevelCompare, feature.LevelFirst}, feature.LevelCompare
	inReleases(t, levels, &agreed, func(c *hostCluster) {
		c.takes(5 * time.Second)
		c.until("the old node is stopped", time.Minute, func() bool { c.add(); return c.stopped(2) != nil })
		levels[2] = feature.LevelCompare
		c.hosts[2].host.cfg.Level = feature.LevelCompare
		c.row.Epoch, c.row.Settled = 2, false
		c.row.Members = []Member{c.row.Members[0], c.row.Members[1]}
		c.tell()
		c.until("it is given up", 20*time.Second, func() bool { c.add(); return c.shard(2).replica == 0 && c.row.Settled })
		if c.stopped(2) != nil {
			t.Errorf("a replica that is not there is stopped: %v", c.stopped(2))
		}
		c.row.Epoch, c.row.Settled = 3, false
		c.row.Members = append(c.row.Members, Member{Node: firstNode + 2, Replica: ReplicaID(firstNode+2, 3)})
		c.tell()
		c.concludes(30 * time.Second)
	})
}

// TestSnapshotOfANewerRelease: a process of an older release finds a snapshot on its disk that it
// cannot read. That is no damage: nothing is deleted, the process goes on with everything else, and
// the newer release reads the snapshot.
func TestSnapshotOfANewerRelease(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("a", time.Hour)
		r.fill(12)
		r.take(r.host.groups[1])
		r.fill(3)
		change := r.change
		r.change = func(cfg *Config) {
			change(cfg)
			cfg.Level = feature.LevelFirst
		}
		r.kill()
		if err := r.open(); err != nil {
			t.Fatalf("it does not start: %v", err)
		}
		g := r.host.groups[1]
		if !errors.Is(g.stopped, feature.ErrNewer) || g.raft != nil || g.store.last() < g.applied || !r.host.groups[Meta].serving {
			t.Fatalf("stopped: %v", g.stopped)
		}
		r.pass(time.Minute)
		r.kill()
		r.change = change
		r.mustOpen()
		r.wantState("a", "scheduled 0")
		r.audit()
	})
}

// TestCommandsOfALevel: the proposer drops fields of a level that is not agreed on yet, and the add
// is made without them. An entry without such fields can be read by the first build.
func TestCommandsOfALevel(t *testing.T) {
	agreed := feature.LevelCompare
	r := newHostHarness(t, func(c *Config) { c.Agreed = func() feature.Level { return agreed } })
	traced := func(s *timer.Spec) { s.Trace = testkit.SomeTrace() }
	r.add("before", time.Hour, traced)
	if got := r.timer("before"); got.Trace != nil {
		t.Errorf("at level %d a timer has the trace %+v", agreed, got.Trace)
	}
	agreed = feature.LevelConventions
	r.add("after", time.Hour, traced)
	r.add("without", time.Hour)
	if got := r.timer("after"); got.Trace == nil || *got.Trace != *testkit.SomeTrace() {
		t.Errorf("at level %d a timer has the trace %+v", agreed, got.Trace)
	}
	r.do(timer.Command{Kind: timer.Modify, ID: "after", Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 9}}})
	r.restart()
	if got := r.timer("after"); got.Trace == nil || *got.Trace != *testkit.SomeTrace() || got.Priority != 9 {
		t.Errorf("changed, and after a start: %+v, %+v", got, got.Trace)
	}
	if got := r.timer("without"); got.Trace != nil {
		t.Errorf("a trace from nowhere: %+v", got.Trace)
	}
	for _, c := range []struct {
		command timer.Command
		want    feature.Level
	}{
		{timer.Command{Kind: timer.Add, Absolute: true, Spec: &timer.Spec{}}, feature.LevelFirst},
		{timer.Command{Kind: timer.Add, Absolute: true, Once: true, Spec: &timer.Spec{}}, feature.LevelConventions},
		{timer.Command{Kind: timer.Put, Spec: &timer.Spec{Trace: testkit.SomeTrace()}}, feature.LevelConventions},
	} {
		for _, at := range []feature.Level{feature.LevelFirst, feature.LevelCompare, feature.LevelConventions} {
			var b table.Batch
			b.Reset(1, 1, 1)
			before := c.command
			b.Command(table.AtLevel(&c.command, at))
			if got := feature.Level(b.Bytes()[0]); got != min(at, c.want) && got != feature.LevelFirst || at >= c.want && got != c.want {
				t.Errorf("%+v at level %d is an entry of level %d", c.command, at, got)
			}
			if before != c.command {
				t.Error("the command of the caller has changed")
			}
		}
	}
}
