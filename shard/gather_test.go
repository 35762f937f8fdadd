package shard

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/timer"
)

// leaderWithMutePeers is the leader of three nodes, the other two of which have stopped to answer.
func leaderWithMutePeers(t *testing.T) (*hostHarness, *fakePeers) {
	t.Helper()
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.runIdle()
	c.mute, c.only, c.sent = true, 1, nil
	return r, c
}

// submitAdds submits so many adds to shard 1.
func submitAdds(r *hostHarness, name string, n int) (adds []*pending) {
	r.t.Helper()
	for i := range n {
		p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(name, i), Spec: &timer.Spec{DueMs: r.clock.wallMs + time.Hour.Milliseconds()}})
		if err != nil {
			r.t.Fatal(err)
		}
		adds = append(adds, p)
	}
	return adds
}

// agree has both peers agree to all that they were sent so far.
func (p *fakePeers) agree() {
	sent := p.sent
	p.sent = nil
	for _, m := range sent {
		if a := agreement(m); a != nil {
			p.send(1, a)
		}
	}
	p.r.runIdle()
}

// appends are the appends to shard 1 that were sent, with entries and without.
func (p *fakePeers) appends() (with, without []*pb.Message) {
	for _, m := range p.sent {
		switch {
		case m.GetType() != pb.MsgApp:
		case len(m.Entries) > 0:
			with = append(with, m)
		default:
			without = append(without, m)
		}
	}
	return with, without
}

// TestChangesShareAnEntry: changes that arrive while an entry is on its way to the other voters
// wait until it is applied, and share the next one.
func TestChangesShareAnEntry(t *testing.T) {
	r, c := leaderWithMutePeers(t)
	g := r.host.group(1)
	made := g.pipeline.number
	first := submitAdds(r, "first", 1)
	r.runIdle()
	if g.pipeline.number != made+1 {
		t.Fatalf("%d entries were proposed for the first add, want 1 at once", g.pipeline.number-made)
	}
	others := submitAdds(r, "other", 5)
	r.runIdle()
	if g.pipeline.number != made+1 || !g.pipeline.gathering {
		t.Fatalf("%d entries were proposed while the first is on its way, want 1", g.pipeline.number-made)
	}
	c.agree()
	if !first[0].answered() || g.pipeline.number != made+2 || len(g.pipeline.proposals) != 1 || len(g.pipeline.proposals[0].items) != len(others) {
		t.Fatalf("answered: %v; %d entries, want 2; the last has %d changes, want %d", first[0].answered(), g.pipeline.number-made, len(g.pipeline.proposals[0].items), len(others))
	}
	c.agree()
	for _, p := range others {
		if !p.answered() || p.op.err != nil {
			t.Errorf("%s: answered %v, %v", p.cmd.ID, p.answered(), p.op.err)
		}
	}
}

// TestChangesGatherForAMomentOnly: changes wait neither for long nor when they are many.
func TestChangesGatherForAMomentOnly(t *testing.T) {
	r, _ := leaderWithMutePeers(t)
	g := r.host.group(1)
	made := g.pipeline.number
	submitAdds(r, "first", 1)
	r.runIdle()
	submitAdds(r, "second", 1)
	r.pass(gatherFor - time.Millisecond)
	if g.pipeline.number != made+1 {
		t.Fatalf("%d entries before the time is over, want 1", g.pipeline.number-made)
	}
	r.pass(time.Millisecond)
	if g.pipeline.number != made+2 {
		t.Fatalf("%d entries when the time is over, want 2", g.pipeline.number-made)
	}
	submitAdds(r, "many", maxGather)
	r.runIdle()
	if g.pipeline.number != made+3 {
		t.Fatalf("%d entries, want one at once for many changes", g.pipeline.number-made)
	}
}

// TestCommitGoesWithTheNextEntry: followers learn that an entry is committed by the append of the
// next one, if changes wait for it, and otherwise at once.
func TestCommitGoesWithTheNextEntry(t *testing.T) {
	r, c := leaderWithMutePeers(t)
	submitAdds(r, "first", 1)
	r.runIdle()
	submitAdds(r, "second", 1)
	r.runIdle()
	committed := r.host.group(1).store.Last()
	c.agree()
	with, without := c.appends()
	if len(with) != 2 || len(without) != 0 {
		t.Fatalf("%d appends with entries and %d without, want 2 and 0", len(with), len(without))
	}
	for _, m := range with {
		if m.GetCommit() != committed {
			t.Errorf("the append to %x says that entry %d is committed, want %d", m.GetTo(), m.GetCommit(), committed)
		}
	}
	c.agree()
	if with, without = c.appends(); len(with) != 0 || len(without) != 2 {
		t.Fatalf("%d appends with entries and %d without after the last change, want 0 and 2", len(with), len(without))
	}
}

// TestHeldAppendIsSentAtATick: an append without entries that no other one has followed is sent at
// the next tick. Raft may need it to find out what was lost.
func TestHeldAppendIsSentAtATick(t *testing.T) {
	r, c := leaderWithMutePeers(t)
	g := r.host.group(1)
	r.freeze = true // so that the entry stays unapplied
	submitAdds(r, "first", 1)
	r.runIdle()
	c.agree()
	if _, without := c.appends(); len(without) != 0 || len(g.pipeline.held) != 2 {
		t.Fatalf("%d appends without entries were sent and %d are held, want 0 and 2", len(without), len(g.pipeline.held))
	}
	r.step(tickInterval)
	r.runIdle()
	if _, without := c.appends(); len(without) != 2 || len(g.pipeline.held) != 0 {
		t.Fatalf("%d appends without entries were sent and %d are held, want 2 and 0", len(without), len(g.pipeline.held))
	}
}

// TestHeldAppendEndsWithTheLeadership: what a leader held back is not sent in a later term.
func TestHeldAppendEndsWithTheLeadership(t *testing.T) {
	r, c := leaderWithMutePeers(t)
	g := r.host.group(1)
	r.freeze = true
	submitAdds(r, "first", 1)
	r.runIdle()
	submitAdds(r, "second", 1)
	r.runIdle()
	c.agree()
	if len(g.pipeline.held) == 0 || !g.pipeline.gathering {
		t.Fatalf("%d appends are held, gathering %v", len(g.pipeline.held), g.pipeline.gathering)
	}
	c.sent = nil
	c.send(1, heartbeat(g.term+1))
	r.freeze = false
	r.pass(2 * tickInterval)
	if with, without := c.appends(); g.leader || len(with)+len(without)+len(g.pipeline.held) != 0 || g.pipeline.gathering {
		t.Errorf("leads %v; %d appends were sent, %d are held; gathering %v", g.leader, len(with)+len(without), len(g.pipeline.held), g.pipeline.gathering)
	}
}
