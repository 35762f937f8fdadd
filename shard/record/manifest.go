package record

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

const manifestVersion = 1

// Manifest is a record of the node itself (NODE_META). It lists the replicas of a worker's groups
// at this position of the log, and the ends of their logs and hard states. A normal start skips it.
// The repair of damage before it (repair.go) uses it: by comparison with the records behind the
// manifest, the repair knows which records of a group the lost frames may have held. A node writes
// it at each start and stop, in each generation, and from time to time.
type Manifest struct {
	// The manifest covers the groups with id ≡ Worker mod Workers. A covered group that is not
	// listed was never here.
	Worker, Workers uint64
	Replicas        []ReplicaState
}

// ReplicaState is the entry of one group in a manifest.
type ReplicaState struct {
	Group     timer.ShardID
	Replica   uint64 // 0: none
	Tombstone uint64 // ids up to this one must not be reused
	Hard      HardState
	Last      EntryID // end of its log
	Creation  *Mark   // the replica's first mark while it has no snapshot; else nil
}

// Covers reports whether the manifest covers a group.
func (c *Manifest) Covers(id timer.ShardID) bool { return uint64(id)%c.Workers == c.Worker }

// ByGroup returns a lookup of a covered group's state.
func (c *Manifest) ByGroup() func(timer.ShardID) ReplicaState {
	byID := make(map[timer.ShardID]ReplicaState, len(c.Replicas))
	for _, t := range c.Replicas {
		byID[t.Group] = t
	}
	return func(id timer.ShardID) ReplicaState { return byID[id] }
}

// AppendManifest encodes a manifest as a record.
func AppendManifest(b []byte, c *Manifest) []byte {
	b = append(b, manifestVersion)
	for _, v := range []uint64{c.Worker, c.Workers, uint64(len(c.Replicas))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, t := range c.Replicas {
		for _, v := range []uint64{uint64(t.Group), t.Replica, t.Tombstone, t.Hard.Term, t.Hard.Vote, t.Hard.Commit, t.Last.Index, t.Last.Term} {
			b = binary.AppendUvarint(b, v)
		}
		birth := ""
		if t.Creation != nil {
			birth = string(AppendMark(nil, *t.Creation))
		}
		b = encoding.AppendBlock(b, birth)
	}
	return b
}

// DecodeManifest decodes a manifest. It refuses a body that no release writes.
func DecodeManifest(b []byte) (*Manifest, error) {
	if len(b) == 0 || b[0] != manifestVersion {
		return nil, ErrMalformed
	}
	r := &Reader{Rest: b[1:]}
	c := &Manifest{Worker: r.Uvarint(), Workers: r.Uvarint()}
	n := r.Uvarint()
	if c.Worker >= c.Workers || n > uint64(len(r.Rest))/9 { // a group takes at least nine bytes
		return nil, ErrMalformed
	}
	c.Replicas = make([]ReplicaState, n)
	for i := range c.Replicas {
		t := &c.Replicas[i]
		id := r.Uvarint()
		if id > 65535 || !c.Covers(timer.ShardID(id)) {
			return nil, ErrMalformed
		}
		t.Group, t.Replica, t.Tombstone = timer.ShardID(id), r.Uvarint(), r.Uvarint()
		t.Hard = HardState{Term: r.Uvarint(), Vote: r.Uvarint(), Commit: r.Uvarint()}
		t.Last = EntryID{Index: r.Uvarint(), Term: r.Uvarint()}
		if birth := r.Bytes(); len(birth) > 0 {
			m, err := DecodeMark(birth)
			if err != nil {
				return nil, err
			}
			t.Creation = &m
		}
	}
	return c, r.End()
}
