package shard

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// logTail is the newest entries of one group's log as bytes: a few chunks without pointers and a
// list of places in them. There may be 64 MiB of entries for followers, which the collector would
// have to mark at each cycle if each were an object. Entries are made when raft asks for them;
// their data is that of the chunks and is not copied.
//
// Invariant: places[first:] are consecutive entries, and the chunk numbers in them never fall.
// Invariant: bytes of a chunk, once written, never change, since entries that were made point to
// them. A chunk is written on only behind its end, and is never used again.
type logTail struct {
	places []entryPlace
	first  int      // places before it are of dropped entries
	chunks [][]byte // the last is being filled
	gone   uint32   // chunks that were dropped: chunks[0] has this number

	live     int // sum of entryCost of the entries
	capacity int // of the chunks
}

// entryPlace is one entry, but for its index: places are in its order.
type entryPlace struct {
	term  uint64
	chunk uint32
	start uint32
	size  uint32
	kind  pb.EntryType
}

const (
	entryOverhead = 24 // what an entry counts beside its data: its place

	// A chunk is a part of what is kept, so that a small tail has no large chunk, and a large one
	// few. Entries that a chunk of that size has no room for have one of their own.
	chunkShare   = 64
	largestChunk = 64 << 10
)

func entryCost(size int) int { return size + entryOverhead }

// len is how many entries there are.
func (t *logTail) len() int { return len(t.places) - t.first }

// at is the place of the i-th entry.
func (t *logTail) at(i int) *entryPlace { return &t.places[t.first+i] }

// held is how much memory the tail takes.
func (t *logTail) held() int { return t.capacity + len(t.places)*entryOverhead }

// push puts an entry behind the last. Its data is copied, unless the entry owns it: it is all of
// its array, and nobody writes to it.
func (t *logTail) push(e *pb.Entry, owned bool) {
	start := t.write(e.Data, owned)
	t.makeRoom()
	t.places = append(t.places, entryPlace{
		term: e.GetTerm(), kind: e.GetType(), chunk: t.gone + uint32(len(t.chunks)-1), start: uint32(start), size: uint32(len(e.Data)),
	})
	t.live += entryCost(len(e.Data))
}

// write puts data behind the end of the last chunk, or into a new one, and returns where it starts
// there.
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

// makeRoom shifts the places to the front of their array when that frees half of it, so that it
// does not grow.
func (t *logTail) makeRoom() {
	if len(t.places) == cap(t.places) && t.first > len(t.places)/2 {
		t.places = t.places[:copy(t.places, t.places[t.first:])]
		t.first = 0
	}
}

// truncate keeps the first n entries.
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

// drop forgets the first n entries, and the chunks that only they were in.
func (t *logTail) drop(n int) {
	for i := range n {
		t.live -= entryCost(int(t.at(i).size))
	}
	t.first += n
	oldest := len(t.chunks)
	if t.len() > 0 {
		oldest = int(t.at(0).chunk - t.gone)
	} else {
		t.places, t.first = emptied(t.places), 0
	}
	for _, chunk := range t.chunks[:oldest] {
		t.capacity -= cap(chunk)
	}
	t.gone += uint32(oldest)
	left := copy(t.chunks, t.chunks[oldest:])
	clear(t.chunks[left:])
	if t.chunks = t.chunks[:left]; left == 0 {
		t.chunks = emptied(t.chunks)
	}
}

// entries makes the entries from the i-th to before the j-th, of which the first has the index. At
// most so many bytes, but one entry in any case.
func (t *logTail) entries(i, j int, index, most uint64) []*pb.Entry {
	end, size := i, uint64(0)
	for ; end < j; end++ {
		if size += uint64(entryCost(int(t.at(end).size))); end > i && size > most {
			break
		}
	}
	if end == i+1 { // most often; in one piece
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

// check panics when the tail contradicts itself. It looks at every entry: for tests and the
// simulator.
func (t *logTail) check() {
	live := 0
	for i := range t.len() {
		p := t.at(i)
		live += entryCost(int(p.size))
		if n := int(p.chunk - t.gone); n >= len(t.chunks) || i > 0 && p.chunk < t.at(i-1).chunk || int(p.start+p.size) > len(t.chunks[n]) {
			panic(fmt.Sprintf("shard: entry %d of the log's tail is at %d+%d of chunk %d, of chunks %d to %d",
				i, p.start, p.size, p.chunk, t.gone, int(t.gone)+len(t.chunks)))
		}
	}
	if live != t.live {
		panic(fmt.Sprintf("shard: the log's tail has %d bytes, but counts %d", live, t.live))
	}
}

// recount is what held should be.
func (t *logTail) recount() int {
	bytes := len(t.places) * entryOverhead
	for _, chunk := range t.chunks {
		bytes += cap(chunk)
	}
	return bytes
}
