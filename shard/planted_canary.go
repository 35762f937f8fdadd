//go:build canary

package shard

// Planted names the deliberate bug of this build; empty: none.
var Planted string

func planted(name string) bool { return Planted == name }

// loseLeases drops all leased timers.
func (t *Table) loseLeases() {
	for h := Handle(1); h <= t.slab.high; h++ {
		if t.slab.at(h).state() == Leased {
			t.drop(h)
		}
	}
}
