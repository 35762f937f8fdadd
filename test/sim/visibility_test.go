package sim

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoIsBlind: limits go unchecked only while a leader is cut off from all shards that another
// may lead.
func TestWhoIsBlind(t *testing.T) {
	for _, test := range []struct {
		name     string
		replicas int
		cut      time.Duration
		between  bool // a third node hears both
		blind    bool
	}{
		{"apart for long, and both lead", 1, 7 * time.Second, false, true},
		{"not for long", 1, 4 * time.Second, false, false},
		{"somebody is between them", 1, 7 * time.Second, true, false},
		{"another leads for who is cut off", 3, 7 * time.Second, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			script := func(w *World) {
				w.lay()
				w.found()
				w.pass(time.Second)
				a := w.leader(1)
				for i, b := range w.others(a) {
					if i > 0 && test.between {
						break
					}
					w.net.cut[[2]uint64{a.id, b.id}], w.net.cut[[2]uint64{b.id, a.id}] = true, true
				}
				cut := w.now
				w.pass(test.cut)
				if blind := w.checker.limits.blindUntil > cut; blind != test.blind {
					t.Errorf("a node is blind: %v", blind)
				}
				w.net.heal(w.now)
				w.pass(2 * time.Second)
				if w.checker.limits.blindUntil >= w.now {
					t.Error("a node is blind for ever")
				}
			}
			synctest.Test(t, func(t *testing.T) {
				r := Run(Config{Seed: 1, Settle: synctest.Wait, script: script, Change: func(p *Plan) {
					p.nodes, p.shards, p.replicas, p.early = 3, 4, test.replicas, false
					p.calm()
				}})
				if r.Err != nil {
					t.Error(r.Err)
				}
			})
		})
	}
}

func (w *World) others(a *node) (list []*node) {
	for _, n := range w.nodes {
		if n != a {
			list = append(list, n)
		}
	}
	return list
}
