package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"carillon/vfs/memfs"
)

// TestOldDirectoryPutBack: a node's directory is put back from a copy that was made some starts ago. What it has voted and acknowledged since is
// forgotten there, so nobody hears it; it is told so, notes it on its disk and ends, and no later start gets further. It is so, too, when all
// others have begun anew since: they know it from what the cluster has agreed on.
func TestOldDirectoryPutBack(t *testing.T) {
	for seed := uint64(1); seed <= 4; seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
				representative(p)
				p.nodes = 3
				p.calm()
			}, script: func(w *World) {
				w.lay()
				w.found()
				n := w.nodes[int(seed)%3]
				w.restartOf(t, n, nil)
				older := n.disk.CrashClone(w.chance, memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
				for range 3 {
					w.restartOf(t, n, nil)
				}
				if seed > 2 {
					for _, other := range w.nodes {
						if other != n {
							other.stop(false)
						}
					}
				}
				n.outdated, n.rotten, n.reached = true, true, nil
				clear(n.votes)
				w.restartOf(t, n, older)
				if !w.passUntil(30*time.Second, func() bool {
					for _, other := range w.nodes {
						if c := w.net.connections[[2]uint64{n.id, other.id}]; n.up && n.starts == 3 && c == (connection{n.life, other.life}) {
							t.Errorf("seed %d: node %d hears it", seed, other.id)
							return true
						}
					}
					return n.halted
				}) {
					t.Errorf("seed %d: node %d goes on: %s", seed, n.id, w.describe())
				}
				if !w.passUntil(time.Minute, func() bool { return w.counts.HeldBack > 0 }) {
					t.Errorf("seed %d: a later start is not refused", seed)
				}
			}})
			if r.Err != nil {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		})
	}
}

// restartOf stops a machine, gives it another disk unless that is nil, and waits until the cluster knows of its next start, if it is to.
func (w *World) restartOf(t *testing.T, n *node, disk *memfs.FS) {
	n.stop(false)
	if disk != nil {
		n.disk = disk
	}
	if !n.outdated && !w.passUntil(time.Minute, func() bool {
		leader := w.metaLeader()
		if leader == nil || n.host == nil {
			return false
		}
		known, ok := leader.state.Node(n.id)
		return ok && known.Starts == n.starts
	}) {
		t.Fatalf("the cluster does not know of start %d of node %d", n.starts, n.id)
	}
}
