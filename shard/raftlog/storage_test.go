package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
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
	s := &Storage{}
	s.Reset(10, 2, &pb.ConfState{})
	check := func(first, last uint64, bytes int) {
		t.Helper()
		s.tail.check()
		f, _ := s.FirstIndex()
		l, _ := s.LastIndex()
		sum := 0
		for i := range s.tail.len() {
			sum += int(s.tail.at(i).size)
		}
		if f != first || l != last || s.Bytes() != sum+s.tail.len()*EntryOverhead || sum != bytes {
			t.Errorf("entries %d–%d of %d bytes (%d counted), want %d–%d of %d", f, l, sum, s.Bytes(), first, last, bytes)
		}
	}
	check(11, 10, 0)
	if !s.Append(storedEntries(2, 11, 15)) {
		t.Fatal("append")
	}
	check(11, 15, 20)
	if s.Append(storedEntries(2, 17, 17)) {
		t.Error("a gap is taken")
	}
	if !s.Append(storedEntries(3, 13, 14)) { // an overwrite removes all later entries
		t.Fatal("overwrite")
	}
	check(11, 14, 16)
	if term, _ := s.Term(13); term != 3 {
		t.Errorf("term %d", term)
	}
	// Compacted entries are skipped.
	if !s.Append(storedEntries(1, 5, 10)) || !s.Append(storedEntries(3, 9, 15)) {
		t.Error("old entries are refused")
	}
	check(11, 15, 20)
	s.Compact(12)
	check(13, 15, 12)
	s.Append(storedEntries(4, 13, 16))
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
	s.Compact(12) // again
	s.Compact(16)
	check(17, 16, 0)
}

// TestStorageAgainstRaftsOwn performs random appends, overwrites, compactions and reads, and
// compares with raft's MemoryStorage. Entries that were handed out must not change: raft
// acknowledges applied entries by them.
func TestStorageAgainstRaftsOwn(t *testing.T) {
	for seed := range uint64(10) {
		m := storageModel{t: t, rng: rand.New(rand.NewPCG(seed, 0)), ours: &Storage{Conf: &pb.ConfState{}}, theirs: raft.NewMemoryStorage()}
		m.term = 1
		if seed%2 == 0 {
			m.ours.Conf = &pb.ConfState{Voters: []uint64{1}} // entries own their data
		}
		for range 300 {
			m.step()
			m.compare()
		}
		for i, e := range m.out {
			if e.GetIndex() != m.want[i].GetIndex() || e.GetTerm() != m.want[i].GetTerm() || !bytes.Equal(e.Data, m.want[i].Data) {
				t.Fatalf("seed %d: entry %d, which was handed out, has changed", seed, m.want[i].GetIndex())
			}
		}
	}
}

type storageModel struct {
	t         *testing.T
	rng       *rand.Rand
	ours      *Storage
	theirs    *raft.MemoryStorage
	term      uint64
	out, want []*pb.Entry // handed out by ours, and their expected content
}

func (m *storageModel) step() {
	first, last := m.ours.Offset+1, m.ours.Last()
	switch m.rng.IntN(10) {
	case 0:
		if last >= first {
			m.compactTo(first + m.rng.Uint64N(last-first+1))
		}
	case 1:
		if m.rng.IntN(10) == 0 {
			m.compactTo(last)
		}
	case 2: // entries from another leader, which overwrite some
		m.term++
		m.append(first + m.rng.Uint64N(last-first+2))
	default:
		m.append(last + 1)
	}
}

