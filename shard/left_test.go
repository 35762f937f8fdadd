package shard

import (
	"testing"
	"time"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"

	pb "go.etcd.io/raft/v3/raftpb"
)

// carriedOverHarness leads shard 1 of three nodes. Topic 1 allows two leases at once, of 30 s each.
// Consumers hold two.
func carriedOverHarness(t *testing.T) (r *hostHarness, c *fakePeers, part *partial, got []timer.PulledTimer) {
	t.Helper()
	part = &partial{atOnce: 2}
	r, c = withFakePeers(t, false, func(cfg *Config) { cfg.Shares = part })
	c.leads()
	r.pulled(func(p *timer.Policy) { p.Concurrency = 2 })
	for _, id := range []string{"a", "b", "c"} {
		r.add(id, 0)
	}
	r.pass(time.Millisecond)
	got = r.wantPull(9, "a b")
	r.wantHeld(part, 2, 0)
	return r, c, part, got
}

// wantHeld checks the number of topic 1's leases that count here, and the number passed to another
// node to count.
func (h *hostHarness) wantHeld(part *partial, held, passed int) {
	h.t.Helper()
	if got := h.host.Held(1); got != held || part.passed != passed {
		h.t.Fatalf("%d leases are counted, %d were passed on; want %d and %d", got, part.passed, held, passed)
	}
}

// falls makes node 8 the leader.
func (p *fakePeers) falls() {
	p.r.t.Helper()
	p.mute = true
	p.send(1, heartbeat(p.r.host.group(1).term+1))
	p.r.runIdle()
	if p.r.host.group(1).leader {
		p.r.t.Fatal("it leads on")
	}
}

// TestLeftLeasesCount: leases that consumers hold when a leader falls keep counting there, since no
// other leader may count them yet. When one should have ended, the new leader may have extended it:
// after a grace period it counts at the new leader. Found by the simulator.
func TestLeftLeasesCount(t *testing.T) {
	r, c, part, _ := carriedOverHarness(t)
	c.falls()
	r.wantHeld(part, 2, 0)
	r.pass(30*time.Second + scheduler.LeftGrace - time.Second)
	r.wantHeld(part, 2, 0)
	r.pass(2 * time.Second)
	r.wantHeld(part, 0, 2)
	r.wantFree()
	r.wantHeld(part, 0, 2)
	r.abort()
}

// TestLeftLeasesOfAReplicaThatIsGone: after its replica is removed, leases count until their end by
// the clock alone, as there is no table any more. The worker is idle meanwhile, although timers of
// the removed replica are due.
func TestLeftLeasesOfAReplicaThatIsGone(t *testing.T) {
	r, _, part, _ := carriedOverHarness(t)
	r.host.Place([]Assignment{{Group: 1, Epoch: 2, Settled: true, Members: []Member{{Node: 8, Replica: ReplicaID(8, 1)}, {Node: 9, Replica: ReplicaID(9, 1)}}}})
	r.runIdle()
	if r.host.group(1).raft != nil {
		t.Fatal("the replica is there")
	}
	r.wantHeld(part, 2, 0)
	r.pass(29 * time.Second)
	r.wantHeld(part, 2, 0)
	r.pass(2 * time.Second)
	r.wantHeld(part, 0, 2)
	r.wantFree()
	r.abort()
}

// TestLeftLeasesThatEnded: a lease that ends in the log stops counting, and is not passed to
// another node.
func TestLeftLeasesThatEnded(t *testing.T) {
	r, c, part, got := carriedOverHarness(t)
	c.falls()
	g, b := r.host.group(1), table.Batch{}
	b.Reset(r.clock.wallMs, 1, 1)
	b.Outcome(&table.Outcome{Handle: got[0].Handle, Seq: got[0].Timer.Seq, Fence: got[0].Timer.Fence, Kind: table.Ack})
	last := g.store.Last()
	term, err := g.store.Term(last)
	if err != nil {
		t.Fatal(err)
	}
	now := g.raft.BasicStatus().GetTerm()
	c.send(1, &pb.Message{Type: pb.MsgApp.Enum(), From: new(ReplicaID(8, 1)), To: &g.id, Term: &now, Index: &last, LogTerm: &term, Commit: new(last + 1),
		Entries: []*pb.Entry{{Index: new(last + 1), Term: &now, Type: pb.EntryNormal.Enum(), Data: b.Bytes()}}})
	r.pass(2 * scheduler.LimitPoll)
	if d := shardOf(g).table.Due(got[0].Handle); d.State == timer.Leased {
		t.Fatal("the lease is not over")
	}
	r.wantHeld(part, 1, 0)
	r.pass(30*time.Second + scheduler.LeftGrace)
	r.wantHeld(part, 0, 1)
	r.abort()
}

// TestLeftLeasesOfTheNextReign: a leader that falls and leads again counts each lease once, until
// its end. Found by the simulator.
func TestLeftLeasesOfTheNextReign(t *testing.T) {
	r, c, part, got := carriedOverHarness(t)
	c.falls()
	c.mute = false
	c.leads()
	r.wantHeld(part, 2, 0)
	r.wantPull(9, "")
	r.wantClaim(timer.AckLease, got[0], timer.OK, nil)
	r.wantHeld(part, 1, 0)
	r.wantPull(9, "c")
	r.wantHeld(part, 2, 0)
	r.pass(32 * time.Second) // b's lease expires, and stops counting with c's
	if n := r.host.Held(1); n != 0 || part.passed != 0 {
		t.Errorf("%d leases are counted, %d were passed on", n, part.passed)
	}
	r.abort()
}

// TestLeftLeasesOfATopicWithoutALimit: the next leadership counts no leases of a topic that no
// longer has a limit. Leases carried over from the last one count until they end; or, if the next
// one scans for leases because another topic has a limit, until that scan ends.
func TestLeftLeasesOfATopicWithoutALimit(t *testing.T) {
	for _, walks := range []bool{false, true} {
		r, c, part, _ := carriedOverHarness(t)
		want := 2
		if walks {
			want = 0
			r.topic(2, func(p *timer.Topic) { p.Policy.Concurrency = 1 })
			r.topicsChanged()
			r.do(timer.Command{Kind: timer.Add, Topic: 2, ID: "x", Spec: &timer.Spec{DueMs: r.clock.wallMs + time.Hour.Milliseconds()}})
		}
		c.falls()
		r.pulled(nil)
		r.wantHeld(part, 2, 0)
		c.mute = false
		c.leads()
		r.pass(time.Second)
		r.wantHeld(part, want, 0)
		r.pass(30*time.Second + scheduler.LeftGrace)
		r.wantHeld(part, 0, 0)
		r.abort()
	}
}
