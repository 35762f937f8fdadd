package sim

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
	"carillon/wal"
)

// TestRotOfASnapshotFromAPeer: a snapshot from a peer is damaged at rest. If the node has promised
// it to nobody, because the log does not name it yet, the next process goes on from what was before
// it. If the log names it, the node is replaced.
func TestRotOfASnapshotFromAPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for _, logged := range []bool{false, true} {
		t.Run(map[bool]string{false: "not in the log", true: "in the log"}[logged], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Run(Config{Seed: 4, Settle: synctest.Wait, Change: representative, script: func(w *World) {
					w.lay()
					w.found()
					w.employ()
					w.pass(3 * time.Second)
					n := w.nodes[2]
					n.held = true
					n.stop(false)
					w.pass(4 * time.Second)
					n.hungUntil = w.now + time.Hour
					n.begin()
					var id timer.ShardID
					if !w.passUntil(30*time.Second, func() bool {
						for id = range timer.ShardID(w.swarm.shards + 1) {
							if n.host != nil && n.host.Progress(id).Installs > 0 {
								return true
							}
						}
						return false
					}) {
						t.Fatal("it needs no snapshot")
					}
					at := n.restored[id].index
					if logged {
						n.hungUntil = 0
						w.passUntil(5*time.Second, func() bool { return n.host.Progress(id).Applied > at })
						if !n.promised(id, at) {
							t.Error("it has promised nothing")
						}
						n.reached[id].applied = at // as if nothing had followed
					}
					n.rots(n.snapshotAt(t, id, at))
					if forgets := n.reached[id].applied < at; forgets == logged {
						t.Errorf("it may forget the snapshot: %v", forgets)
					}
					n.hungUntil = 0
					w.pass(20 * time.Second)
					w.conclude()
				}})
				if r.Err != nil {
					t.Error(r.Err)
				}
				if r.Counts.Replaced != int(b2u(logged)) {
					t.Errorf("%d replaced", r.Counts.Replaced)
				}
			})
		})
	}
}

// snapshotAt is the file of a group's snapshot.
func (n *node) snapshotAt(t *testing.T, id timer.ShardID, index uint64) durableFile {
	t.Helper()
	dir := filepath.Join(dataDir, "snapshots")
	list, err := wal.Snapshots(n.disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Shard == uint32(id) && s.Index == index {
			return durableFile{path: filepath.Join(dir, s.Name), upTo: int(s.Bytes)}
		}
	}
	t.Fatalf("there is no snapshot %d of group %d", index, id)
	return durableFile{}
}
