package shard

import (
	"errors"
	"testing"
	"time"

	"carillon/timer"

	pb "go.etcd.io/raft/v3/raftpb"
)

// metaOp submits a command to the meta group.
func (r *hostHarness) metaOp(cmd string) *metaOp {
	o := &metaOp{meta: r.host.metaGroup(), cmd: []byte(cmd), deadline: r.clock.mono + waitLimit, wait: fakeWaiter()}
	r.host.workers[0].box.post(o)
	r.settle()
	return o
}

func (o *metaOp) ended() bool {
	select {
	case <-o.wait.ch:
		o.wait.ch <- struct{}{}
		return true
	default:
		return false
	}
}

// elects makes the harness the leader of a group. The other nodes grant their votes and agree to
// nothing else.
func (c *fakePeers) elects(id timer.ShardID) {
	c.r.t.Helper()
	g := c.r.host.group(id)
	for n := 0; !g.leader; n++ {
		if n > 200 {
			c.r.t.Fatalf("group %d has no leader", id)
		}
		c.r.pass(tickInterval)
		asked := c.sent
		c.sent = nil
		for _, m := range asked {
			if kind := m.GetType(); nodeOf(m.GetTo()) == 8 && (kind == pb.MsgPreVote || kind == pb.MsgVote) {
				c.say(id, agreement(m))
			}
		}
		c.r.settle()
	}
}

// TestMetaServesAfterItsFirstEntry: a leader of the meta group that has not applied the first entry
// of its term may lack entries acknowledged by former leaders. It does not serve before.
func TestMetaServesAfterItsFirstEntry(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	c.elects(Meta)
	g := r.host.group(Meta)
	o := r.metaOp("x")
	if g.serving || r.host.Leads(Meta) || len(g.pipeline.proposals) > 0 {
		t.Fatalf("it serves with entry %d of term %d applied, in term %d; %d proposals", g.applied, g.appliedTerm, g.term, len(g.pipeline.proposals))
	}
	if o.ended() {
		t.Fatalf("what waits is answered: %v", o.err)
	}
	c.mute = false
	r.pass(2 * time.Second)
	if !g.serving || !r.host.Leads(Meta) || !o.ended() || o.err != nil {
		t.Errorf("with the first entry of its term applied: serves %v, answered %v", g.serving, o.err)
	}
}

// TestMetaProposalEnds: the outcome of a meta proposal that is not committed in time is unknown. No
// caller waits for ever.
func TestMetaProposalEnds(t *testing.T) {
	r := newHostHarness(t, nil)
	r.freeze = true
	o := r.metaOp("x")
	r.pass(waitLimit + commitGrace - time.Second)
	if o.ended() {
		t.Fatalf("it ends at once: %v", o.err)
	}
	r.pass(2 * time.Second)
	if !o.ended() || !errors.Is(o.err, timer.ErrUnknown) {
		t.Fatalf("after its time: ended %v, %v", o.ended(), o.err)
	}
	r.freeze = false
	r.pass(time.Second)
	if len(r.machine.lines) != 1 {
		t.Errorf("the command took effect %d times", len(r.machine.lines))
	}
}

// TestMetaProposalThatRaftRefuses: a refused proposal has had no effect, so the caller is told to
// retry, and not that the outcome is unknown.
func TestMetaProposalThatRaftRefuses(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	g := r.host.group(Meta)
	for n := 0; !g.serving; n++ {
		if n > 200 {
			t.Fatal("the meta group has no leader")
		}
		r.pass(tickInterval)
	}
	g.raft.TransferLeader(ReplicaID(8, 1))
	o := r.metaOp("x")
	if !o.ended() || !errors.Is(o.err, timer.ErrNoLeader) {
		t.Fatalf("refused: ended %v, %v", o.ended(), o.err)
	}
	r.pass(3 * time.Second) // raft gives up the transfer
	if o = r.metaOp("y"); !o.ended() || o.err != nil || len(r.machine.lines) != 1 {
		t.Errorf("afterwards: %v, %d commands", o.err, len(r.machine.lines))
	}
}
