package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/test/memfs"
)

// TestOldDirectoryPutBack: a node's directory, or its identity.json alone, is replaced by an older
// copy. It lacks votes and acknowledgements of the node, so no process that knows this may accept
// the node. Others know it from the cluster's record, even if all of them have restarted; from
// processes that they have met and the copy lacks; or from the node's own reports about its log.
// The process records the fault on its disk and ends, and no later start gets further.
func TestOldDirectoryPutBack(t *testing.T) {
	for _, test := range []struct {
		name  string
		since int  // starts since the copy was made
		brief bool // … the last of which was not recorded
		alone bool // identity.json alone
		anew  bool // all others restart
	}{
		{name: "some starts ago", since: 3},
		{name: "some starts ago, by the record", since: 3, anew: true},
		{name: "one start ago, by the record", since: 1, anew: true},
		{name: "identity one start ago", since: 1, alone: true, anew: true},
		{name: "a start that is not on record", since: 1, brief: true},
		{name: "in the newest start"},
	} {
		t.Run(test.name, func(t *testing.T) {
			seeds := uint64(2)
			if testing.Short() {
				if seeds = 1; test.since > 1 {
					t.Skip("it takes three more starts")
				}
			}
			for seed := uint64(1); seed <= seeds; seed++ {
				scripted(t, seed, func(w *World) {
					n := w.nodes[int(seed)%3]
					w.restartOf(t, n, nil)
					w.pass(time.Second)
					older := n.copyOf()
					for i := range test.since {
						if test.brief && i == test.since-1 {
							w.startBriefly(t, n)
							continue
						}
						w.restartOf(t, n, nil)
					}
					for _, other := range w.nodes {
						if other != n && (test.anew || test.since == 0) { // its log grows by that
							w.restartOf(t, other, nil)
						}
					}
					if test.since == 0 {
						w.pass(time.Second)
					}
					w.putsBackInVain(t, n, older, test.alone)
				})
			}
		})
	}
}

// scripted runs a script on a quiet cluster of three.
func scripted(t *testing.T, seed uint64, script func(w *World)) {
	synctest.Test(t, func(t *testing.T) {
		r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
			representative(p)
			p.nodes = 3
			p.calm()
		}, script: func(w *World) {
			w.lay()
			w.found()
			script(w)
		}})
		if r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		}
	})
}

// putsBackInVain puts a copy back and waits until the node has ended because of it, also at another
// start. No process may accept it meanwhile.
func (w *World) putsBackInVain(t *testing.T, n *node, older *memfs.FS, alone bool) {
	n.held = true
	n.stop(false)
	n.putBack(older, alone)
	n.held = false
	n.start()
	first := n.life
	if !w.passUntil(30*time.Second, func() bool {
		for _, other := range w.nodes {
			if c := w.net.connections[[2]uint64{n.id, other.id}]; n.up && n.life == first && c == (connection{n.life, other.life}) {
				t.Errorf("node %d hears it", other.id)
				return true
			}
		}
		return n.halted
	}) {
		t.Errorf("node %d goes on: %s", n.id, w.describe())
	}
	if !w.passUntil(time.Minute, func() bool { return w.counts.HeldBack > 0 }) {
		t.Error("a later start is not refused")
	}
}

// startBriefly ends a machine's next process when another has met it, before the cluster records
// its start.
func (w *World) startBriefly(t *testing.T, n *node) {
	n.stop(false)
	before := n.starts
	for range 1_000_000 {
		if n.starts > before && slices.ContainsFunc(w.nodes, func(other *node) bool { return other.met[n.id].starts == n.starts }) {
			break
		}
		w.pass(100 * time.Microsecond)
	}
	for _, other := range w.nodes {
		if known, _ := other.state.Node(n.id); known.Starts > before {
			t.Fatalf("node %d has start %d of node %d on record, which has begun its process %d", other.id, known.Starts, n.id, n.starts)
		}
	}
}

// restartOf stops a machine, gives it another disk unless disk is nil, and waits until the cluster
// knows of its next start.
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
