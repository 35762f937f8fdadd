package shard

import (
	"fmt"
	"testing"
	"time"

	"carillon/shard/table"
)

func TestOwner(t *testing.T) {
	a, b := table.NewIncarnation(7, 1), table.NewIncarnation(7, 2)
	if a == b || a.Node() != 7 || b.Node() != 7 || b.Start() != 2 || table.NewIncarnation(8, 1).Node() != 8 {
		t.Error("owners of nodes 7 and 8")
	}
}

// TestNotReady: a host is ready if every shard has fired its canary recently.
func TestNotReady(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.Shards = 2 })
	r.pass(time.Second)
	if err := r.host.NotReady(false); err != nil {
		t.Errorf("after a second: %v", err)
	}
	r.pass(time.Minute)
	if err := r.host.NotReady(false); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	r.freeze = true
	r.pass(canaryLate + canaryEach)
	late, ok := r.host.NotReady(false).(*CanaryError)
	if !ok || late.Shard != 1 || late.Late < canaryLate || late.Error() != fmt.Sprintf("shard 1 fired its canary timer %s ago", late.Late.Round(time.Second)) {
		t.Errorf("while the disk hangs: %v", r.host.NotReady(false))
	}
	r.freeze = false
	r.pass(canaryEach + time.Second)
	if err := r.host.NotReady(false); err != nil {
		t.Errorf("after it: %v", err)
	}
	if n := len(r.observer.latenessMs); n != 0 {
		t.Errorf("%d canaries count as timers", n)
	}
}

// TestReadyWhileALeaderChanges: a node that was ready stays so for a moment while a shard has no
// leader, or while it leads one whose canary has not fired yet. One that was not is not excused, and
// nobody for longer.
func TestReadyWhileALeaderChanges(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.Shards = 2 })
	r.pass(time.Second)
	is := func(what string, was, want bool) {
		t.Helper()
		if err := r.host.NotReady(was); (err == nil) != want {
			t.Errorf("%s, ready before %v: %v", what, was, err)
		}
	}
	g := r.host.group(1)
	changes := func(leader uint64) {
		g.public.leader.Store(leader)
		g.public.changed.Store(int64(r.clock.mono))
	}
	changes(0)
	if _, ok := r.host.Leader(3); ok || r.host.LacksLeader(3, true) || !r.host.LacksLeader(3, false) {
		t.Error("a shard that the host has not grown for")
	}
	is("without a leader", true, true)
	is("without a leader", false, false)
	if r.host.LacksLeader(1, true) || !r.host.LacksLeader(1, false) {
		t.Error("the leader is missed, or is not")
	}
	r.step(leaderChangeFor)
	is("without a leader for long", true, false)
	if !r.host.LacksLeader(1, true) {
		t.Error("the leader is not missed")
	}
	changes(7)
	shardOf(g).canary.passed.Store(0)
	is("before the canary", true, true)
	is("before the canary", false, false)
	r.step(leaderChangeFor)
	is("without the canary for long", true, false)
}
