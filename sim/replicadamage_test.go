package sim

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/shard/repair"
	"carillon/vfs/memfs"
	"carillon/wal"
)

// A log in short generations keeps little behind the snapshots; a long one keeps everything.
const shortLog, longLog = 8 << 10, 256 << 10

// damaged runs a script on a cluster of three that was written to and lost its power. At the end
// the cluster must be whole.
func damaged(t *testing.T, genBytes int64, script func(w *World)) (r Report) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		r = Run(Config{Seed: 4, Settle: synctest.Wait, Change: func(p *Plan) {
			representative(p)
			p.segmentBytes, p.genBytes, p.keepNames, p.keepData = 4<<10, genBytes, 100, 100
		}, script: func(w *World) {
			w.lay()
			w.found()
			w.employ()
			w.pass(8 * time.Second)
			for _, n := range w.nodes {
				n.held = true
				n.stop(true)
			}
			script(w)
			for _, n := range w.nodes {
				if n.held {
					n.begin()
				}
			}
			w.conclude()
		}})
	})
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if r.Counts.Acked < 100 {
		t.Errorf("only %d acknowledged", r.Counts.Acked)
	}
	return r
}

// closedSegment is a segment in the middle of a node's log.
func (n *node) closedSegment(place float64) string {
	list := n.files(filepath.Join(dataDir, "wal", "0"), true)
	var closed []string
	for _, path := range list[:len(list)-1] {
		if n.content(path) > 200 {
			closed = append(closed, path)
		}
	}
	return closed[int(place*float64(len(closed)-1))]
}

// refuses checks that a process does not start on a disk, and that its error names the file and the
// offset.
func (n *node) refuses(t *testing.T, disk *memfs.FS, path string) {
	t.Helper()
	host, err := shard.New(n.hostConfig(disk, whoseDisk(disk), ring.NewState(func() {}, func() {})))
	if err == nil {
		err = host.Open()
	}
	var c *wal.CorruptionError
	if !errors.As(err, &c) || filepath.Join(c.Dir, c.Segment) != path || !strings.Contains(err.Error(), "offset") {
		t.Errorf("node %d, %s damaged: %v", n.id, path, err)
	}
}

func spoilMiddle(t *testing.T, disk *memfs.FS, path string, at int) {
	t.Helper()
	if err := disk.Damage(path, func(b []byte) []byte { b[at] ^= 0x10; return b }); err != nil {
		t.Fatal(err)
	}
}

func (n *node) begin() {
	n.held = false
	n.start()
}

// TestOneReplicaDamaged: a node with a log damaged beyond repair refuses to start. A machine of its
// name with an empty disk takes its place, the others fill it, and nothing is lost.
func TestOneReplicaDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	r := damaged(t, longLog, func(w *World) {
		n := w.nodes[0]
		path := filepath.Join(dataDir, "wal", "0", "FIRST")
		spoilMiddle(t, n.disk, path, 20)
		n.refuses(t, n.disk.CrashClone(w.chance, memfs.CrashOptions{}), path)
		n.rotten = true
		for _, n := range w.nodes {
			n.begin()
		}
		w.pass(20 * time.Second)
	})
	if r.Counts.Refusals != 1 || r.Counts.Installed == 0 {
		t.Errorf("%d refusals, %d snapshots from peers", r.Counts.Refusals, r.Counts.Installed)
	}
}

// TestReplicasMendThemselves: two or three of three disks are damaged in different places, and each
// is repaired from the others, which may be damaged themselves. Nothing is lost, and each disk has
// all that it ever had.
func TestReplicasMendThemselves(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for name, places := range map[string][]float64{"one": {0.5}, "two": {0.2, 0.6}, "three": {0.1, 0.3, 0.6}} {
		t.Run(name, func(t *testing.T) {
			r := damaged(t, longLog, func(w *World) {
				for i, place := range places {
					n := w.nodes[i]
					spoilMiddle(t, n.disk, n.closedSegment(place), 150)
					n.rotten = true
				}
				for _, n := range w.nodes {
					n.begin()
				}
				w.pass(10 * time.Second)
				if !w.serving() {
					t.Error("they do not serve")
				}
			})
			if r.Counts.Mended != len(places) || r.Counts.Refusals != 0 {
				t.Errorf("%d repaired, %d refused", r.Counts.Mended, r.Counts.Refusals)
			}
		})
	}
}

