package record

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

const manifestVersion = 1

// Manifest is a record of the node itself (NODE_META): which replicas of a worker's groups are here
// at this place of the log, and up to where their logs and hard states reach. A start reads over
// it. It is for the repair of damage that is before it (repair.go): what the lost frames may have
// held of a group can then be told from what must be there behind them. It is written at each start
// and stop, in each generation, and now and then.
type Manifest struct {
	Worker, Workers uint64 // the groups are those with id ≡ worker mod workers: who of them is not listed was never here
	Replicas        []ReplicaState
}

// ReplicaState is one group of a manifest.
type ReplicaState struct {
	Group     timer.ShardID
	Replica   uint64 // 0: none
	Tombstone uint64 // ids up to this one are used up
	Hard      HardState
	Last      EntryID // where its log ends
	Creation  *Mark   // how the replica began, as long as it has no snapshot; else nil
}

// Covers reports that the manifest speaks of a group.
func (c *Manifest) Covers(id timer.ShardID) bool { return uint64(id)%c.Workers == c.Worker }

// ByGroup finds what it says of a group that it covers.
func (c *Manifest) ByGroup() func(timer.ShardID) ReplicaState {
	byID := make(map[timer.ShardID]ReplicaState, len(c.Replicas))
	for _, t := range c.Replicas {
		byID[t.Group] = t
	}
	return func(id timer.ShardID) ReplicaState { return byID[id] }
}

// AppendManifest writes one as a record.
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

// DecodeManifest reads one. It refuses whatever no release writes.
func DecodeManifest(b []byte) (*Manifest, error) {
	if len(b) == 0 || b[0] != manifestVersion {
		return nil, ErrMalformed
	}
	r := &Reader{Rest: b[1:]}
	c := &Manifest{Worker: r.Uvarint(), Workers: r.Uvarint()}
	n := r.Uvarint()
	if c.Worker >= c.Workers || n > uint64(len(r.Rest))/9 { // a group takes nine bytes at least
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
