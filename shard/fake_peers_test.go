package shard

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/raftlog"
	"carillon/test/memfs"
	"carillon/timer"
)

// fakePeers is the Peers of a harness that is node 7 of the nodes 7, 8 and 9. It records the
// messages it is sent and, unless it is mute, agrees to all of them.
type fakePeers struct {
	r    *hostHarness
	mute bool
	only timer.ShardID // 0: all groups' messages are recorded
	hung bool          // it answers heartbeats only, like a node with a hung disk
	lack timer.ShardID // a shard of which they have no replica yet
	sent []*pb.Message
	// questions are the bodies of the questions about terms that it was sent.
	questions [][]byte
	onAnswer  func() // it was sent an answer to such a question
	streams   []*SnapshotStream
}

// withFakePeers makes a harness of three nodes, the other two of which are scripted.
func withFakePeers(t *testing.T, mute bool, change func(*Config)) (*hostHarness, *fakePeers) {
	t.Helper()
	r := makeHarness(t, memfs.New(), nil)
	c := &fakePeers{r: r, mute: mute}
	r.change = func(cfg *Config) {
		cfg.Peers = c
		if change != nil {
			change(cfg)
		}
	}
	for i := range 2 {
		row := Assignment{Group: timer.ShardID(i), Epoch: 1, Settled: true}
		for node := uint64(7); node <= 9; node++ {
			row.Members = append(row.Members, Member{Node: node, Replica: ReplicaID(node, 1)})
		}
		r.rows = append(r.rows, row)
	}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	return r, c
}

// leads makes the harness win shard 1's election.
func (p *fakePeers) leads() {
	p.r.t.Helper()
	for n := 0; !p.r.host.group(1).serving; n++ {
		if n > 100 {
			p.r.t.Fatal("the shard has no leader")
		}
		p.r.pass(tickInterval)
	}
}

// Send implements Peers.
func (p *fakePeers) Send(node uint64, frame []byte) {
	p.r.eachMessage(frame, func(id timer.ShardID, m *pb.Message) {
		if p.only == 0 || id == p.only { // the meta group may hold an election meanwhile
			p.sent = append(p.sent, m)
		}
		if a := agreement(m); a != nil && !p.mute && (id != p.lack || id == Meta) && !(p.hung && m.GetType() != pb.MsgHeartbeat) {
			p.send(id, a)
		}
	})
	eachPart(frame, func(kind byte, id timer.ShardID, body []byte) {
		if kind == termQuestion && (p.only == 0 || id == p.only) {
			p.questions = append(p.questions, slices.Clone(body))
		}
		switch {
		case kind == termQuestion && !p.mute:
			p.answerTerm(node, id, body)
		case kind == termAnswer && p.onAnswer != nil:
			p.onAnswer()
		}
	})
}

// answerTerm has a voter answer that it is in the term that it was asked about.
func (p *fakePeers) answerTerm(node uint64, id timer.ShardID, question []byte) {
	frame := binary.AppendUvarint([]byte{frameVersion, termAnswer}, uint64(id))
	p.r.host.Deliver(node, append(binary.LittleEndian.AppendUint32(frame, uint32(len(question))), question...))
}

// eachPart calls f with the messages in a frame.
func eachPart(frame []byte, f func(kind byte, id timer.ShardID, body []byte)) {
	for rest := frame[1:]; len(rest) > 0; {
		kind := rest[0]
		id, n := binary.Uvarint(rest[1:])
		rest = rest[1+n:]
		size := binary.LittleEndian.Uint32(rest)
		f(kind, timer.ShardID(id), rest[4:4+size])
		rest = rest[4+size:]
	}
}

// eachMessage decodes the raft messages in a frame.
func (h *hostHarness) eachMessage(frame []byte, f func(timer.ShardID, *pb.Message)) {
	eachPart(frame, func(kind byte, id timer.ShardID, body []byte) {
		if kind != raftMessage {
			return
		}
		m, err := raftlog.DecodeMessage(body)
		if err != nil {
			h.t.Fatal(err)
		}
		f(id, m)
	})
}

// SendSnapshot implements Peers.
func (p *fakePeers) SendSnapshot(_ uint64, s *SnapshotStream) { p.streams = append(p.streams, s) }

// send delivers a message from a peer.
func (p *fakePeers) send(id timer.ShardID, m *pb.Message) { p.r.deliverMessage(id, m) }

// deliverMessage delivers a raft message to the host.
func (h *hostHarness) deliverMessage(id timer.ShardID, m *pb.Message) {
	frame := binary.AppendUvarint([]byte{frameVersion, raftMessage}, uint64(id))
	body := raftlog.AppendMessage(nil, m)
	frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(body))), body...)
	h.host.Deliver(nodeOf(m.GetFrom()), frame)
}

// agreement returns the response of a peer that is up to date and agrees; nil: no response is due.
func agreement(m *pb.Message) *pb.Message {
	a := &pb.Message{From: m.To, To: m.From, Term: m.Term}
	switch m.GetType() {
	case pb.MsgPreVote:
		a.Type = pb.MsgPreVoteResp.Enum()
	case pb.MsgVote:
		a.Type = pb.MsgVoteResp.Enum()
	case pb.MsgHeartbeat:
		a.Type, a.Context = pb.MsgHeartbeatResp.Enum(), m.Context
	case pb.MsgApp:
		a.Type, a.Index = pb.MsgAppResp.Enum(), new(m.GetIndex()+uint64(len(m.Entries)))
	default:
		return nil
	}
	return a
}

