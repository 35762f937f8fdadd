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
	r.pass(canaryLate + canaryEvery)
	late, ok := r.host.NotReady(false).(*CanaryError)
	if !ok || late.Shard != 1 || late.Late < canaryLate || late.Error() != fmt.Sprintf("shard 1 fired its canary timer %s ago", late.Late.Round(time.Second)) {
		t.Errorf("while the disk hangs: %v", r.host.NotReady(false))
	}
	r.freeze = false
	r.pass(canaryEvery + time.Second)
	if err := r.host.NotReady(false); err != nil {
		t.Errorf("after it: %v", err)
	}
	if n := len(r.observer.latenessMs); n != 0 {
		t.Errorf("%d canaries count as timers", n)
	}
}

// TestReadyWhileALeaderChanges: a node that was ready stays so for a moment while a shard has no
// leader, or while it leads one whose canary has not fired yet. One that was not is not excused,
// and nobody for longer.
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
		g.public.changes(r.clock.mono, g.lacks(g.public.leader.Load()))
		g.public.leader.Store(leader)
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
	r.step(settleFor)
	is("without a leader for long", true, false)
	if !r.host.LacksLeader(1, true) {
		t.Error("the leader is not missed")
	}
	changes(7)
	is("with a leader just now", true, false)
	r.step(settleWithin)
	is("with a leader for long", true, true)
	changes(r.host.cfg.Node)
	shardOf(g).canary.passed.Store(0)
	is("before the canary", true, true)
	is("before the canary", false, false)
	r.step(settleFor)
	is("without the canary for long", true, false)
}

// TestNotReadyWhileLeadersChange: a shard that lacks a leader for a fifth of the time makes its
// node not ready, however short each time is, until it has rested. Changes in between, and a few
// short ones, do not.
func TestNotReadyWhileLeadersChange(t *testing.T) {
	for _, test := range []struct {
		lacks, leads time.Duration
		rounds       int
		ready        bool
	}{
		{700 * time.Millisecond, time.Second, 10, false},
		{100 * time.Millisecond, 200 * time.Millisecond, 100, false},
		{0, 300 * time.Millisecond, 100, true},
		{100 * time.Millisecond, 900 * time.Millisecond, 100, true},
		{600 * time.Millisecond, 100 * time.Millisecond, 3, true},
	} {
		r := newHostHarness(t, func(c *Config) { c.Shards = 2 })
		r.pass(time.Second)
		g := r.host.group(1)
		ready := func() bool { return r.host.NotReady(true) == nil }
		changes := func(leader uint64, d time.Duration) {
			g.public.changes(r.clock.mono, g.lacks(g.public.leader.Load()))
			g.public.leader.Store(leader)
			r.step(d)
			shardOf(r.host.group(2)).canary.passed.Store(int64(r.clock.mono))
		}
		var last [2]bool
		for n := range test.rounds {
			changes(0, test.lacks)
			last[0] = ready()
			changes(uint64(100+n), test.leads)
			last[1] = ready()
		}
		if last != [2]bool{test.ready, test.ready} {
			t.Errorf("%+v: ready without and with a leader: %v", test, last)
		}
		if r.step(settleFor); !ready() {
			t.Errorf("%+v: not ready after a rest: %v", test, r.host.NotReady(true))
		}
		r.abort()
	}
}
