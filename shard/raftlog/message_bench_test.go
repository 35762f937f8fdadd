package raftlog

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// BenchmarkRaftMessage measures encoding and decoding an append of one entry and its response: the
// cost of a replicated turn at each follower. The entry is one add of 300 bytes, or sixty of them.
func BenchmarkRaftMessage(b *testing.B) {
	for name, size := range map[string]int{"add": 300, "turn": 18_000} {
		both := []*pb.Message{
			{Type: pb.MsgApp.Enum(), To: new(uint64(7)), From: new(uint64(1 << 40)), Term: new(uint64(12)), LogTerm: new(uint64(12)), Index: new(uint64(900_000)), Commit: new(uint64(899_999)),
				Entries: []*pb.Entry{{Term: new(uint64(12)), Index: new(uint64(900_001)), Type: pb.EntryNormal.Enum(), Data: make([]byte, size)}}},
			{Type: pb.MsgAppResp.Enum(), To: new(uint64(1 << 40)), From: new(uint64(7)), Term: new(uint64(12)), Index: new(uint64(900_001))},
		}
		b.Run(name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				for _, m := range both {
					buf = AppendMessage(buf[:0], m)
					if _, err := DecodeMessage(buf); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(name+"/proto", func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				for _, m := range both {
					var err error
					if buf, err = (proto.MarshalOptions{}).MarshalAppend(buf[:0], m); err != nil {
						b.Fatal(err)
					}
					var out pb.Message
					if err := proto.Unmarshal(buf, &out); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
