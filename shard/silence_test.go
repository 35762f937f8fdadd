package shard

import (
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestSilences: a node is silent once nothing has arrived from it for a while, and is found so once.
func TestSilences(t *testing.T) {
	var s silences
	now := time.Hour
	look := func(after time.Duration, want ...uint64) {
		t.Helper()
		if now += after; !slices.Equal(s.look(now), want) {
			t.Errorf("%v after an hour: want that %v are silent", now-time.Hour, want)
		}
	}
	pass := func(d time.Duration) {
		t.Helper()
		for range d / tickInterval {
			look(tickInterval)
		}
	}
	pass(2 * silentAfter)
	s.InContact(9)
	s.InContact(8)
	pass(silentAfter - tickInterval)
	s.InContact(7)
	look(tickInterval, 8, 9)
	pass(silentAfter - 2*tickInterval)
	s.InContact(8)
	look(tickInterval, 7)
	pass(silentAfter - 2*tickInterval)
	look(tickInterval, 8)
	pass(2 * silentAfter)
}

// TestProcessThatStoodStillFindsNobodySilent: the time in which it did not look says little about
// others.
func TestProcessThatStoodStillFindsNobodySilent(t *testing.T) {
	var s silences
	now := time.Hour
	s.look(now)
	for range silentAfter/maxLookGap - 1 {
		s.InContact(8)
		for range silentAfter/maxLookGap - 1 {
			now += 10 * time.Second
			if silent := s.look(now); len(silent) > 0 {
				t.Fatalf("%v are silent", silent)
			}
		}
	}
	if now += 10 * time.Second; !slices.Equal(s.look(now), []uint64{8}) {
		t.Error("it takes for ever")
	}
}

// follows makes the harness a follower of node 8 in its shard and in the meta group.
func (c *fakePeers) follows() {
	c.r.t.Helper()
	for _, g := range c.r.host.all() {
		for g.raft.BasicStatus().Lead != ReplicaID(8, 1) {
			c.say(g.shard, heartbeat(g.raft.BasicStatus().GetTerm()+1))
			c.r.settle()
		}
	}
}

// TestSilentLeaderIsSucceeded: the groups that a node led elect others soon after its last message,
// and not before.
func TestSilentLeaderIsSucceeded(t *testing.T) {
	for range 10 { // raft draws its time-outs
		r, c := withFakePeers(t, false, nil)
		c.follows()
		for range 5 * time.Second / raftTick {
			for _, g := range r.host.all() {
				c.say(g.shard, heartbeat(g.raft.BasicStatus().GetTerm()))
			}
			r.pass(raftTick)
		}
		if n := c.count(pb.MsgPreVote); n > 0 {
			t.Errorf("%d votes are asked for while the leader is not silent", n)
		}
		r.pass(silentAfter - 2*raftTick)
		if n := c.count(pb.MsgPreVote); n > 0 {
			t.Errorf("%d votes are asked for too early", n)
		}
		r.pass(raftTick + 2*standEach)
		for _, g := range r.host.all() {
			if !g.leader {
				t.Errorf("group %d has no leader", g.shard)
			}
		}
		r.abort()
	}
}

// TestStoppedFollowerStandsForNothing: a process that was stopped follows its leader again.
func TestStoppedFollowerStandsForNothing(t *testing.T) {
	for range 10 { // raft draws its time-outs
		r, c := withFakePeers(t, false, nil)
		c.follows()
		for range 3 {
			r.step(time.Minute)
			r.settle()
			for _, g := range r.host.all() {
				c.say(g.shard, heartbeat(g.raft.BasicStatus().GetTerm()))
			}
			r.settle()
		}
		if n := c.count(pb.MsgPreVote); n > 0 {
			t.Errorf("%d votes are asked for", n)
		}
		r.abort()
	}
}
