package shard

import (
	"encoding/binary"
	"time"

	"carillon/shard/record"
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/wal"
)

// manifest is a record of the node itself (NODE_META): which replicas of a worker's groups are here at this place of the log, and up to where their
// logs and hard states reach. A start reads over it. It is for the repair of damage that is before it (repair.go): what the lost frames may have
// held of a group can then be told from what must be there behind them. It is
// written at each start and stop, in each generation, and now and then.
type manifest struct {
	worker, workers uint64 // the groups are those with id ≡ worker mod workers: who of them is not listed was never here
	replicas        []replicaState
}

// replicaState is one group of a manifest.
type replicaState struct {
	group     timer.ShardID
	replica   uint64 // 0: none
	tombstone uint64 // ids up to this one are used up
	hard      record.HardState
	last      record.EntryID // where its log ends
	creation  *record.Mark   // how the replica began, as long as it has no snapshot; else nil
}

const manifestVersion = 1

// covers reports that the manifest speaks of a group.
func (c *manifest) covers(id timer.ShardID) bool { return uint64(id)%c.workers == c.worker }

// byGroup finds what it says of a group that it covers.
func (c *manifest) byGroup() func(timer.ShardID) replicaState {
	byID := make(map[timer.ShardID]replicaState, len(c.replicas))
	for _, t := range c.replicas {
		byID[t.group] = t
	}
	return func(id timer.ShardID) replicaState { return byID[id] }
}

func appendManifest(b []byte, c *manifest) []byte {
	b = append(b, manifestVersion)
	for _, v := range []uint64{c.worker, c.workers, uint64(len(c.replicas))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, t := range c.replicas {
		for _, v := range []uint64{uint64(t.group), t.replica, t.tombstone, t.hard.Term, t.hard.Vote, t.hard.Commit, t.last.Index, t.last.Term} {
			b = binary.AppendUvarint(b, v)
		}
		birth := ""
		if t.creation != nil {
			birth = string(record.AppendMark(nil, *t.creation))
		}
		b = encoding.AppendBlock(b, birth)
	}
	return b
}

func decodeManifest(b []byte) (*manifest, error) {
	if len(b) == 0 || b[0] != manifestVersion {
		return nil, record.ErrMalformed
	}
	r := &record.Reader{Rest: b[1:]}
	c := &manifest{worker: r.Uvarint(), workers: r.Uvarint()}
	n := r.Uvarint()
	if c.worker >= c.workers || n > uint64(len(r.Rest))/9 { // a group takes nine bytes at least
		return nil, record.ErrMalformed
	}
	c.replicas = make([]replicaState, n)
	for i := range c.replicas {
		t := &c.replicas[i]
		id := r.Uvarint()
		if id > 65535 || !c.covers(timer.ShardID(id)) {
			return nil, record.ErrMalformed
		}
		t.group, t.replica, t.tombstone = timer.ShardID(id), r.Uvarint(), r.Uvarint()
		t.hard = record.HardState{Term: r.Uvarint(), Vote: r.Uvarint(), Commit: r.Uvarint()}
		t.last = record.EntryID{Index: r.Uvarint(), Term: r.Uvarint()}
		if birth := r.Bytes(); len(birth) > 0 {
			m, err := record.DecodeMark(birth)
			if err != nil {
				return nil, err
			}
			t.creation = &m
		}
	}
	return c, r.End()
}

// taken is when and where a manifest was taken.
type taken struct {
	gen   uint64
	bytes int64 // of the generation
	size  int   // of the manifest
	at    time.Duration
}

const (
	manifestEach  = time.Minute // as long as something is written
	manifestParts = 8           // so often in a generation
	manifestCost  = 32          // but no more of the log than one part in so many
)

// tickManifest takes a manifest when this process or a generation has begun to write, and now and then.
func (w *worker) tickManifest() {
	gen, bytes := w.stream.Place()
	grown := bytes - w.manifest.bytes
	if gen != w.manifest.gen || grown > 0 && w.now.Mono-w.manifest.at >= manifestEach || grown > max(w.stream.GenBytes()/manifestParts, int64(manifestCost*w.manifest.size)) {
		w.takeManifest(gen, bytes)
	}
}

func (w *worker) takeManifest(gen uint64, bytes int64) {
	c := &manifest{worker: uint64(w.groups[0].id), workers: uint64(len(w.host.workers))}
	for _, g := range w.groups {
		if g.hasLocalState() {
			t := replicaState{group: g.id, replica: g.replica, tombstone: g.tombstone, hard: g.hard, last: g.end}
			if g.files.newest == 0 {
				t.creation = g.creation
			}
			c.replicas = append(c.replicas, t)
		}
	}
	w.openFrame()
	before := w.frame.Len()
	w.frame.AppendFunc(wal.RecordNodeMeta, 0, func(b []byte) []byte { return appendManifest(b, c) })
	size := w.frame.Len() - before
	w.manifest = taken{gen: gen, bytes: bytes + int64(size), size: size, at: w.now.Mono}
}

// lastManifest takes one when the worker has had its last turn, so that all that is in the log before can be repaired.
func (w *worker) lastManifest() {
	w.takeManifest(w.stream.Place())
	w.flush()
}
