package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"carillon/ring"
	"carillon/timer"
)

// operatorsMistakes are the mistakes of TestOperatorsMistakesCostNoMajority.
var operatorsMistakes = []struct {
	name  string
	nodes int
	do    func(w *World, t *testing.T)
}{
	{"one empty in a rolling restart", 3, func(w *World, t *testing.T) { w.rollingRestart(1) }},
	{"two of three empty in a rolling restart", 3, func(w *World, t *testing.T) { w.rollingRestart(2) }},
	{"two of five empty", 5, twoEmpty},
	{"started in the wrong order", 3, wrongOrder},
	{"removals where nobody is heard", 3, removals},
}

// TestOperatorsMistakesCostNoMajority: no mistake of an operator leaves a group without most of its
// replicas on running nodes. The operator can repair refused steps by mounting the right volumes,
// and then nothing is lost: all invariants hold throughout the run and at its end.
func TestOperatorsMistakesCostNoMajority(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	each := 3
	if underRace {
		each = 1
	}
	for at, kind := range operatorsMistakes {
		t.Run(kind.name, func(t *testing.T) {
			for i := range each {
				seed := uint64(1 + at + len(operatorsMistakes)*i)
				r := run(t, Config{Seed: seed, Change: func(p *Plan) {
					representative(p)
					p.nodes, p.ordeals, p.clocks = kind.nodes, ordeals{}, clockFaults{}
					// Small files and hasty clients are no matter of these mistakes, and most of
					// the work.
					p.segmentBytes, p.genBytes, p.snapshotBytes, p.think = 16<<10, 64<<10, 16<<10, 200*time.Millisecond
				}, script: func(w *World) {
					w.lay()
					w.found()
					w.checker.buried = map[uint64]bool{}
					w.employ()
					w.workloads.drains = 0
					w.beginWorkloads()
					w.featureClients.begin()
					w.merging.begin()
					w.pass(3 * time.Second)
					kind.do(w, t)
					w.conclude()
					w.oneCluster(t)
				}})
				if r.Err != nil {
					t.Errorf("seed %d: %v", seed, r.Err)
				}
			}
		})
	}
}

// rollingRestart restarts one machine after another, in any order and without waiting for
// readiness. empty of them come up with empty volumes; the right ones are mounted at the end.
func (w *World) rollingRestart(empty int) {
	nodes := append([]*node(nil), w.nodes...)
	fresh := map[*node]*node{}
	for i, at := range w.chance.Perm(len(nodes)) {
		n := nodes[at]
		down := w.chance.between(100*time.Millisecond, 4*time.Second)
		if i < empty {
			fresh[n] = w.unmount(n)
			w.after(down, fresh[n].release)
		} else {
			n.held = true
			n.stop(false)
			w.after(down, n.release)
		}
		w.pass(w.chance.between(100*time.Millisecond, 15*time.Second))
	}
	w.pass(40 * time.Second)
	for _, n := range nodes {
		if fresh[n] != nil {
			w.mountRight(n, fresh[n])
		}
	}
	w.pass(5 * time.Second)
}

// twoEmpty makes two machines of five come up empty together, after all others have noticed that
// they were down.
func twoEmpty(w *World, t *testing.T) {
	a, b := w.nodes[w.chance.IntN(2)], w.nodes[2+w.chance.IntN(3)]
	freshA, freshB := w.unmount(a), w.unmount(b)
	w.pass(10 * time.Second)
	freshA.release()
	freshB.release()
	w.pass(30 * time.Second)
	w.mountRight(a, freshA)
	w.mountRight(b, freshB)
	w.pass(5 * time.Second)
}

// wrongOrder stops all machines and first starts those whose volumes are missing.
func wrongOrder(w *World, t *testing.T) {
	nodes := append([]*node(nil), w.nodes...)
	last := nodes[w.chance.IntN(len(nodes))]
	fresh := map[*node]*node{}
	for _, n := range nodes {
		if n != last {
			fresh[n] = w.unmount(n)
		}
	}
	last.held = true
	last.stop(false)
	for _, n := range nodes {
		if n != last {
			w.pass(w.chance.between(0, 3*time.Second))
			fresh[n].release()
		}
	}
	w.pass(20 * time.Second)
	last.release()
	w.pass(20 * time.Second)
	for _, n := range nodes {
		if fresh[n] == nil {
			continue
		}
		if w.knows(fresh[n]) {
			t.Errorf("node %d is let in, where one of three has what it had", fresh[n].id)
		}
		w.mountRight(n, fresh[n])
	}
	w.pass(5 * time.Second)
}

// removals asks an isolated machine to remove others, and the rest to remove one of two that are
// left.
func removals(w *World, t *testing.T) {
	alone := w.nodes[w.chance.IntN(len(w.nodes))]
	var rest []*node
	for _, n := range w.nodes {
		if n != alone {
			rest = append(rest, n)
			w.net.cut[[2]uint64{n.id, alone.id}], w.net.cut[[2]uint64{alone.id, n.id}] = true, true
		}
	}
	w.pass(10 * time.Second)
	for _, ask := range []struct {
		at, out *node
		want    error
	}{{alone, rest[0], timer.ErrNoLeader}, {alone, rest[1], timer.ErrNoLeader}, {rest[0], rest[1], ring.ErrMajority}, {rest[1], rest[0], ring.ErrMajority}} {
		err := w.insistOnRemoval(ask.at, ask.out)
		// a sent request may stay without an answer
		if !errors.Is(err, ask.want) && !(ask.at == alone && errors.Is(err, timer.ErrUnknown)) {
			t.Errorf("node %d is asked to remove node %d: %v", ask.at.id, ask.out.id, err)
		}
	}
	w.net.heal(w.now)
	w.pass(5 * time.Second)
	if len(w.checker.buried) > 0 {
		t.Errorf("nodes %v are removed", w.checker.buried)
	}
}

// insistOnRemoval asks a machine to remove another, and repeats that while it hears no node that
// could decide it. It returns the last error.
func (w *World) insistOnRemoval(at, out *node) (last error) {
	asked := false
	w.passUntil(20*time.Second, func() bool {
		if asked {
			return false
		}
		asked = true
		w.operator(at, func(ctx context.Context, at *node) error { return at.member.Remove(ctx, out.name, true, false) }, func(err error) {
			last, asked = err, !errors.Is(err, timer.ErrNoLeader)
		})
		return false
	})
	return last
}

// oneCluster checks that nobody has founded another cluster.
func (w *World) oneCluster(t *testing.T) {
	ids := map[string]bool{}
	for _, n := range w.nodes {
		if n.self != nil && !n.gone {
			ids[n.self.Identity().ClusterID] = true
		}
	}
	if len(ids) != 1 {
		t.Errorf("there are clusters %v", ids)
	}
}
