package shard

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
	"carillon/timer"
)

// readOne submits a read of shard 1. answered: its answer is there.
func readOne(r *hostHarness) (rd *read, answered func() bool) {
	r.t.Helper()
	rd = &read{group: r.host.group(1), deadline: r.clock.mono + waitLimit, wait: fakeWaiter(), serve: func(int) bool { return true }}
	r.host.workers[0].box.post(rd)
	r.runIdle()
	return rd, func() bool { return len(rd.wait.ch) > 0 }
}

// termBody is a question about a term, or its answer.
func termBody(replica, term, number uint64) (b []byte) {
	for _, v := range []uint64{replica, term, number} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// TestReadNeedsAMajorityInItsTerm: a leader answers a read only when a majority of the voters was in
// its term after the read arrived. Nothing else counts: not an answer about an earlier term, to an
// earlier question, of another node, or of a replica without a vote.
func TestReadNeedsAMajorityInItsTerm(t *testing.T) {
	r, c := leaderWithMutePeers(t)
	g := r.host.group(1)
	_, earlier := readOne(r)
	c.answerTerm(9, 1, c.questions[len(c.questions)-1])
	if r.runIdle(); !earlier() {
		t.Fatal("a read that a majority has confirmed is not answered")
	}
	c.questions = nil
	_, answered := readOne(r)
	if len(c.questions) != 2 {
		t.Fatalf("%d questions to two other voters", len(c.questions))
	}
	in := record.Read(c.questions[0])
	if replica, term, number := in.Uvarint(), in.Uvarint(), in.Uvarint(); in.End() != nil || replica != ReplicaID(8, 1) || term != g.term || number != g.reads.last {
		t.Fatalf("the question is about replica %x, term %d, number %d", replica, term, number)
	}
	whole := termBody(ReplicaID(8, 1), g.term, g.reads.last)
	for name, say := range map[string]func(){
		"earlier term":     func() { c.answerTerm(8, 1, termBody(ReplicaID(8, 1), g.term-1, g.reads.last)) },
		"later term":       func() { c.answerTerm(8, 1, termBody(ReplicaID(8, 1), g.term+1, g.reads.last)) },
		"earlier question": func() { c.answerTerm(8, 1, termBody(ReplicaID(8, 1), g.term, g.reads.last-1)) },
		"later question":   func() { c.answerTerm(8, 1, termBody(ReplicaID(8, 1), g.term, g.reads.last+1)) },
		"another node":     func() { c.answerTerm(9, 1, termBody(ReplicaID(8, 1), g.term, g.reads.last)) },
		"no voter":         func() { c.answerTerm(8, 1, termBody(ReplicaID(8, 2), g.term, g.reads.last)) },
		"more bytes":       func() { c.answerTerm(8, 1, append(slices.Clone(whole), 0)) },
		"fewer bytes":      func() { c.answerTerm(8, 1, whole[:len(whole)-1]) },
	} {
		say()
		if r.runIdle(); answered() {
			t.Fatalf("%s: the read is answered", name)
		}
	}
	c.answerTerm(9, 1, termBody(ReplicaID(9, 1), g.term, g.reads.last))
	if r.runIdle(); !answered() {
		t.Fatal("a read that a majority has confirmed is not answered")
	}
}

// TestReadEndsWithItsTerm: a read that was asked for in a term is not answered in a later one of the
// same leader by what was confirmed in the former.
func TestReadEndsWithItsTerm(t *testing.T) {
	r, c := leaderWithMutePeers(t)
	g := r.host.group(1)
	rd, answered := readOne(r)
	question := c.questions[len(c.questions)-1]
	c.send(1, &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(ReplicaID(8, 1)), To: new(g.id), Term: new(g.term + 1)})
	c.answerTerm(9, 1, question)
	r.runIdle()
	if _, moved := errors.AsType[timer.NotLeaderError](rd.err); !answered() || !moved {
		t.Fatalf("answered %v, %v, by a deposed leader", answered(), rd.err)
	}
	if len(g.reads.confirmed) > 0 {
		t.Errorf("what voters confirmed in a former term is kept: %v", g.reads.confirmed)
	}
}

// TestReadAsksAgain: a question that is lost is repeated, and without an answer the read ends.
func TestReadAsksAgain(t *testing.T) {
	r, c := leaderWithMutePeers(t)
	_, answered := readOne(r)
	c.questions = nil
	r.pass(2 * raftTick)
	if len(c.questions) < 2 {
		t.Fatalf("%d questions in the time of two heartbeats", len(c.questions))
	}
	c.answerTerm(8, 1, c.questions[0])
	if r.runIdle(); !answered() {
		t.Error("an answer to a repeated question does not count")
	}
	rd, _ := readOne(r)
	r.pass(waitLimit + tickInterval)
	if rd.err == nil {
		t.Error("a read that nobody confirms does not end")
	}
}

// TestVoterAnswersInItsTermOnly: a voter confirms a term while it is in it, and never one that it
// has left, or has not reached, or for another replica than its own.
func TestVoterAnswersInItsTermOnly(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	answers := 0
	c.onAnswer = func() { answers++ }
	ask := func(replica, term uint64) bool {
		before := answers
		frame := binary.AppendUvarint([]byte{frameVersion, termQuestion}, 1)
		body := termBody(replica, term, 1)
		r.host.Deliver(8, append(binary.LittleEndian.AppendUint32(frame, uint32(len(body))), body...))
		r.runIdle()
		return answers > before
	}
	c.send(1, heartbeat(5))
	r.runIdle()
	own := ReplicaID(7, 1)
	if !ask(own, 5) {
		t.Fatal("a voter does not confirm its term")
	}
	if ask(own, 4) || ask(own, 6) || ask(ReplicaID(7, 2), 5) {
		t.Error("a voter confirms what it is not")
	}
	c.send(1, &pb.Message{Type: pb.MsgVote.Enum(), From: new(ReplicaID(9, 1)), To: &own, Term: new(uint64(6)), LogTerm: new(uint64(1 << 20)), Index: new(uint64(1 << 20)), Context: []byte("CampaignTransfer")})
	if r.runIdle(); ask(own, 5) {
		t.Error("a voter confirms a term after it has voted in a later one")
	}
}

// TestListsTakeNoTurnOfFollowers: reads of a group send raft nothing, so its followers have no turn
// for them.
func TestListsTakeNoTurnOfFollowers(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.pass(time.Second)
	c.sent = nil
	for range 10 {
		if _, answered := readOne(r); !answered() {
			t.Fatal("a read is not answered at once")
		}
	}
	if len(c.sent) > 0 {
		t.Errorf("%d messages of raft for 10 reads: %v", len(c.sent), c.sent[0])
	}
}
