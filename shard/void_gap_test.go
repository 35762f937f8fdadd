package shard

import (
	"testing"

	"carillon/shard/record"
	"carillon/wal"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestGapBeforeASnapshotFromAPeer: the generations of a log are deleted one by one. Of the entries
// that a snapshot from a peer superseded, the first may be gone while the last still exist. A start
// continues from the snapshot. Without the snapshot the gap is damage.
func TestGapBeforeASnapshotFromAPeer(t *testing.T) {
	const old, term, index = 14, 16, 331
	r := newHostHarness(t, nil)
	g := r.host.group(1)
	m := record.Mark{Replica: g.id, Index: index, Term: term, Epoch: 1, Installed: true, Conf: &pb.ConfState{Voters: []uint64{g.id}}}
	entries := func(first, last, term uint64) wal.Record {
		var list []*pb.Entry
		for i := first; i <= last; i++ {
			list = append(list, &pb.Entry{Index: &i, Term: &term, Type: pb.EntryNormal.Enum()})
		}
		return wal.Record{Type: wal.RecordEntries, Shard: 1, Data: record.AppendEntries(nil, list)}
	}
	hard := func(term, vote, commit uint64) wal.Record {
		return wal.Record{Type: wal.RecordHardState, Shard: 1, Data: record.AppendHardState(nil, record.HardState{Term: term, Vote: vote, Commit: commit})}
	}
	void := []wal.Record{entries(index+7, index+9, old), hard(term-1, 8, index-10)}
	after := []wal.Record{hard(term, 0, index), entries(index+1, index+3, term)}
	installed := wal.Record{Type: wal.RecordSnapMark, Shard: 1, Data: record.AppendMark(nil, m)}
	for name, tt := range map[string]struct {
		records []wal.Record
		whole   bool
	}{
		"with a snapshot from a peer": {append(append(append([]wal.Record{}, void...), installed), after...), true},
		"without":                     {append(append([]wal.Record{}, void...), after...), false},
	} {
		t.Run(name, func(t *testing.T) {
			g.place(m)
			start := recoveryOf(g)
			for i, rec := range tt.records {
				if err := start.replay(wal.Position{Gen: 4, Seq: uint64(749 + i)}, rec); err != nil {
					t.Fatal(err)
				}
			}
			if (start.fault == nil) != tt.whole {
				t.Fatalf("a start finds %v", start.fault)
			}
			if tt.whole && (len(start.log)-start.next != 3 || start.hard != record.HardState{Term: term, Vote: 0, Commit: index}) {
				t.Errorf("%d entries, %+v", len(start.log)-start.next, start.hard)
			}
		})
	}
}
