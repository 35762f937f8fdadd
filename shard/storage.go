package shard

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// storage is what raft reads of one group: the durable tail of its log, served from memory so that
// a read can never fail (a failed one panics in raft). The write-ahead log is its durable twin;
// entries come here when their frame is on disk, in order. It is compacted ahead of the durable
// log: a group without followers keeps nothing that is applied.
//
// Invariant: the i-th entry of tail has index offset+1+i; offset and offsetTerm stand for the last
// entry before them.
type storage struct {
	hard       *pb.HardState
	conf       *pb.ConfState
	offset     uint64
	offsetTerm uint64
	tail       logTail

	// snapshot is what a follower that is too far behind is offered; nil: not available now.
	snapshot func() (*pb.Snapshot, error)
}

// What a group with followers keeps of its log in memory although it is applied.
const (
	retainBytes = 4 << 20 // default of Config: always, for a follower that was away for a moment, or that the next leader will have
	laggards    = 16      // so many times as much at most, for one that is here and behind; beyond, it is sent a snapshot
)

// bytes is what the entries count: their data, and some for each.
func (s *storage) bytes() int { return s.tail.live }

// retained is the last index that may be dropped so that about so many bytes stay.
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

// append takes durable entries; those at or after the first one's index are replaced (raft's
// overwrite). It reports a gap as false: then the log lost something that it had promised.
func (s *storage) append(ents []*pb.Entry) bool {
	for len(ents) > 0 && ents[0].GetIndex() <= s.offset {
		ents = ents[1:] // compacted already: committed and the same
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

// alone reports that the group has one member, whose entries are all its own: raft made a copy of
// each. Those that come from others are parts of what else came with them.
func (s *storage) alone() bool {
	return len(s.conf.GetVoters()) == 1 && len(s.conf.GetVotersOutgoing())+len(s.conf.GetLearners())+len(s.conf.GetLearnersNext()) == 0
}

// compact forgets entries up to and including index, which is at most last.
func (s *storage) compact(index uint64) {
	if index <= s.offset {
		return
	}
	n := int(index - s.offset)
	s.offset, s.offsetTerm = index, s.tail.at(n-1).term
	s.tail.drop(n)
}

// held is what the entries take of memory.
func (s *storage) held() int { return s.tail.held() }

// reset starts over from a snapshot.
func (s *storage) reset(index, term uint64, conf *pb.ConfState) {
	s.offset, s.offsetTerm = index, term
	s.tail = logTail{}
	s.conf = conf
}
