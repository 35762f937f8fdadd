package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"carillon/test/memfs"
)

// TestKilledAsItFounds: the first process of a machine is killed before one change of its disk,
// each in turn, until its cluster is founded. The machine stays up, so the next process finds all
// changes of the first one, synced or not. Then the power is cut and unsynced data is lost: before
// each change until the log is open, and after the founding. The node must keep its identity, know
// each start, and have all that it acknowledged (I1).
func TestKilledAsItFounds(t *testing.T) {
	stride := 5
	if testing.Short() || underRace {
		stride = 31
	}
	for _, nodes := range []int{1, 3} {
		changes := 0
		// The first changes create the directory, and each of them is tried.
		for at, struck := 1, true; struck; at += 1 + stride*min(1, at/8) {
			struck = false
			changes = at
			synctest.Test(t, func(t *testing.T) {
				cuts := newMatrix(1)
				r := Run(Config{Seed: uint64(at), Settle: synctest.Wait, Change: func(p *Plan) {
					representative(p)
					p.nodes, p.replicas, p.keepNames, p.keepData = nodes, nodes, 0, 0
				}, script: func(w *World) {
					w.lay()
					w.effect = cuts.afterKill(w, at, &struck)
					w.found()
					w.effect = nil
					w.employ()
					w.pass(500 * time.Millisecond)
					w.cutPower()
					w.conclude()
				}})
				if r.Err != nil || cuts.problem != "" {
					t.Fatalf("%d nodes, the first killed before change %d of its disk: %s, %v", nodes, at, cuts.problem, r.Err)
				}
			})
		}
		if t.Logf("%d nodes: killed before changes up to number %d", nodes, changes); changes < 100 {
			t.Error("so few changes found no cluster")
		}
	}
}

// afterKill kills the first machine's process before one of its disk changes. It then checks that a
// power cut leaves the identity of each process that has no log yet.
func (m *matrix) afterKill(w *World, at int, struck *bool) func(*node, memfs.Op, string) {
	count := 0
	return func(n *node, op memfs.Op, name string) {
		if n == w.nodes[0] && !*struck {
			if count++; count == at {
				n.crash.left, n.crash.kills, *struck = 1, true, true
			}
			return
		}
		if n.host == nil {
			m.same(fmt.Sprintf("power cut before %v %s", op, name), n, n.disk.CrashClone(w.chance, memfs.CrashOptions{}))
		}
	}
}
