package shard

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"carillon/shard/raftlog"
	"carillon/shard/table"
	"carillon/shard/wire"
	"carillon/test/sim/forged"
	"carillon/test/testkit"
	"carillon/timer"

	pb "go.etcd.io/raft/v3/raftpb"
)

// messageSamples are messages between replicas: votes, entries, heartbeats and a snapshot message.
func messageSamples() (list []*pb.Message) {
	from, to, term := ReplicaID(8, 1), ReplicaID(7, 1), uint64(3)
	say := func(kind pb.MessageType, more func(*pb.Message)) {
		m := &pb.Message{Type: &kind, From: &from, To: &to, Term: &term}
		if more != nil {
			more(m)
		}
		list = append(list, m)
	}
	say(pb.MsgHeartbeat, func(m *pb.Message) { m.Commit, m.Context = new(uint64(9)), []byte("read") })
	say(pb.MsgVote, func(m *pb.Message) { m.LogTerm, m.Index = new(uint64(2)), new(uint64(9)) })
	say(pb.MsgAppResp, func(m *pb.Message) { m.Index, m.Reject, m.RejectHint = new(uint64(9)), new(true), new(uint64(4)) })
	say(pb.MsgApp, func(m *pb.Message) {
		m.LogTerm, m.Index, m.Commit = new(uint64(2)), new(uint64(9)), new(uint64(8))
		for i := range uint64(2) {
			m.Entries = append(m.Entries, &pb.Entry{Index: new(10 + i), Term: new(uint64(3)), Type: pb.EntryNormal.Enum(), Data: []byte("a batch")})
		}
	})
	say(pb.MsgSnap, func(m *pb.Message) {
		conf := &pb.ConfState{Voters: []uint64{from, to}, Learners: []uint64{ReplicaID(9, 1)}}
		m.Snapshot = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(9)), Term: new(uint64(2)), ConfState: conf}}
	})
	return list
}

// FuzzPeerMessage: no bytes from another node make the decoders of raft messages or snapshot
// headers panic. A decoded message survives encoding and decoding unchanged.
func FuzzPeerMessage(f *testing.F) {
	for _, m := range messageSamples() {
		f.Add(raftlog.AppendMessage(nil, m))
		f.Add(appendTransferHeader(nil, &transferHeader{group: 2, message: m, hash: 77, epoch: 4}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := raftlog.DecodeMessage(b); err == nil {
			first := raftlog.AppendMessage(nil, m)
			again, err := raftlog.DecodeMessage(first)
			if err != nil || !bytes.Equal(raftlog.AppendMessage(nil, again), first) {
				t.Fatalf("%x\nagain %v: %v", first, again, err)
			}
		}
		if s, err := decodeTransferHeader(b); err == nil {
			first := appendTransferHeader(nil, s)
			again, err := decodeTransferHeader(first)
			if err != nil || !bytes.Equal(appendTransferHeader(nil, again), first) {
				t.Fatalf("%x\nagain %v: %v", first, again, err)
			}
		}
	})
}

// FuzzDeliver: a host goes on serving its timers when it receives a stranger's frames, intact or
// not. (Messages from members are trusted.)
func FuzzDeliver(f *testing.F) {
	for _, m := range messageSamples() {
		body := raftlog.AppendMessage(nil, m)
		frame := append([]byte{frameVersion, raftMessage, 1, byte(len(body)), 0, 0, 0}, body...)
		f.Add(frame)
		f.Add(append(frame, frame[1:]...))
	}
	for _, form := range forged.Forms() {
		f.Add(form)
		f.Add(append([]byte{frameVersion, raftMessage, 1, byte(len(form)), byte(len(form) >> 8), 0, 0}, form...))
	}
	f.Add([]byte{frameVersion, reportMessage, 1, 3, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{frameVersion, overMessage, 1, 3, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{frameVersion, termQuestion, 1, 3, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{frameVersion, termAnswer, 1, 3, 0, 0, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, frame []byte) {
		r := newHostHarness(t, nil)
		r.host.Deliver(1<<39+12345, frame)
		r.runIdle()
		r.add("a", 0)
		if r.failed != nil {
			t.Fatal(r.failed)
		}
	})
}

// FuzzStateWord: a replica goes on, and is not considered wrong, after any messages about states
// from one member: it takes a majority to declare a replica wrong.
func FuzzStateWord(f *testing.F) {
	word := func(replica, index uint64, hash uint64) []byte {
		b := binary.AppendUvarint([]byte{stateMessageVersion}, replica)
		b = append(binary.AppendUvarint(b, index), table.HashVersion, 1)
		return binary.LittleEndian.AppendUint64(b, hash)
	}
	for index := range uint64(8) {
		f.Add(byte(stateMessage), word(ReplicaID(8, 1), index, 77))
		f.Add(byte(stateMessage), word(ReplicaID(9, 1), index, 77)) // another replica's
		f.Add(byte(stateMessage), word(ReplicaID(7, 1), index, 77)) // this replica's own
	}
	const refillMessage = 4 // reserved: it is dropped
	f.Add(byte(refillMessage), binary.AppendUvarint(binary.AppendUvarint([]byte{1}, ReplicaID(8, 1)), 3))
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		if len(body) > 1<<16 || kind != stateMessage && kind != refillMessage {
			return
		}
		r, c := withFakePeers(t, false, nil)
		c.leads()
		r.pass(time.Second)
		g := r.host.group(1)
		g.compare.nextAt = 0
		frame := binary.AppendUvarint([]byte{frameVersion, kind}, 1)
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(body))), body...)
		for range 3 {
			r.host.Deliver(8, slices.Clone(frame))
			r.pass(time.Second)
		}
		if g.wrong.why != nil || g.stopped != nil || r.failed != nil || len(g.compare.points) > 3 {
			t.Fatalf("%x: wrong %v, %d points, %v", body, g.wrong.why, len(g.compare.points), r.failed)
		}
		r.abort()
	})
}

// FuzzSentOps: an operation decoded from another node can be applied, except the kinds that the
// leader itself must check.
func FuzzSentOps(f *testing.F) {
	f.Add(wire.AppendOps(nil, []timer.Op{
		{Shard: 3, Command: &timer.Command{Kind: timer.Add, Topic: 3, ID: "{order-77}close", Tag: 5, Content: 6, Spec: testkit.FullSpec()}},
		{Shard: 3, Brief: true, Command: &timer.Command{Kind: timer.Cancel, Topic: 3, ID: "a", IfMatch: 2}},
		{Shard: 4, Command: &timer.Command{Kind: timer.Modify, Topic: 3, ID: "b", IfMatch: 2, Patch: &timer.Patch{Spec: *testkit.FullSpec(), Due: true, Labels: true}}},
		{Shard: 4, Command: &timer.Command{Kind: timer.AckLease, Topic: 3, Claim: &timer.LeaseUpdate{Handle: 7, Seq: 9, Fence: 11}}},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ops, err := wire.DecodeOps(b)
		if err != nil {
			return
		}
		var batch table.Batch
		batch.Reset(1, 1, 1)
		for i := range ops {
			if !ops[i].Command.Kind.UpdatesLease() {
				batch.Command(ops[i].Command)
			}
		}
		if _, err := table.New(1, 0).Apply(batch.Bytes(), nil, nil); err != nil {
			t.Fatalf("a table does not want it: %v", err)
		}
	})
}
