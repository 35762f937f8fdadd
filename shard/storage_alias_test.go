package shard

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

func storageEntries(from, n, term uint64) []*pb.Entry {
	var ents []*pb.Entry
	for i := range n {
		ents = append(ents, &pb.Entry{Index: new(from + i), Term: &term})
	}
	return ents
}

// What raft was handed must not change when the storage does: raft acknowledges applied entries by that very slice, and one that
// had shifted under it stopped a group for good.
func TestStorageLeavesHandedOutSlicesAlone(t *testing.T) {
	s := &storage{}
	s.append(storageEntries(1, 8, 1))
	got, err := s.Entries(1, 5, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	check := func(after string) {
		t.Helper()
		for i, e := range got {
			if e.GetIndex() != uint64(i+1) || e.GetTerm() != 1 {
				t.Fatalf("after %s: entry %d of the slice is %d of term %d", after, i, e.GetIndex(), e.GetTerm())
			}
		}
	}
	s.compact(2)
	check("compacting a part")
	s.append(storageEntries(4, 6, 2))
	check("an overwrite")
	s.compact(9)
	check("compacting all")
	s.append(storageEntries(10, 8, 2))
	check("new entries")
	if s.last() != 17 || s.offset != 9 || s.offsetTerm != 2 {
		t.Fatalf("offset %d of term %d, last %d", s.offset, s.offsetTerm, s.last())
	}
}
