package shard

import (
	"errors"
	"slices"
	"testing"
	"time"

	"carillon/timer"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// metaOp submits a command to the meta group.
func (h *hostHarness) metaOp(cmd string) *metaOp {
	o := &metaOp{meta: h.host.metaGroup(), cmd: []byte(cmd), deadline: h.clock.mono + waitLimit, wait: fakeWaiter()}
	h.host.workers[0].box.post(o)
	h.runIdle()
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
func (p *fakePeers) elects(id timer.ShardID) {
	p.r.t.Helper()
	g := p.r.host.group(id)
	for n := 0; !g.leader; n++ {
		if n > 200 {
			p.r.t.Fatalf("group %d has no leader", id)
		}
		p.r.pass(tickInterval)
		asked := p.sent
		p.sent = nil
		for _, m := range asked {
			if kind := m.GetType(); nodeOf(m.GetTo()) == 8 && (kind == pb.MsgPreVote || kind == pb.MsgVote) {
				p.send(id, agreement(m))
			}
		}
		p.r.runIdle()
	}
}

// withMetaLearner makes node 10 a learner of the meta group of three scripted nodes, which the harness leads.
func withMetaLearner(t *testing.T) (*hostHarness, *fakePeers) {
	t.Helper()
	r, c := withFakePeers(t, false, func(cfg *Config) {
		row := *cfg.Meta
		row.Members = append(slices.Clone(row.Members), Member{Node: 10, Replica: ReplicaID(10, 1), Learner: true})
		cfg.Meta = &row
	})
	g := r.host.group(Meta)
	if len(g.store.Conf.Learners) != 1 {
		t.Fatalf("the meta group has the learners %x, want one", g.store.Conf.Learners)
	}
	for n := 0; !g.serving; n++ {
		if n > 100 {
			t.Fatal("the meta group has no leader")
		}
		r.pass(tickInterval)
	}
	return r, c
}

// to returns how many messages of a type were sent to a node.
func (p *fakePeers) to(node uint64, of pb.MessageType) (n int) {
	for _, m := range p.sent {
		if m.GetType() == of && nodeOf(m.GetTo()) == node {
			n++
		}
	}
	return n
}

// TestMetaLearnersHaveFewHeartbeats: the leader of the meta group sends a voter ten heartbeats a
// second and a learner, of which there may be a thousand, one. A learner gets each change at once,
// and ten heartbeats while the members change: it may be one that is to vote.
func TestMetaLearnersHaveFewHeartbeats(t *testing.T) {
	r, c := withMetaLearner(t)
	r.pass(5 * time.Second)
	c.sent = nil
	r.pass(10 * time.Second)
	if voter, learner := c.to(8, pb.MsgHeartbeat), c.to(10, pb.MsgHeartbeat); voter < 100 || learner != 10 {
		t.Errorf("in ten seconds a voter got %d heartbeats and a learner %d, want 100 at least and 10", voter, learner)
	}
	c.sent = nil
	r.metaOp("x")
	if c.to(10, pb.MsgApp) == 0 {
		t.Error("a change was not sent to the learner at once")
	}
	r.host.group(Meta).membership.row.Settled = false
	c.sent = nil
	r.pass(time.Second)
	if n := c.to(10, pb.MsgHeartbeat); n < 9 {
		t.Errorf("a learner got %d heartbeats in a second while the members change, want 9 at least", n)
	}
}

// TestMetaLearnerGetsWhatWasLost: a learner to which a change was lost gets it after its next
// heartbeat.
func TestMetaLearnerGetsWhatWasLost(t *testing.T) {
	r, c := withMetaLearner(t)
	r.pass(time.Second)
	c.mute = true
	o := r.metaOp("x") // whose append is lost, on its way to all
	c.mute, c.sent = false, nil
	r.pass(time.Second + raftTick)
	if !o.ended() || o.err != nil {
		t.Fatalf("the change: ended %v, %v", o.ended(), o.err)
	}
	g := r.host.group(Meta)
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if nodeOf(id) == 10 && pr.Match != g.store.Last() {
			t.Errorf("the learner has entries up to %d, want %d", pr.Match, g.store.Last())
		}
	})
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
