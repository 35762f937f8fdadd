package shard

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/table"
)

// follows makes the harness a follower of node 8 in its shard and in the meta group.
func (p *fakePeers) follows() {
	p.r.t.Helper()
	for _, g := range p.r.host.all() {
		for g.raft.BasicStatus().Lead != ReplicaID(8, 1) {
			p.send(g.shard, heartbeat(g.raft.BasicStatus().GetTerm()+1))
			p.r.runIdle()
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
				c.send(g.shard, heartbeat(g.raft.BasicStatus().GetTerm()))
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
		r.pass(raftTick + 2*candidacyEvery)
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
			r.runIdle()
			for _, g := range r.host.all() {
				c.send(g.shard, heartbeat(g.raft.BasicStatus().GetTerm()))
			}
			r.runIdle()
		}
		if n := c.count(pb.MsgPreVote); n > 0 {
			t.Errorf("%d votes are asked for", n)
		}
		r.abort()
	}
}

// TestCandidateThatEnds: a group whose candidate ends with this replica's vote, and before it leads,
// elects another at once. So ends a node that is stopped just when a leadership is handed to it.
func TestCandidateThatEnds(t *testing.T) {
	for range 10 { // raft draws its time-outs
		r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Placement = willing{} })
		c.follows()
		for _, g := range r.host.all() {
			status := g.raft.BasicStatus()
			last := g.store.Last()
			at, _ := g.store.Term(last)
			c.send(g.shard, &pb.Message{Type: pb.MsgVote.Enum(), From: new(ReplicaID(9, 1)), To: new(g.id), Term: new(status.GetTerm() + 1),
				Index: &last, LogTerm: &at, Context: []byte("CampaignTransfer")})
		}
		r.runIdle()
		if n := c.count(pb.MsgVoteResp); n != len(r.host.all()) {
			t.Fatalf("%d votes of %d are given", n, len(r.host.all()))
		}
		r.host.SeemsGone(table.NewIncarnation(9, 1))
		r.pass(2 * candidacyEvery)
		for _, g := range r.host.all() {
			if !g.leader {
				t.Errorf("group %d has no leader", g.shard)
			}
		}
		r.abort()
	}
}

// TestTransfereeEnds: a leadership is handed to a node that ends, at each step of the transfer. The
// shard takes a timer soon after each.
func TestTransfereeEnds(t *testing.T) {
	const soon = 500 * time.Millisecond
	led, ended := false, false
	for at := 1; !ended; at++ {
		inHostCluster(t, 3, func(c *hostCluster) {
			c.takes(time.Second)
			former := c.shard(0)
			former.transfer.begin(former, ReplicaID(firstNode+1, 1))
			former.w.touchNext(former)
			steps := c.steps
			c.after = func() {
				if c.steps != steps+at {
					return
				}
				led = led || c.shard(1).leader
				c.crash(1)
				for _, i := range []int{0, 2} {
					c.hosts[i].host.SeemsGone(table.NewIncarnation(firstNode+1, 1))
				}
			}
			for c.round() {
			}
			ended = c.steps < steps+at
			c.takes(soon)
		})
	}
	if !led {
		t.Error("the transferee never led")
	}
}
