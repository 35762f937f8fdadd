package history

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
)

// entry is an end in a file's index, 32 bytes here and on disk.
type entry struct {
	endState uint64 // end<<8 | state
	place    uint64 // index<<16 | shard
	topic    uint32
	item     uint32
	hash     uint32 // idHash
	offset   uint32 // of its record
}

// attemptRef is an attempt in a file's index, 16 bytes here, 12 on disk.
type attemptRef struct {
	key    uint64 // attemptKey
	offset uint32
}

const (
	entryBytes = 32
	idBytes    = 8
	triedBytes = 12
)

func entryOf(e *Event, offset uint32) entry {
	return entry{
		endState: uint64(e.EndMs)<<8 | uint64(e.State), place: e.Index<<shardBits | uint64(e.Shard),
		topic: e.Topic, item: e.Item, hash: idHash(e.Topic, e.ID), offset: offset,
	}
}

func (e *entry) endMs() int64  { return int64(e.endState >> 8) }
func (e *entry) state() uint8  { return uint8(e.endState) }
func (e *entry) shard() uint32 { return uint32(e.place & (1<<shardBits - 1)) }
func (e *entry) key() Key {
	return Key{e.endMs(), e.place >> shardBits, e.shard(), e.item}
}

// compare is the order of the index: by topic, then as Key.
func (e *entry) compare(o *entry) int {
	return cmp.Or(cmp.Compare(e.topic, o.topic), cmp.Compare(e.endState>>8, o.endState>>8), cmp.Compare(e.place, o.place), cmp.Compare(e.item, o.item))
}

// is reports whether the record belongs to the entry.
func (e *entry) is(record *Event) bool {
	return e.topic == record.Topic && e.key() == record.Key() && e.state() == record.State
}

func (e *entry) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, e.endState)
	dst = binary.LittleEndian.AppendUint64(dst, e.place)
	dst = binary.LittleEndian.AppendUint32(dst, e.topic)
	dst = binary.LittleEndian.AppendUint32(dst, e.item)
	dst = binary.LittleEndian.AppendUint32(dst, e.hash)
	return binary.LittleEndian.AppendUint32(dst, e.offset)
}

func (e *entry) decode(b []byte) {
	le := binary.LittleEndian
	*e = entry{le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:])}
}

// watermark is how far a file goes into a shard's log.
type watermark struct {
	index uint64
	item  uint32
}

func (w watermark) covers(index uint64, item uint32) bool {
	return index < w.index || index == w.index && item <= w.item
}

// index is the index of the records of a file that is being written, in the order in which they
// came. Elements of the lists are not changed any more, so the holder of a copy of their heads may
// read them.
type index struct {
	ends      []entry
	named     chains // of ends, by idKey
	attempts  []attemptRef
	tried     chains // of attempts, by their keys
	filter    filter
	watermark map[uint32]watermark // by shard
	minMs     int64                // of the ends
	maxMs     int64
}

// newIndex makes an index for a file of at most so many bytes.
func newIndex(bytes int64) index {
	return index{watermark: map[uint32]watermark{}, named: newChains(), tried: newChains(), filter: newFilter(int(min(indexLimit, bytes/(recordHead+recordFixed))))}
}

// chains find the elements of a list by their keys: those whose keys share a bucket are a chain, the
// newest first.
type chains struct {
	newest []uint32 // by bucket, a number from 1 on; 0: none
	older  []uint32 // by element, likewise; not changed any more
}

const chainBits = 16

func newChains() chains { return chains{newest: make([]uint32, 1<<chainBits)} }

// add enters the next element of the list.
func (c *chains) add(key uint64) {
	newest := &c.newest[bucketOf(key)]
	c.older = append(c.older, *newest)
	*newest = uint32(len(c.older))
}

func bucketOf(key uint64) uint64 { return key * 0x9E3779B97F4A7C15 >> (64 - chainBits) }

// of returns the chain of a key.
func (c *chains) of(key uint64) chain { return chain{c.newest[bucketOf(key)], c.older} }

// chain is one of chains, as it was at a moment.
type chain struct {
	newest uint32
	older  []uint32
}

// each is the numbers of its elements, the newest first. Others may be among them.
func (c chain) each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := c.newest; n != 0 && yield(int(n-1)); {
			n = c.older[n-1]
		}
	}
}

// indexLimit is how many records one file has at most: it bounds the memory, and the time of
// sealing a file.
const indexLimit = 400_000

func (ix *index) len() int { return len(ix.ends) + len(ix.attempts) }

// add enters a record.
func (ix *index) add(e *Event, offset uint32) {
	if ix.len() == 0 {
		ix.minMs = e.EndMs
	}
	ix.minMs, ix.maxMs = min(ix.minMs, e.EndMs), max(ix.maxMs, e.EndMs)
	if r := ix.watermark[e.Shard]; !r.covers(e.Index, e.Item) {
		ix.watermark[e.Shard] = watermark{e.Index, e.Item}
	}
	if e.State == 0 {
		key := attemptKey(e.Shard, e.Seq)
		ix.filter.add(key)
		ix.tried.add(key)
		ix.attempts = append(ix.attempts, attemptRef{key, offset})
		return
	}
	n := entryOf(e, offset)
	ix.filter.add(topicKey(n.topic))
	ix.filter.add(idKey(n.hash))
	ix.named.add(idKey(n.hash))
	ix.ends = append(ix.ends, n)
}

// finalFilter is a filter no larger than it must be.
func (ix *index) finalFilter() filter {
	topics := map[uint32]bool{}
	for i := range ix.ends {
		topics[ix.ends[i].topic] = true
	}
	f := newFilter(ix.len() + len(topics))
	for topic := range topics {
		f.add(topicKey(topic))
	}
	for i := range ix.ends {
		f.add(idKey(ix.ends[i].hash))
	}
	for i := range ix.attempts {
		f.add(ix.attempts[i].key)
	}
	return f
}

// sections are the index as it lies behind a file's records: ends in their order, ids by hash,
// attempts by timer.
func (ix *index) sections() (ends, ids, attempts []byte) {
	list := slices.Clone(ix.ends)
	slices.SortFunc(list, func(a, b entry) int { return a.compare(&b) })
	type named struct{ hash, number uint32 }
	byHash := make([]named, len(list))
	ends = make([]byte, 0, entryBytes*len(list))
	for i := range list {
		ends = list[i].append(ends)
		byHash[i] = named{list[i].hash, uint32(i)}
	}
	slices.SortFunc(byHash, func(a, b named) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.number, b.number)) })
	ids = make([]byte, 0, idBytes*len(byHash))
	for _, n := range byHash {
		ids = binary.LittleEndian.AppendUint32(ids, n.hash)
		ids = binary.LittleEndian.AppendUint32(ids, n.number)
	}
	calls := slices.Clone(ix.attempts)
	slices.SortStableFunc(calls, func(a, b attemptRef) int { return cmp.Compare(a.key, b.key) })
	attempts = make([]byte, 0, triedBytes*len(calls))
	for _, c := range calls {
		attempts = binary.LittleEndian.AppendUint64(attempts, c.key)
		attempts = binary.LittleEndian.AppendUint32(attempts, c.offset)
	}
	return ends, ids, attempts
}
