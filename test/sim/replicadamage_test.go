package sim

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/vfs"
	"carillon/ring"
	"carillon/shard"
	"carillon/test/memfs"
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
	host, err := shard.New(n.hostConfig(disk, whoseDisk(disk), ring.NewState(nil, nil)))
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

// cutEnd cuts the log inside its last frame.
func (n *node) cutEnd(t *testing.T) {
	t.Helper()
	list := n.files(filepath.Join(dataDir, "wal", "0"), true)
	for len(list) > 1 && n.content(list[len(list)-1]) == 0 {
		list = list[:len(list)-1]
	}
	path := list[len(list)-1]
	if err := n.disk.Damage(path, func(b []byte) []byte { return n.w.spoil(b, durableFile{cut: true}) }); err != nil {
		t.Fatal(err)
	}
	n.refuses(t, n.disk.CrashClone(n.w.chance, memfs.CrashOptions{}), path)
}

// TestOneReplicaDamaged: a node with a log that is damaged anywhere before its end, or cut there, or
// lacks a file, sets its directory aside and joins as another node; the others fill it, and nothing
// is lost.
func TestOneReplicaDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for name, spoil := range map[string]func(n *node){
		"FIRST":     func(n *node) { spoilMiddle(t, n.disk, filepath.Join(dataDir, "wal", "0", "FIRST"), 20) },
		"a segment": func(n *node) { spoilMiddle(t, n.disk, n.closedSegment(0.5), 150) },
		"the end":   func(n *node) { n.cutEnd(t) },
		"no log":    func(n *node) { must(t, vfs.RemoveTree(n.disk, filepath.Join(dataDir, "wal"))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := damaged(t, longLog, func(w *World) {
				n := w.nodes[0]
				spoil(n)
				n.rotten = true
				for _, n := range w.nodes {
					n.begin()
				}
				w.pass(20 * time.Second)
				if !w.serving() {
					t.Error("they do not serve")
				}
			})
			if r.Counts.Replaced != 1 || r.Counts.Refusals != 0 || r.Counts.Installed == 0 {
				t.Errorf("%d replaced, %d refusals, %d snapshots from peers", r.Counts.Replaced, r.Counts.Refusals, r.Counts.Installed)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
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

// TestMostReplicasDamaged: with two or three of three disks damaged, wherever, none of these nodes is
// replaced: each ends and says why, and nothing is served. When all but one of the disks are restored,
// that one is replaced, and all acknowledged data is there.
func TestMostReplicasDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for name, places := range map[string][]float64{"two, different places": {0.2, 0.8}, "two, the same place": {0.5, 0.5}, "three": {0.3, 0.4, 0.5}} {
		t.Run(name, func(t *testing.T) {
			r := damaged(t, longLog, func(w *World) {
				paths := map[*node]string{}
				for i, place := range places {
					n := w.nodes[i]
					paths[n] = n.closedSegment(place)
					spoilMiddle(t, n.disk, paths[n], 150)
					n.refuses(t, n.disk.CrashClone(w.chance, memfs.CrashOptions{}), paths[n])
					n.rotten = true
				}
				before := w.counts
				for _, n := range w.nodes {
					n.begin()
				}
				w.pass(time.Minute)
				if w.serving() || w.counts.Acked != before.Acked || w.counts.Started != before.Started || w.counts.Reads != before.Reads || w.counts.Replaced > 0 {
					t.Errorf("a minority serves, or gives up its data: before %+v, then %+v", before, w.counts)
				}
				if w.counts.Refusals < len(places) {
					t.Errorf("%d refusals", w.counts.Refusals)
				}
				for _, n := range w.nodes[1:] {
					if path := paths[n]; path != "" {
						n.held = true
						n.stop(false)
						spoilMiddle(t, n.disk, path, 150) // the bit is back
						n.rotten = false
						n.begin()
					}
				}
				w.pass(time.Minute)
				if !w.serving() {
					t.Error("two of three do not serve")
				}
			})
			if r.Counts.Replaced != 1 {
				t.Errorf("%d replaced", r.Counts.Replaced)
			}
		})
	}
}

// TestReplacedOnceThereIsRoom: the disk of a node that asks to be replaced has no room for what the
// replacement writes: for nothing, for a part of the first file, or for that file alone. The
// process ends, its supervisor starts it again and again, and the node is replaced when there is
// room.
func TestReplacedOnceThereIsRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for _, free := range []int64{0, 100, 400} {
		r := damaged(t, longLog, func(w *World) {
			n := w.nodes[0]
			spoilMiddle(t, n.disk, n.closedSegment(0.5), 150)
			n.rotten, w.checker.sick[n.id] = true, true
			for _, n := range w.nodes {
				n.begin()
			}
			w.pass(time.Second)
			if !n.up || n.host != nil {
				t.Fatal("it does not ask")
			}
			n.disk.SetFree(free)
			w.pass(6 * time.Second)
			if _, err := n.disk.Stat(filepath.Join(dataDir, "set-aside.json")); (err == nil) != (free == 400) {
				t.Errorf("%d bytes free: the first file: %v", free, err)
			}
			if w.counts.Replaced > 0 || w.counts.AtOnce < 3 {
				t.Errorf("%d bytes free: %d replaced, %d starts", free, w.counts.Replaced, w.counts.AtOnce)
			}
			n.disk.SetCapacity(0)
			w.pass(20 * time.Second)
		})
		if r.Counts.Replaced != 1 {
			t.Errorf("%d bytes free: %d replaced", free, r.Counts.Replaced)
		}
	}
}
