package shard

import (
	"encoding/binary"
	"time"

	"carillon/timer"
	"carillon/wal"
)

// census is a record of the node itself (NODE_META): which replicas of a worker's groups are here at this place of the log, and up to where their
// logs and hard states reach. A start reads over it. It is for the mending of damage that is before it (mend.go): what the lost frames may have
// held of a group can then be told from what must be there behind them. It is
// written at each start and stop, in each generation, and now and then.
type census struct {
	worker, workers uint64 // the groups are those with id ≡ worker mod workers: who of them is not listed was never here
	replicas        []tallied
}

// tallied is one group of a census.
type tallied struct {
	group     timer.ShardID
	replica   uint64 // 0: none
	tombstone uint64 // ids up to this one are used up
	hard      hardState
	last      entryID // where its log ends
	birth     *mark   // how the replica began, as long as it has no snapshot; else nil
}

// entryID names an entry, and with it all that are before it: two logs that have it are the same up to it.
type entryID struct{ index, term uint64 }

const censusVersion = 1

// covers reports that the census speaks of a group.
func (c *census) covers(id timer.ShardID) bool { return uint64(id)%c.workers == c.worker }

// byGroup finds what it says of a group that it covers.
func (c *census) byGroup() func(timer.ShardID) tallied {
	byID := make(map[timer.ShardID]tallied, len(c.replicas))
	for _, t := range c.replicas {
		byID[t.group] = t
	}
	return func(id timer.ShardID) tallied { return byID[id] }
}

func appendCensus(b []byte, c *census) []byte {
	b = append(b, censusVersion)
	for _, v := range []uint64{c.worker, c.workers, uint64(len(c.replicas))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, t := range c.replicas {
		for _, v := range []uint64{uint64(t.group), t.replica, t.tombstone, t.hard.term, t.hard.vote, t.hard.commit, t.last.index, t.last.term} {
			b = binary.AppendUvarint(b, v)
		}
		birth := ""
		if t.birth != nil {
			birth = string(appendMark(nil, *t.birth))
		}
		b = appendBlock(b, birth)
	}
	return b
}

func decodeCensus(b []byte) (*census, error) {
	if len(b) == 0 || b[0] != censusVersion {
		return nil, errRecord
	}
	r := &recordReader{rest: b[1:]}
	c := &census{worker: r.uvarint(), workers: r.uvarint()}
	n := r.uvarint()
	if c.worker >= c.workers || n > uint64(len(r.rest))/9 { // a group takes nine bytes at least
		return nil, errRecord
	}
	c.replicas = make([]tallied, n)
	for i := range c.replicas {
		t := &c.replicas[i]
		id := r.uvarint()
		if id > 65535 || !c.covers(timer.ShardID(id)) {
			return nil, errRecord
		}
		t.group, t.replica, t.tombstone = timer.ShardID(id), r.uvarint(), r.uvarint()
		t.hard = hardState{r.uvarint(), r.uvarint(), r.uvarint()}
		t.last = entryID{r.uvarint(), r.uvarint()}
		if birth := r.bytes(); len(birth) > 0 {
			m, err := decodeMark(birth)
			if err != nil {
				return nil, err
			}
			t.birth = &m
		}
	}
	return c, r.end()
}

// taken is when and where a census was taken.
type taken struct {
	gen   uint64
	bytes int64 // of the generation
	size  int   // of the census
	at    time.Duration
}

const (
	censusEach  = time.Minute // as long as something is written
	censusParts = 8           // so often in a generation
	censusCost  = 32          // but no more of the log than one part in so many
)

// tickCensus takes a census when this process or a generation has begun to write, and now and then.
func (w *worker) tickCensus() {
	gen, bytes := w.stream.Place()
	grown := bytes - w.census.bytes
	if gen != w.census.gen || grown > 0 && w.mono-w.census.at >= censusEach || grown > max(w.stream.GenBytes()/censusParts, int64(censusCost*w.census.size)) {
		w.takeCensus(gen, bytes)
	}
}

func (w *worker) takeCensus(gen uint64, bytes int64) {
	c := &census{worker: uint64(w.groups[0].id), workers: uint64(len(w.host.workers))}
	for _, g := range w.groups {
		if g.everHere() {
			t := tallied{group: g.id, replica: g.replica, tombstone: g.tombstone, hard: g.hard, last: g.end}
			if g.files.newest == 0 {
				t.birth = g.birth
			}
			c.replicas = append(c.replicas, t)
		}
	}
	w.openFrame()
	before := w.frame.Len()
	w.frame.AppendFunc(wal.RecordNodeMeta, 0, func(b []byte) []byte { return appendCensus(b, c) })
	size := w.frame.Len() - before
	w.census = taken{gen: gen, bytes: bytes + int64(size), size: size, at: w.mono}
}

// lastCensus takes one when the worker has had its last turn, so that all that is in the log before can be mended.
func (w *worker) lastCensus() {
	w.takeCensus(w.stream.Place())
	w.flush()
}
