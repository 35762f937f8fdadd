package shard

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// storage is what raft reads of one group: the durable tail of its log, served from memory so that a read can
// never fail (a failed one panics in raft). The write-ahead log is its durable twin; entries come here when their
// frame is on disk, in order. It is compacted ahead of the durable log: a group without followers keeps nothing
// that is applied.
//
// Invariant: entries[i] has index offset+1+i; offset and offsetTerm stand for the last entry before them.
// Invariant: the array behind entries is only ever written beyond their end, since raft holds slices of it.
type storage struct {
	hard       *pb.HardState
	conf       *pb.ConfState
	offset     uint64
	offsetTerm uint64
	entries    []*pb.Entry
	bytes      int // sum of the data of entries, and some for each
	dropped    int // … of those that were compacted and whose array is still in use

	// snapshot is what a follower that is too far behind is offered; nil: not available now.
	snapshot func() (*pb.Snapshot, error)
}

// What a group with followers keeps of its log in memory although it is applied.
const (
	entryOverhead = 24      // what an entry counts beside its data
	retainBytes   = 4 << 20 // default of Config: always, for a follower that was away for a moment, or that the next leader will have
	laggards      = 16      // so many times as much at most, for one that is here and behind; beyond, it is sent a snapshot
)

// retained is the last index that may be dropped so that about so many bytes stay.
func (s *storage) retained(keep int) uint64 {
	index, bytes := s.offset, s.bytes
	for _, e := range s.entries {
		if bytes <= keep {
			break
		}
		bytes -= len(e.Data) + entryOverhead
		index++
	}
	return index
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
	ents := s.entries[lo-s.offset-1 : hi-s.offset-1]
	size := uint64(0)
	for i, e := range ents {
		size += uint64(len(e.Data)) + entryOverhead
		if i > 0 && size > maxSize {
			ents = ents[:i]
			break
		}
	}
	return ents[:len(ents):len(ents)], nil
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
	return s.entries[i-s.offset-1].GetTerm(), nil
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

func (s *storage) last() uint64 { return s.offset + uint64(len(s.entries)) }

// append takes durable entries; those at or after the first one's index are replaced (raft's overwrite).
// It reports a gap as false: then the log lost something that it had promised.
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
	keep, room := s.entries[:first-s.offset-1], cap(s.entries)
	if replaced := s.entries[len(keep):]; len(replaced) > 0 {
		for _, e := range replaced {
			s.bytes -= len(e.Data) + entryOverhead
		}
		keep, room = slices.Clone(keep), -1 // raft may still hold a slice of the old array
	}
	if s.entries = append(keep, ents...); cap(s.entries) != room {
		s.dropped = 0 // the array is another
	}
	for _, e := range ents {
		s.bytes += len(e.Data) + entryOverhead
	}
	return true
}

// compact forgets entries up to and including index, which is at most last.
func (s *storage) compact(index uint64) {
	if index <= s.offset {
		return
	}
	n := index - s.offset
	s.offsetTerm = s.entries[n-1].GetTerm()
	for _, e := range s.entries[:n] {
		s.bytes -= len(e.Data) + entryOverhead
		s.dropped += len(e.Data) + entryOverhead
	}
	s.offset = index
	switch s.entries = s.entries[n:]; { // shifting in place would change what raft was handed
	case len(s.entries) == 0:
		s.entries, s.dropped = nil, 0
	case s.dropped >= s.bytes:
		s.entries, s.dropped = slices.Clone(s.entries), 0
	}
}

// held is what the entries take of memory, and those that were dropped and are held by an array.
func (s *storage) held() int { return s.bytes + s.dropped }

// reset starts over from a snapshot.
func (s *storage) reset(index, term uint64, conf *pb.ConfState) {
	s.offset, s.offsetTerm = index, term
	s.entries, s.bytes, s.dropped = nil, 0, 0
	s.conf = conf
}
