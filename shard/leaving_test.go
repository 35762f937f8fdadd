package shard

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestLeaderThatLeavesAppendsNothing: a replica that is elected while it is on its way out proposes nothing more, and has one lead of those who
// stay. With an entry that it alone has it could give its vote to none of them, and they may still need it (I14). Found by the simulator: group 1
// had no leader for ever, in a run in which replicas moved and processes died.
func TestLeaderThatLeavesAppendsNothing(t *testing.T) {
	r, c := inCompany(t, false, func(cfg *Config) { cfg.Placement = willing{} })
	c.leads()
	r.pass(time.Second)
	g := r.host.groups[1]
	kind, id, transition := pb.ConfChangeRemoveNode, g.replica, pb.ConfChangeTransitionJointExplicit
	g.store.conf = g.raft.ApplyConfChange(&pb.ConfChangeV2{Transition: &transition, Changes: []*pb.ConfChangeSingle{{Type: &kind, NodeId: &id}}})
	last, _ := g.store.LastIndex()
	c.sent = nil
	p, err := r.submit(1, Command{Kind: Add, Topic: 1, ID: "late", Spec: &Spec{DueMs: r.clock.wallMs + 60_000}})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(time.Second)
	told := false
	for _, m := range c.sent {
		told = told || m.GetType() == pb.MsgTimeoutNow && nodeOf(m.GetTo()) != 7
	}
	if now, _ := g.store.LastIndex(); now != last || !told {
		t.Errorf("the log goes from entry %d to %d; an heir was told to stand: %v", last, now, told)
	}
	if p.answered() && p.op.err == nil {
		t.Error("acknowledged by who is on its way out")
	}
	r.abort()
}
