package shard

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"carillon/internal/delivery"
	"carillon/internal/feature"
	"carillon/shard/raftlog"
	"carillon/shard/scheduler"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestWireOfReleases: this build writes what replicas say to each other, in the frames that carry
// it, as the last release did, and reads raft's messages, reports and snapshots' headers of each.
func TestWireOfReleases(t *testing.T) {
	const group, to = timer.ShardID(300), 2
	messages := map[string]testkit.Message{}
	// framed is a message alone in its frame, read without its head.
	framed := func(name string, say func(r *replica), read func(body []byte) error) {
		r := &replica{shard: group, id: ReplicaID(8, 1), w: new(worker)}
		say(r)
		m := testkit.Message{Bytes: r.w.outbox[0].frame}
		if read != nil {
			const head = 1 + 1 + 2 + 4 // version, kind, group, length
			m.Read = func(b []byte) error { return read(b[head:]) }
		}
		messages[name] = m
	}

	raft := messageSamples()
	from, own, term := ReplicaID(8, 1), ReplicaID(to, 1), uint64(3)
	joint := &pb.ConfState{Voters: []uint64{from}, VotersOutgoing: []uint64{from, own}, Learners: []uint64{ReplicaID(9, 1)}, LearnersNext: []uint64{own}, AutoLeave: new(true)}
	raft = append(raft, &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: &from, To: &own, Term: &term})
	for _, m := range raft {
		framed("raft "+m.GetType().String(), func(r *replica) {
			r.w.addMessage(to, raftMessage, r.shard, 0, func(b []byte) []byte { return raftlog.AppendMessage(b, m) })
		}, func(body []byte) error {
			got, err := raftlog.DecodeMessage(body)
			if err == nil && !bytes.Equal(raftlog.AppendMessage(nil, got), body) {
				err = fmt.Errorf("it is read as %v", got)
			}
			return err
		})
	}

	report := &scheduler.Report{Owner: 5, Handle: 7, Seq: 300, Fence: 1 << 40, Rev: 2, Attempt: delivery.Outcome{
		NotSent: true, Refused: true, Status: 503, Err: "status 503", Answer: &timer.Answer{Body: "busy", Type: "text/plain", Location: "/later"},
		RetryAfterMs: 5000, StartedMs: 1_700_000_000_000, EndedMs: 1_700_000_000_100,
	}}
	framed("report", func(r *replica) {
		r.w.addMessage(to, reportMessage, r.shard, 0, func(b []byte) []byte { return appendReport(b, report) })
	}, func(body []byte) error {
		c, got := encoding.Reading(body), new(scheduler.Report)
		if reportFields(&c, got); c.Err() == nil && !reflect.DeepEqual(got, report) {
			return fmt.Errorf("it is read as %+v", got)
		}
		return c.Err()
	})
	framed("lease over", func(r *replica) { (&timerShard{g: r}).sendLeaseOver(to, 5, 7, 1<<40) }, nil)
	framed("state", func(r *replica) {
		new(comparison).send(r, own, &statePoint{index: 900, version: 1, hash: 0x0102030405060708})
	}, nil)
	framed("term question", func(r *replica) { r.sendTerm(to, termQuestion, own, 3, 700) }, nil)
	framed("term answer", func(r *replica) { r.sendTerm(to, termAnswer, own, 3, 700) }, nil)

	for name, conf := range map[string]*pb.ConfState{"snapshot": {Voters: []uint64{from, own}, Learners: []uint64{ReplicaID(9, 1)}}, "snapshot of a joint group": joint} {
		m := &pb.Message{Type: pb.MsgSnap.Enum(), From: &from, To: &own, Term: &term,
			Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(9)), Term: new(uint64(2)), ConfState: conf}}}
		messages[name] = testkit.Message{
			Bytes: appendTransferHeader(nil, &transferHeader{group: group, message: m, hash: 0x0102030405060708, epoch: 4}),
			Read: func(b []byte) error {
				h, err := decodeTransferHeader(b)
				if err == nil && !bytes.Equal(appendTransferHeader(nil, h), b) {
					err = fmt.Errorf("it is read as %+v", h)
				}
				return err
			},
		}
	}
	testkit.WireOfReleases(t, int(feature.LevelOfBuild), messages)
}
