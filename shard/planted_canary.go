//go:build canary

package shard

import (
	"maps"
	"slices"
	"time"
)

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

// shutAll has every topic wait for the breaker of one.
func (l *lead) shutAll(until time.Duration) {
	if !planted("one-breaker-for-all") {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.topics)) {
		for _, n := range l.topics[id].lanes {
			if n.blockedUntil < until {
				n.blockedUntil = until
				l.shut.push(laneKey{until, n})
			}
		}
	}
}

// blind is leave to call where there is none.
func blind() Permit { return blindPermit{} }

type blindPermit struct{}

func (blindPermit) Start(_ *Delivery, done func(Attempt)) { done(Attempt{Err: "the breaker is open"}) }
func (blindPermit) Cancel()                               {}
