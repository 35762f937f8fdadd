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
	"carillon/wal"
)

// Of a log in short generations little is left behind the snapshots; a long one has it all.
const shortLog, longLog = 8 << 10, 256 << 10

// damaged runs a script on a cluster of three that has been written to and then lost its power, and is to be whole in the end.
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

// refuses demands that a process on such a disk would not start, and says which file and where in it.
func (n *node) refuses(t *testing.T, disk *wal.MemFS, path string) {
	t.Helper()
	host, err := shard.New(n.hostConfig(disk, ring.NewState(func() {}, func() {})))
	if err == nil {
		err = host.Open()
	}
	var c *wal.CorruptionError
	if !errors.As(err, &c) || filepath.Join(c.Dir, c.Segment) != path || !strings.Contains(err.Error(), "offset") {
		t.Errorf("node %d, %s damaged: %v", n.id, path, err)
	}
}

func spoilMiddle(t *testing.T, disk *wal.MemFS, path string, at int) {
	t.Helper()
	if err := disk.Damage(path, func(b []byte) []byte { b[at] ^= 0x10; return b }); err != nil {
		t.Fatal(err)
	}
}

func (n *node) begin() {
	n.held = false
	n.restart()
}

// TestOneReplicaDamaged: a node whose log is damaged in the middle refuses; one of its name with an empty disk takes its place, is filled by
// the others, and nothing is lost.
func TestOneReplicaDamaged(t *testing.T) {
	r := damaged(t, longLog, func(w *World) {
		n := w.nodes[0]
		path := n.closedSegment(0.5)
		spoilMiddle(t, n.disk, path, 150)
		n.refuses(t, n.disk.CrashClone(w.chance, wal.CrashOptions{}), path)
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

// TestSnapshotsDamagedInDifferentPlaces: each of the three has another group's newest snapshot damaged; each goes on from the one before.
func TestSnapshotsDamagedInDifferentPlaces(t *testing.T) {
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

// TestTwoReplicasDamaged: with two of three damaged, at whatever places, both refuse, and the third alone serves nothing and guesses nothing.
// When the disk of one of them is restored, all that was acknowledged is there.
func TestTwoReplicasDamaged(t *testing.T) {
	for name, places := range map[string][]float64{"different places": {0.2, 0.8}, "the same place": {0.5, 0.5}} {
		t.Run(name, func(t *testing.T) {
			damaged(t, longLog, func(w *World) {
				for i, place := range places {
					n := w.nodes[i]
					path, disk := n.closedSegment(place), n.disk.CrashClone(w.chance, wal.CrashOptions{})
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

// TestAllReplicasDamaged: the same place on all three: none starts, each says why.
func TestAllReplicasDamaged(t *testing.T) {
	damaged(t, longLog, func(w *World) {
		for _, n := range w.nodes {
			path, disk := n.closedSegment(0.5), n.disk.CrashClone(w.chance, wal.CrashOptions{})
			spoilMiddle(t, disk, path, 150)
			n.refuses(t, disk, path)
		}
	})
}
