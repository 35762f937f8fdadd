package shard

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/timer"
)

// appendFrom delivers one entry of a group, appended after the founding by node from as the leader
// of term 6.
func (p *fakePeers) appendFrom(from uint64, id timer.ShardID) {
	const term = 6
	index := uint64(foundingIndex) + 1
	p.send(id, &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(ReplicaID(from, 1)), To: new(ReplicaID(7, 1)), Term: new(uint64(term))})
	p.r.runIdle() // the new term is on disk
	p.send(id, &pb.Message{Type: pb.MsgApp.Enum(), From: new(ReplicaID(from, 1)), To: new(ReplicaID(7, 1)), Term: new(uint64(term)),
		Index: new(index - 1), LogTerm: new(uint64(foundingTerm)), Commit: new(uint64(foundingIndex)),
		Entries: []*pb.Entry{{Index: &index, Term: new(uint64(term))}}})
	p.sent = nil
	p.r.runIdle()
}

// TestSpareVoterWaits: of three voters the second after the leader writes entries a moment later,
// and the first one at once.
func TestSpareVoterWaits(t *testing.T) {
	const index = foundingIndex + 1
	r, c := withFakePeers(t, true, nil)
	c.appendFrom(8, 1) // this one, node 7, is the second after node 8
	if !r.host.group(1).membership.spare(r.host.group(1)) || c.acknowledged(index) {
		t.Fatalf("spare %v, acknowledged %v", r.host.group(1).membership.spare(r.host.group(1)), c.acknowledged(index))
	}
	r.pass(spareFor)
	if !c.acknowledged(index) {
		t.Fatal("the entry is not acknowledged when the time is over")
	}
	r, c = withFakePeers(t, true, nil)
	c.appendFrom(9, 1) // the first after node 9
	if r.host.group(1).membership.spare(r.host.group(1)) || !c.acknowledged(index) {
		t.Fatalf("spare %v, acknowledged %v", r.host.group(1).membership.spare(r.host.group(1)), c.acknowledged(index))
	}
}

// TestSpareVoterJoinsAFrame: entries of a spare voter go with the next frame of another group.
func TestSpareVoterJoinsAFrame(t *testing.T) {
	const index = foundingIndex + 1
	r, c := withFakePeers(t, true, nil)
	c.appendFrom(8, 1)
	if c.acknowledged(index) || r.observer.frames == 0 {
		t.Fatal("the entry did not wait")
	}
	frames := r.observer.frames
	c.appendFrom(9, 0)
	// One frame for the new term of the meta group, which has the waiting entries too, and one for
	// its entry.
	if got := r.observer.frames - frames; got != 2 || r.host.group(1).store.Last() != index || r.host.group(0).store.Last() != index {
		t.Fatalf("%d more frames, want 2; the logs end at %d and %d", got, r.host.group(1).store.Last(), r.host.group(0).store.Last())
	}
}

// TestNobodyIsSpareInAChange: of two voters, of one that is being replaced, and of a learner, none
// waits; of five voters two do.
func TestNobodyIsSpareInAChange(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	c.appendFrom(8, 1)
	g := r.host.group(1)
	own, leader := g.id, ReplicaID(8, 1)
	other := func(n uint64) uint64 { return ReplicaID(n, 1) }
	for _, test := range []struct {
		conf  *pb.ConfState
		spare bool
	}{
		{&pb.ConfState{Voters: []uint64{own, leader}}, false},
		{&pb.ConfState{Voters: []uint64{own, leader, other(9)}}, true},
		{&pb.ConfState{Voters: []uint64{own, leader, other(9)}, VotersOutgoing: []uint64{own, leader, other(10)}}, false},
		{&pb.ConfState{Voters: []uint64{leader, other(9), other(10)}, Learners: []uint64{own}}, false},
		{&pb.ConfState{Voters: []uint64{leader, other(9), own, other(11), other(12)}}, false},
		{&pb.ConfState{Voters: []uint64{leader, other(9), other(10), own, other(12)}}, true},
		{&pb.ConfState{Voters: []uint64{own, other(9), other(10), other(11)}}, false}, // its leader has gone
	} {
		if g.store.Conf = test.conf; g.membership.spare(g) != test.spare {
			t.Errorf("%s: spare %v", confText(test.conf), !test.spare)
		}
	}
}
