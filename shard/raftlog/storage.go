package raftlog

import (
	"carillon/internal/reuse"

	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Storage is the raft.Storage of one group. It has the durable tail of the group's log in memory,
// so that a read cannot fail: raft panics if one does. Entries are added in order when their frame
// is on disk. The tail is compacted before the write-ahead log is: a group without followers keeps
// no applied entries.
//
// Invariant: the i-th entry of tail has index Offset+1+i. Offset and OffsetTerm are the index and
// term of the entry before the tail.
type Storage struct {
	Hard       *pb.HardState
	Conf       *pb.ConfState
	Offset     uint64
	OffsetTerm uint64
	tail       logTail

	// OfferSnapshot returns the snapshot for a follower that is too far behind. nil: none is available
	// now.
	OfferSnapshot func() (*pb.Snapshot, error)
}

// Bytes returns the cost of the entries: their data and an overhead for each.
func (s *Storage) Bytes() int { return s.tail.live }

// Retained returns the last index that may be dropped so that about keep bytes stay.
func (s *Storage) Retained(keep int) uint64 {
	bytes, n := s.tail.live, 0
	for ; bytes > keep && n < s.tail.len(); n++ {
		bytes -= entryCost(int(s.tail.at(n).size))
	}
	return s.Offset + uint64(n)
}

func (s *Storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return s.Hard, s.Conf, nil
}

func (s *Storage) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= s.Offset {
		return nil, raft.ErrCompacted
	}
	if hi > s.Last()+1 {
		return nil, raft.ErrUnavailable
	}
	return s.tail.entries(int(lo-s.Offset-1), int(hi-s.Offset-1), lo, maxSize), nil
}

func (s *Storage) Term(i uint64) (uint64, error) {
	switch {
	case i == s.Offset:
		return s.OffsetTerm, nil
	case i < s.Offset:
		return 0, raft.ErrCompacted
	case i > s.Last():
		return 0, raft.ErrUnavailable
	}
	return s.tail.at(int(i - s.Offset - 1)).term, nil
}

func (s *Storage) LastIndex() (uint64, error) { return s.Last(), nil }

func (s *Storage) FirstIndex() (uint64, error) { return s.Offset + 1, nil }

func (s *Storage) Snapshot() (*pb.Snapshot, error) {
	if s.OfferSnapshot == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return s.OfferSnapshot()
}

func (s *Storage) Last() uint64 { return s.Offset + uint64(s.tail.len()) }

// Append adds durable entries. They replace all entries from the first one's index on. It returns
// false if there is a gap, which means that the log has lost durable entries.
func (s *Storage) Append(ents []*pb.Entry) bool {
	for len(ents) > 0 && ents[0].GetIndex() <= s.Offset {
		ents = ents[1:] // compacted: committed, and so the same
	}
	if len(ents) == 0 {
		return true
	}
	first := ents[0].GetIndex()
	if first > s.Last()+1 {
		return false
	}
	if first <= s.Last() {
		s.tail.truncate(int(first - s.Offset - 1))
	}
	alone := s.alone()
	for i, e := range ents {
		if e.GetIndex() != first+uint64(i) {
			panic(fmt.Sprintf("raftlog: entry %d comes where entry %d belongs", e.GetIndex(), first+uint64(i)))
		}
		s.tail.push(e, alone)
	}
	return true
}

// alone reports whether the group has one member. Then the data of its entries is its own, because
// raft has copied each. The data of entries from other nodes is a part of a larger message.
func (s *Storage) alone() bool {
	return len(s.Conf.GetVoters()) == 1 && len(s.Conf.GetVotersOutgoing())+len(s.Conf.GetLearners())+len(s.Conf.GetLearnersNext()) == 0
}

// Compact drops the entries up to and including index, which is at most last.
func (s *Storage) Compact(index uint64) {
	if index <= s.Offset {
		return
	}
	n := int(index - s.Offset)
	s.Offset, s.OffsetTerm = index, s.tail.at(n-1).term
	s.tail.drop(n)
}

// Held returns the memory that the entries take.
func (s *Storage) Held() int { return s.tail.held() }

// Reset drops all entries and continues from a snapshot.
func (s *Storage) Reset(index, term uint64, conf *pb.ConfState) {
	s.Offset, s.OffsetTerm = index, term
	s.tail = logTail{}
	s.Conf = conf
}

// logTail holds the newest entries of one group's log as bytes, in a few chunks without pointers,
// and a list of their places. There may be 64 MiB of entries for followers. If each were an object,
// the garbage collector would mark all of them in every cycle. Entries are built when raft reads
// them. Their data points into the chunks and is not copied.
//
// Invariant: places[first:] are consecutive entries, and their chunk numbers never decrease.
// Invariant: once written, bytes of a chunk never change, because entries point to them. A chunk is
// only appended to, and never reused.
type logTail struct {
	places []entryPlace
	first  int      // places before it are of dropped entries
	chunks [][]byte // the last is being filled
	gone   uint32   // number of dropped chunks, and so the number of chunks[0]

	live     int // sum of entryCost of the entries
	capacity int // bytes of the chunks
}

// entryPlace locates an entry. The entry's index follows from the order of the places.
type entryPlace struct {
	term  uint64
	chunk uint32
	start uint32
	size  uint32
	kind  pb.EntryType
}

const (
	EntryOverhead = 24 // bytes that an entry counts in addition to its data, for its place

	// A new chunk has 1/chunkShare of the bytes of the live entries, and largestChunk at most: a
	// small tail has no large chunk, and a large tail few chunks. An entry larger than that gets a
	// chunk of its own.
	chunkShare   = 64
	largestChunk = 64 << 10
)