func (m *storageModel) append(from uint64) {
	var list []*pb.Entry
	for i := range uint64(m.rng.IntN(4)) {
		size := m.rng.IntN(100)
		switch m.rng.IntN(50) {
		case 0:
			size = 0
		case 1:
			size = 3 * largestChunk
		case 2:
			size = 5000
		}
		data := make([]byte, size)
		for k := range data {
			data[k] = byte(m.rng.Uint32())
		}
		list = append(list, &pb.Entry{Index: new(from + i), Term: new(m.term), Type: pb.EntryNormal.Enum(), Data: data})
	}
	if !m.ours.Append(list) {
		m.t.Fatalf("entries from %d on are refused behind %d", from, m.ours.Last())
	}
	if err := m.theirs.Append(clones(list)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *storageModel) compactTo(index uint64) {
	m.ours.Compact(index)
	if err := m.theirs.Compact(index); err != nil && !errors.Is(err, raft.ErrCompacted) {
		m.t.Fatal(err)
	}
}

func (m *storageModel) compare() {
	m.t.Helper()
	m.ours.tail.check()
	if m.ours.Held() != m.ours.Recount() || m.ours.Held() > 3*m.ours.Bytes()+2*3*largestChunk {
		m.t.Fatalf("%d bytes of entries take %d, recounted %d", m.ours.Bytes(), m.ours.Held(), m.ours.Recount())
	}
	first, _ := m.theirs.FirstIndex()
	last, _ := m.theirs.LastIndex()
	if m.ours.Offset+1 != first || m.ours.Last() != last {
		m.t.Fatalf("entries %d to %d, want %d to %d", m.ours.Offset+1, m.ours.Last(), first, last)
	}
	for i := first - 1; i <= last; i++ {
		ours, err := m.ours.Term(i)
		if theirs, _ := m.theirs.Term(i); ours != theirs || err != nil {
			m.t.Fatalf("entry %d is of term %d (%v), want %d", i, ours, err, theirs)
		}
	}
	lo := first + m.rng.Uint64N(last-first+2)
	hi := lo + m.rng.Uint64N(last+1-lo+1)
	if lo == hi {
		return
	}
	ours, err := m.ours.Entries(lo, hi, 1<<40)
	theirs, want := m.theirs.Entries(lo, hi, 1<<40)
	if err != nil || want != nil || len(ours) != len(theirs) {
		m.t.Fatalf("entries %d to %d: %d (%v), want %d (%v)", lo, hi, len(ours), err, len(theirs), want)
	}
	for i, e := range ours {
		if e.GetIndex() != theirs[i].GetIndex() || e.GetTerm() != theirs[i].GetTerm() || e.GetType() != theirs[i].GetType() || !bytes.Equal(e.Data, theirs[i].Data) {
			m.t.Fatalf("entry %d differs", lo+uint64(i))
		}
	}
	m.out, m.want = append(m.out, ours...), append(m.want, clones(theirs)...)
}

func clones(list []*pb.Entry) (out []*pb.Entry) {
	for _, e := range list {
		out = append(out, &pb.Entry{Index: new(e.GetIndex()), Term: new(e.GetTerm()), Type: e.GetType().Enum(), Data: bytes.Clone(e.Data)})
	}
	return out
}

// TestDroppedEntriesLeaveMemory: kept entries do not retain the memory of dropped ones.
func TestDroppedEntriesLeaveMemory(t *testing.T) {
	for _, conf := range []*pb.ConfState{{Voters: []uint64{1, 2}}, {Voters: []uint64{1}}} {
		s := &Storage{Conf: conf}
		const n, size = 1000, 100
		for i := range uint64(n) {
			s.Append([]*pb.Entry{{Index: new(i + 1), Term: new(uint64(1)), Data: make([]byte, size)}})
		}
		for i := range uint64(n) {
			s.Compact(i + 1)
			kept := n - 1 - int(i)
			if least := kept * entryCost(size); s.Bytes() != least || s.Held() < least {
				t.Fatalf("%d are kept: %d bytes, held %d", kept, s.Bytes(), s.Held())
			}
			if chunks := len(s.tail.chunks); s.Held() > kept*size+n*EntryOverhead+3*n*size/chunkShare || kept == 0 && chunks > 0 {
				t.Fatalf("%d of %d B are kept: %d bytes are held, in %d chunks", kept, size, s.Held(), chunks)
			}
		}
		if s.Held() != 0 {
			t.Errorf("%d bytes are held by nothing", s.Held())
		}
	}
}

// TestTailIsFewObjects: the number of objects the garbage collector scans does not grow with the
// entries.
func TestTailIsFewObjects(t *testing.T) {
	const retained = 4 << 20
	s := &Storage{Conf: &pb.ConfState{Voters: []uint64{1, 2, 3}}}
	for i := range uint64(100_000) {
		s.Append([]*pb.Entry{{Index: new(i + 1), Term: new(uint64(1)), Data: make([]byte, 300)}})
		s.Compact(s.Retained(retained))
	}
	if chunks := len(s.tail.chunks); chunks > 2*chunkShare || s.Held() > retained*3/2 {
		t.Errorf("%d bytes of entries are in %d chunks and take %d", s.Bytes(), chunks, s.Held())
	}
	// In the steady state an entry costs its bytes and its place in a chunk, but no object of its
	// own.
	list := []*pb.Entry{{Index: new(uint64(0)), Term: new(uint64(1)), Data: make([]byte, 300)}}
	if n := testing.AllocsPerRun(10_000, func() {
		*list[0].Index = s.Last() + 1
		s.Append(list)
		s.Compact(s.Retained(retained))
	}); n > 0.1 {
		t.Errorf("%.2f objects for an entry", n)
	}
}
