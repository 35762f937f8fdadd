package shard

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

func storedEntries(term, first, last uint64) (list []*pb.Entry) {
	for i := first; i <= last; i++ {
		list = append(list, &pb.Entry{Index: new(i), Term: new(term), Data: []byte(fmt.Sprint(term, "/", i))})
	}
	return list
}

func TestStorage(t *testing.T) {
	s := &storage{}
	s.reset(10, 2, &pb.ConfState{})
	check := func(first, last uint64, bytes int) {
		t.Helper()
		f, _ := s.FirstIndex()
		l, _ := s.LastIndex()
		sum := 0
		for _, e := range s.entries {
			sum += len(e.Data)
		}
		if f != first || l != last || s.bytes != sum+len(s.entries)*entryOverhead || sum != bytes {
			t.Errorf("entries %d–%d of %d bytes (%d counted), want %d–%d of %d", f, l, sum, s.bytes, first, last, bytes)
		}
	}
	check(11, 10, 0)
	if !s.append(storedEntries(2, 11, 15)) {
		t.Fatal("append")
	}
	check(11, 15, 20)
	if s.append(storedEntries(2, 17, 17)) {
		t.Error("a gap is taken")
	}
	if !s.append(storedEntries(3, 13, 14)) { // an overwrite cuts what is behind it
		t.Fatal("overwrite")
	}
	check(11, 14, 16)
	if term, _ := s.Term(13); term != 3 {
		t.Errorf("term %d", term)
	}
	if !s.append(storedEntries(1, 5, 10)) || !s.append(storedEntries(3, 9, 15)) { // what is compacted is skipped
		t.Error("old entries are refused")
	}
	check(11, 15, 20)
	held, err := s.Entries(11, 14, 1<<30)
	if err != nil || len(held) != 3 {
		t.Fatal(len(held), err)
	}
	s.compact(12)
	check(13, 15, 12)
	s.append(storedEntries(4, 13, 16))
	for i, e := range held { // raft may still hold what it was given
		if e.GetIndex() != uint64(11+i) {
			t.Errorf("a slice that was handed out has changed: entry %d at place %d", e.GetIndex(), i)
		}
	}
	if term, err := s.Term(12); term != 3 || err != nil {
		t.Error(term, err)
	}
	if _, err := s.Term(11); !errors.Is(err, raft.ErrCompacted) {
		t.Error(err)
	}
	if _, err := s.Term(17); !errors.Is(err, raft.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := s.Entries(12, 14, 1); !errors.Is(err, raft.ErrCompacted) {
		t.Error(err)
	}
	if _, err := s.Entries(13, 18, 1); !errors.Is(err, raft.ErrUnavailable) {
		t.Error(err)
	}
	if got, err := s.Entries(13, 17, 1); err != nil || len(got) != 1 { // at least one
		t.Error(len(got), err)
	}
	if _, err := s.Snapshot(); !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		t.Error(err)
	}
	s.compact(12) // again
	s.compact(16)
	check(17, 16, 0)
}