// heartbeat is the first message from node 8 as the leader of a term.
func heartbeat(term uint64) *pb.Message {
	return &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(ReplicaID(8, 1)), To: new(ReplicaID(7, 1)), Term: &term}
}

// TestInCompany: the scripted peers elect the harness, and its acknowledged commands are on a
// majority.
func TestInCompany(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.add("a", 2*time.Second)
	r.pass(2 * time.Second)
	r.one().answer(200)
	r.pass(time.Second)
	r.wantState("a", "done 1")
}

// willing is a Placement in which any node may lead.
type willing struct{ staticPlacement }

func (willing) Settled(timer.ShardID, uint32) {}
func (willing) MayLead(uint64) bool           { return true }

// TestHandOverDespiteAHungDisk: a cordoned leader with a hung disk cannot drain its pipeline. It
// sends the transferee its request all the same, and the outcome of the pending commands is
// unknown. A leader that merely prefers another node waits.
func TestHandOverDespiteAHungDisk(t *testing.T) {
	for _, aside := range []bool{true, false} {
		r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Placement = willing{} })
		c.leads()
		r.pass(time.Second)
		r.freeze = true
		p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: "late", Spec: &timer.Spec{DueMs: r.clock.wallMs + 60_000}})
		if err != nil {
			t.Fatal(err)
		}
		r.pass(tickInterval)
		if len(r.host.group(1).pipeline.proposals) == 0 {
			t.Fatal("nothing is in the pipeline: the test is about nothing")
		}
		c.sent = nil
		if r.host.Cordon(aside); !aside {
			r.host.group(1).transfer.begin(r.host.group(1), ReplicaID(8, 1))
		}
		r.pass(handOverLimit + 500*time.Millisecond)
		told := false
		for _, m := range c.sent {
			told = told || m.GetType() == pb.MsgTimeoutNow && nodeOf(m.GetTo()) != 7
		}
		if told != aside {
			t.Errorf("aside %v: a transferee was asked to campaign: %v", aside, told)
		}
		if p.answered() && p.op.err == nil {
			t.Errorf("aside %v: acknowledged while the disk hangs", aside)
		}
		r.freeze = false
		r.abort()
	}
}

// TestHandOverToANodeThatStopped: a leader whose transferee stops meanwhile gives the transfer up as
// soon as it knows that frames did not arrive, and continues to serve. For a second it begins no
// other to that node, nor, in its place, to one that may not lead.
func TestHandOverToANodeThatStopped(t *testing.T) {
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Placement = willing{} })
	c.leads()
	r.pass(time.Second)
	g := r.host.group(1)
	g.transfer.begin(g, ReplicaID(8, 1))
	r.pass(raftTick)
	if !g.transfer.sent || c.count(pb.MsgTimeoutNow) == 0 {
		t.Fatal("the transferee was not asked to stand")
	}
	r.host.Unreachable(8)
	r.pass(tickInterval)
	p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: r.clock.wallMs + 60_000}})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(2 * tickInterval)
	if !p.answered() || p.op.err != nil {
		t.Error("an add waits although the transfer was given up")
	}
	voters := []uint64{ReplicaID(8, 1), ReplicaID(9, 1)}
	if next := g.transfer.transfereeAmong(g, voters); next != voters[1] {
		t.Errorf("replica %x is to lead next, want that of node 9", next)
	}
	if next := g.transfer.anyTransferee(g, voters); next != 0 {
		t.Errorf("replica %x is to lead although another may, which is passed over", next)
	}
	r.pass(passedOverFor)
	if next := g.transfer.anyTransferee(g, voters); next != voters[0] {
		t.Errorf("replica %x of any is to lead after a second, want that of node 8", next)
	}
	if next := g.transfer.transfereeAmong(g, voters); next != voters[0] {
		t.Errorf("replica %x is to lead after a second, want that of node 8", next)
	}
}

// TestHeartbeatsLeaveTogether: groups whose leaders were elected at different ticks of the worker
// send their heartbeats in the same turn. Each frame wakes two idle nodes.
func TestHeartbeatsLeaveTogether(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	for _, g := range r.host.all() {
		if err := g.raft.Campaign(); err != nil {
			t.Fatal(err)
		}
		g.w.touchNext(g)
		r.pass(tickInterval)
		if !g.leader {
			t.Fatalf("group %d has no leader", g.shard)
		}
	}
	r.pass(time.Second)
	turns := 0
	for range time.Second / tickInterval {
		c.sent = nil
		r.pass(tickInterval)
		switch n := c.count(pb.MsgHeartbeat); n {
		case 0:
		case 4: // two groups, two other nodes
			turns++
		default:
			t.Errorf("%d heartbeats leave in a turn, want those of all groups or none", n)
		}
	}
	if turns != 10 {
		t.Errorf("heartbeats leave %d times a second, want 10", turns)
	}
}

// count returns how many messages of a type were sent.
func (p *fakePeers) count(of pb.MessageType) (n int) {
	for _, m := range p.sent {
		if m.GetType() == of {
			n++
		}
	}
	return n
}