func entryCost(size int) int { return size + EntryOverhead }

func (t *logTail) len() int { return len(t.places) - t.first }

func (t *logTail) at(i int) *entryPlace { return &t.places[t.first+i] }

// Held returns how many bytes of memory the tail takes.
func (t *logTail) held() int { return t.capacity + len(t.places)*EntryOverhead }

// push appends an entry. Its data is copied unless owned: then the data is all of its array
// and is never written to.
func (t *logTail) push(e *pb.Entry, owned bool) {
	start := t.write(e.Data, owned)
	t.makeRoom()
	t.places = append(t.places, entryPlace{
		term: e.GetTerm(), kind: e.GetType(), chunk: t.gone + uint32(len(t.chunks)-1), start: uint32(start), size: uint32(len(e.Data)),
	})
	t.live += entryCost(len(e.Data))
}

// write appends data to the last chunk, or to a new one if it has no room, and returns where the
// data starts in that chunk.
func (t *logTail) write(data []byte, owned bool) (start int) {
	if last := len(t.chunks) - 1; last >= 0 && cap(t.chunks[last])-len(t.chunks[last]) >= len(data) {
		start = len(t.chunks[last])
		t.chunks[last] = append(t.chunks[last], data...)
		return start
	}
	size := len(data)
	if usual := min(t.live/chunkShare, largestChunk); usual > size {
		size = usual - usual%max(1, size) // entries are often of one size
	}
	chunk := data[:len(data):len(data)]
	if !owned || size > len(data) {
		chunk = append(make([]byte, 0, size), data...)
	}
	t.chunks = append(t.chunks, chunk)
	t.capacity += size
	return 0
}

// makeRoom moves the places to the front of their array when that frees half of it, so that the
// array does not grow.
func (t *logTail) makeRoom() {
	if len(t.places) == cap(t.places) && t.first > len(t.places)/2 {
		t.places = t.places[:copy(t.places, t.places[t.first:])]
		t.first = 0
	}
}

// truncate drops all but the first n entries.
func (t *logTail) truncate(n int) {
	for i := n; i < t.len(); i++ {
		t.live -= entryCost(int(t.at(i).size))
	}
	t.places = t.places[:t.first+n]
	keep := 0
	if n > 0 {
		keep = int(t.at(n-1).chunk-t.gone) + 1
	}
	for _, chunk := range t.chunks[keep:] {
		t.capacity -= cap(chunk)
	}
	clear(t.chunks[keep:])
	t.chunks = t.chunks[:keep]
}

// drop drops the first n entries and the chunks that hold no others.
func (t *logTail) drop(n int) {
	for i := range n {
		t.live -= entryCost(int(t.at(i).size))
	}
	t.first += n
	oldest := len(t.chunks)
	if t.len() > 0 {
		oldest = int(t.at(0).chunk - t.gone)
	} else {
		t.places, t.first = reuse.Emptied(t.places), 0
	}
	for _, chunk := range t.chunks[:oldest] {
		t.capacity -= cap(chunk)
	}
	t.gone += uint32(oldest)
	left := copy(t.chunks, t.chunks[oldest:])
	clear(t.chunks[left:])
	if t.chunks = t.chunks[:left]; left == 0 {
		t.chunks = reuse.Emptied(t.chunks)
	}
}

// entries builds the entries from the i-th up to, but not including, the j-th. index is that of the
// i-th. It stops before their bytes exceed most, but returns at least one entry.
func (t *logTail) entries(i, j int, index, most uint64) []*pb.Entry {
	end, size := i, uint64(0)
	for ; end < j; end++ {
		if size += uint64(entryCost(int(t.at(end).size))); end > i && size > most {
			break
		}
	}
	if end == i+1 { // the usual case: a single allocation
		one := &struct {
			entry heldEntry
			list  [1]*pb.Entry
		}{}
		t.fill(&one.entry, i, index)
		one.list[0] = &one.entry.entry
		return one.list[:]
	}
	held := make([]heldEntry, end-i)
	list := make([]*pb.Entry, end-i)
	for k := range held {
		t.fill(&held[k], i+k, index+uint64(k))
		list[k] = &held[k].entry
	}
	return list
}

func (t *logTail) fill(h *heldEntry, i int, index uint64) {
	p := t.at(i)
	h.index, h.term, h.kind = index, p.term, p.kind
	h.entry.Index, h.entry.Term, h.entry.Type = &h.index, &h.term, &h.kind
	if p.size > 0 {
		chunk := t.chunks[p.chunk-t.gone]
		h.entry.Data = chunk[p.start : p.start+p.size : p.start+p.size]
	}
}

// check panics if the tail is inconsistent. It visits every entry.
func (t *logTail) check() {
	live := 0
	for i := range t.len() {
		p := t.at(i)
		live += entryCost(int(p.size))
		if n := int(p.chunk - t.gone); n >= len(t.chunks) || i > 0 && p.chunk < t.at(i-1).chunk || int(p.start+p.size) > len(t.chunks[n]) {
			panic(fmt.Sprintf("raftlog: entry %d of the log's tail is at %d+%d of chunk %d, of chunks %d to %d",
				i, p.start, p.size, p.chunk, t.gone, int(t.gone)+len(t.chunks)))
		}
	}
	if live != t.live {
		panic(fmt.Sprintf("raftlog: the log's tail has %d bytes, but counts %d", live, t.live))
	}
}

// Recount computes the value of Held from the chunks themselves, and panics if the tail is
// inconsistent.
func (s *Storage) Recount() int {
	t := &s.tail
	t.check()
	bytes := len(t.places) * EntryOverhead
	for _, chunk := range t.chunks {
		bytes += cap(chunk)
	}
	return bytes
}