// TestSnapshotsDamagedInDifferentPlaces: each of three nodes has a damaged newest snapshot, each of
// another group; each goes on from the snapshot before.
func TestSnapshotsDamagedInDifferentPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	r := damaged(t, shortLog, func(w *World) {
		hit := 0
		for i, n := range w.nodes {
			list, err := wal.Snapshots(n.disk, filepath.Join(dataDir, "snapshots"))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range list {
				if int(s.Shard) == 1+i%2 {
					hit++
					spoilMiddle(t, n.disk, filepath.Join(dataDir, "snapshots", s.Name), int(s.Bytes/2))
					break
				}
			}
			n.begin()
		}
		if hit != 3 {
			t.Errorf("%d snapshots damaged", hit)
		}
		w.pass(5 * time.Second)
	})
	if r.Counts.Refusals != 0 {
		t.Errorf("%d refusals", r.Counts.Refusals)
	}
}

// TestTwoReplicasDamaged: with two of three disks damaged, wherever, both nodes refuse to start,
// and the third serves nothing on its own. When one of the disks is restored, all acknowledged data
// is there.
func TestTwoReplicasDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for name, places := range map[string][]float64{"different places": {0.2, 0.8}, "the same place": {0.5, 0.5}} {
		t.Run(name, func(t *testing.T) {
			damaged(t, longLog, func(w *World) {
				for i, place := range places {
					n := w.nodes[i]
					path, disk := n.closedSegment(place), n.disk.CrashClone(w.chance, memfs.CrashOptions{})
					spoilMiddle(t, disk, path, 150)
					n.refuses(t, disk, path)
				}
				w.nodes[2].begin()
				before := w.counts
				w.pass(20 * time.Second)
				if w.serving() || w.counts.Acked != before.Acked || w.counts.Started != before.Started || w.counts.Reads != before.Reads {
					t.Errorf("a minority serves: before %+v, then %+v", before, w.counts)
				}
				w.nodes[1].begin() // its disk restored
				w.pass(10 * time.Second)
				if !w.serving() {
					t.Error("two of three do not serve")
				}
			})
		})
	}
}

// TestAllReplicasDamaged: all three disks are damaged in the same place. No node starts, each says
// why, and none can be repaired from the others.
func TestAllReplicasDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	damaged(t, longLog, func(w *World) {
		disks := map[*node]*memfs.FS{}
		for _, n := range w.nodes {
			disks[n] = n.disk.CrashClone(w.chance, memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
			for _, place := range []float64{0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6} {
				path := n.closedSegment(place)
				if err := disks[n].Damage(path, func(b []byte) []byte { clear(b); return b }); err != nil {
					t.Fatal(err)
				}
			}
			n.refuses(t, disks[n], n.closedSegment(0.3))
		}
		for _, n := range w.nodes {
			m, err := repair.New(disks[n], dataDir, w.swarm.shards)
			if err != nil {
				t.Fatal(err)
			}
			for _, disk := range disks {
				answer, err := repair.Answer(disk, dataDir, w.swarm.shards, m.Questions())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := m.Take(answer); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Write(1); m.Missing() == 0 || err == nil || !strings.Contains(err.Error(), "entries are missing") {
				t.Errorf("node %d: %d missing, %v", n.id, m.Missing(), err)
			}
			n.refuses(t, disks[n], n.closedSegment(0.3))
		}
	})
}
