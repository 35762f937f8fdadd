package shard

import (
	"testing"

	"carillon/shard/record"
	"carillon/shard/repair"
	"carillon/wal"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"
)

// TestGapBeforeASnapshotFromAPeer: the generations of a log are deleted one by one. Of the entries
// that a snapshot from a peer superseded, the first may be gone while the last still exist. A
// start, and the dry run of a log repair, continue from the snapshot. Without the snapshot the gap
// is an error.
func TestGapBeforeASnapshotFromAPeer(t *testing.T) {
	const old, term, index = 14, 16, 331
	r := newHostHarness(t, nil)
	g := r.host.groups[1]
	m := record.Mark{Replica: g.replica, Index: index, Term: term, Epoch: 1, Installed: true, Conf: &pb.ConfState{Voters: []uint64{g.replica}}}
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
			start, tried := recoveryOf(g), repair.NewDryRun(1, &m)
			for i, rec := range tt.records {
				if err := start.replay(wal.Position{Gen: 4, Seq: uint64(749 + i)}, rec); err != nil {
					t.Fatal(err)
				}
				if err := record.Fold(rec, tried); err != nil {
					t.Fatal(err)
				}
			}
			if (start.fault == nil) != tt.whole || (tried.Fault() == nil) != tt.whole {
				t.Fatalf("a start finds %v, the trial %v", start.fault, tried.Fault())
			}
			if tt.whole && (len(start.log)-start.next != 3 || start.hard != record.HardState{Term: term, Vote: 0, Commit: index} || tried.Last() != record.EntryID{Index: index + 3, Term: term}) {
				t.Errorf("%d entries, %+v; the trial ends at %v", len(start.log)-start.next, start.hard, tried.Last())
			}
		})
	}
}

// TestAStartTakesAllThatADryRunPasses: the repairer writes a log that its dry run has passed. For
// any log that raft can have written, with any records lost, a start on the repaired log finds no
// fault either, and ends with the same log.
func TestAStartTakesAllThatADryRunPasses(t *testing.T) {
	r := newHostHarness(t, nil)
	g := r.host.groups[1]
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		const most = 12 // length of the group's log; its terms never decrease
		terms := [most + 5]uint64{1}
		for i := 1; i < len(terms); i++ {
			terms[i] = terms[i-1] + rapid.Uint64Range(0, 1).Draw(t, "term")
		}
		upTo := func(label string, n uint64) uint64 { return rapid.Uint64Range(1, n).Draw(t, label) }
		mark := func(installed bool) record.Mark {
			m := record.Mark{Replica: upTo("replica", 3), Index: upTo("index", most), Installed: installed}
			m.Term, m.Conf = terms[m.Index], &pb.ConfState{Voters: []uint64{1, 2, 3}}
			return m
		}
		g.reset()
		g.tombstone, g.files = 0, logRetention{}
		var snapshot *record.Mark
		if rapid.Bool().Draw(t, "has a snapshot") {
			m := mark(false)
			snapshot = &m
			g.place(m)
		}
		start, dry := recoveryOf(g), repair.NewDryRun(1, snapshot)
		right := g.applied // the replica's entries match the group's up to this index
		for i := range rapid.IntRange(1, 12).Draw(t, "records") {
			rec := wal.Record{Shard: 1}
			kind := rapid.SampledFrom([]wal.RecordType{
				wal.RecordReplicaCreate, wal.RecordReplicaTombstone, wal.RecordSnapMark, wal.RecordHardState, wal.RecordHardState, wal.RecordEntries, wal.RecordEntries, wal.RecordEntries,
			}).Draw(t, "kind")
			switch rec.Type = kind; kind {
			case wal.RecordReplicaCreate:
				rec.Data = record.AppendMark(nil, mark(false))
			case wal.RecordReplicaTombstone:
				id := upTo("tombstone", 3)
				if id < g.replica && (snapshot == nil || g.replica != snapshot.Replica || g.applied != snapshot.Index || len(start.log) > 0) {
					// The snapshot of a later replica is beyond all entries of earlier replicas.
					continue
				}
				rec.Data = record.AppendTombstone(nil, id)
			case wal.RecordSnapMark:
				rec.Data = record.AppendMark(nil, mark(rapid.Bool().Draw(t, "from a peer")))
			case wal.RecordHardState:
				hard := record.HardState{Term: terms[most], Vote: 1}
				if right > 0 {
					hard.Commit = upTo("commit", right)
				}
				rec.Data = record.AppendHardState(nil, hard)
			case wal.RecordEntries:
				first, n := upTo("first", most), upTo("entries", 4)
				isRight := rapid.Bool().Draw(t, "is right")
				if !isRight && first <= g.applied {
					continue // raft replaces no committed entries
				}
				var list []*pb.Entry
				for at := first; at < first+n; at++ {
					term := terms[at]
					if !isRight {
						term = terms[first-1] // of a leader that was deposed
					}
					list = append(list, &pb.Entry{Index: &at, Term: &term, Type: pb.EntryNormal.Enum()})
				}
				rec.Data = record.AppendEntries(nil, list)
				switch {
				case isRight && first <= right+1:
					right = max(right, first+n-1)
				case !isRight:
					right = min(right, first-1)
				}
			}
			before := g.replica
			if err := start.replay(wal.Position{Gen: 1, Seq: uint64(i)}, rec); err != nil {
				t.Fatal(err)
			}
			if err := record.Fold(rec, dry); err != nil {
				t.Fatal(err)
			}
			if kind != wal.RecordEntries && kind != wal.RecordHardState && (g.replica != before || len(start.log) == 0) {
				right = g.applied
			}
		}
		if dry.Fault() != nil {
			return
		}
		passed++
		if start.fault != nil {
			t.Fatalf("a start finds %v", start.fault)
		}
		end := record.EntryID{Index: g.applied, Term: g.appliedTerm}
		if n := len(start.log); n > start.next {
			end = record.EntryID{Index: start.log[n-1].Index, Term: start.log[n-1].Term}
		}
		if end != dry.Last() {
			t.Fatalf("a start ends at %v, the dry run at %v", end, dry.Last())
		}
	})
	if passed == 0 {
		t.Error("the dry run passed nothing")
	}
}
