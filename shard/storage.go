package shard

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// storage is the raft.Storage of one group. It has the durable tail of the group's log in memory,
// so that a read cannot fail: raft panics if one does. Entries are added in order when their frame
// is on disk. The tail is compacted before the write-ahead log is: a group without followers keeps
// no applied entries.
//
// Invariant: the i-th entry of tail has index offset+1+i. offset and offsetTerm are the index and
// term of the entry before the tail.
type storage struct {
	hard       *pb.HardState
	conf       *pb.ConfState
	offset     uint64
	offsetTerm uint64
	tail       logTail

	// snapshot returns the snapshot for a follower that is too far behind. nil: none is available
	// now.
	snapshot func() (*pb.Snapshot, error)
}

// Bounds on the applied entries that a group with followers keeps in memory.
const (
	// retainBytes is the default of Config.RetainBytes. Every replica keeps so much for followers
	// that were away for a moment, since it may be the next leader.
	retainBytes = 4 << 20
	// A leader keeps up to laggards times as much for followers that are active but behind. Beyond
	// that it sends them a snapshot.
	laggards = 16
)

// bytes returns the cost of the entries: their data and an overhead for each.
func (s *storage) bytes() int { return s.tail.live }

// retained returns the last index that may be dropped so that about keep bytes stay.
func (s *storage) retained(keep int) uint64 {
	bytes, n := s.tail.live, 0
	for ; bytes > keep && n < s.tail.len(); n++ {
		bytes -= entryCost(int(s.tail.at(n).size))
	}
	return s.offset + uint64(n)
}

// InitialState implements raft.Storage.
func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return s.hard, s.conf, nil
}

// Entries implements raft.Storage.
func (s *storage) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= s.offset {
		return nil, raft.ErrCompacted
	}
	if hi > s.last()+1 {
		return nil, raft.ErrUnavailable
	}
	return s.tail.entries(int(lo-s.offset-1), int(hi-s.offset-1), lo, maxSize), nil
}

// Term implements raft.Storage.
func (s *storage) Term(i uint64) (uint64, error) {
	switch {
	case i == s.offset:
		return s.offsetTerm, nil
	case i < s.offset:
		return 0, raft.ErrCompacted
	case i > s.last():
		return 0, raft.ErrUnavailable
	}
	return s.tail.at(int(i - s.offset - 1)).term, nil
}

// LastIndex implements raft.Storage.
func (s *storage) LastIndex() (uint64, error) { return s.last(), nil }

// FirstIndex implements raft.Storage.
func (s *storage) FirstIndex() (uint64, error) { return s.offset + 1, nil }

// Snapshot implements raft.Storage.
func (s *storage) Snapshot() (*pb.Snapshot, error) {
	if s.snapshot == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return s.snapshot()
}

func (s *storage) last() uint64 { return s.offset + uint64(s.tail.len()) }

// append adds durable entries. They replace all entries from the first one's index on. It returns
// false if there is a gap, which means that the log has lost durable entries.
func (s *storage) append(ents []*pb.Entry) bool {
	for len(ents) > 0 && ents[0].GetIndex() <= s.offset {
		ents = ents[1:] // compacted: committed, and so the same
	}
	if len(ents) == 0 {
		return true
	}
	first := ents[0].GetIndex()
	if first > s.last()+1 {
		return false
	}
	if first <= s.last() {
		s.tail.truncate(int(first - s.offset - 1))
	}
	alone := s.alone()
	for i, e := range ents {
		if e.GetIndex() != first+uint64(i) {
			panic(fmt.Sprintf("shard: entry %d comes where entry %d belongs", e.GetIndex(), first+uint64(i)))
		}
		s.tail.push(e, alone)
	}
	return true
}

// alone reports whether the group has one member. Then the data of its entries is its own, because
// raft has copied each. The data of entries from other nodes is a part of a larger message.
func (s *storage) alone() bool {
	return len(s.conf.GetVoters()) == 1 && len(s.conf.GetVotersOutgoing())+len(s.conf.GetLearners())+len(s.conf.GetLearnersNext()) == 0
}

// compact drops the entries up to and including index, which is at most last.
func (s *storage) compact(index uint64) {
	if index <= s.offset {
		return
	}
	n := int(index - s.offset)
	s.offset, s.offsetTerm = index, s.tail.at(n-1).term
	s.tail.drop(n)
}

// held returns the memory that the entries take.
func (s *storage) held() int { return s.tail.held() }

// reset drops all entries and continues from a snapshot.
func (s *storage) reset(index, term uint64, conf *pb.ConfState) {
	s.offset, s.offsetTerm = index, term
	s.tail = logTail{}
	s.conf = conf
}
