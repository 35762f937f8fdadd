package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/vfs/memfs"
)

// TestOldDirectoryPutBack: a node's directory, or its identity.json alone, is put back from a copy. What the node has voted and acknowledged since is
// forgotten there, so nobody hears it who knows that: by the cluster's record, also when all others have begun anew since; by having met the processes
// that the copy lacks; by what it was told of the node's log. The process notes it on its disk and ends, and no later start gets further.
func TestOldDirectoryPutBack(t *testing.T) {
	for _, test := range []struct {
		name  string
		since int  // starts since the copy was made
		brief bool // … of which the last one was not put on record
		alone bool // identity.json alone
		anew  bool // all others begin anew
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
						if other != n && (test.anew || test.since == 0) { // by which its log grows
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

// scripted runs a quiet cluster of three through a script.
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

// putsBackInVain puts a copy back and waits until the node has ended by it, and has not got further at another start. Nobody may hear it meanwhile.
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

// startBriefly has a machine's next process end when another has met it and before the cluster has its start on record.
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
		if known, _ := other.state.Node(n.id); known.Starts != before {
			t.Fatalf("node %d has start %d of node %d on record, which has begun its process %d", other.id, known.Starts, n.id, n.starts)
		}
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
