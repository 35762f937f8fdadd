package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// The bodies of the log's records (docs/formats/records.md). Integers are uvarints unless said otherwise.
// Every body starts with a version byte, so that a later build can read what this one wrote.
const (
	recordVersion = 1
	markVersion   = 2 // 1 had no epoch
)

var errRecord = errors.New("malformed record")

// appendEntries encodes ENTRIES: first index, term of each run, type and data of each entry.
func appendEntries(b []byte, ents []*pb.Entry) []byte {
	b = append(b, recordVersion)
	b = binary.AppendUvarint(b, ents[0].GetIndex())
	b = binary.AppendUvarint(b, uint64(len(ents)))
	for _, e := range ents {
		b = binary.AppendUvarint(b, e.GetTerm())
		b = append(b, byte(e.GetType()))
		b = binary.AppendUvarint(b, uint64(len(e.Data)))
		b = append(b, e.Data...)
	}
	return b
}

// readEntries decodes ENTRIES; the data point into the body.
func readEntries(b []byte) ([]tailEntry, error) {
	r, err := newRecordReader(b)
	if err != nil {
		return nil, err
	}
	index, n := r.uvarint(), r.uvarint()
	if n == 0 || n > uint64(len(r.rest)) {
		return nil, errRecord
	}
	ents := make([]tailEntry, n)
	for i := range ents {
		ents[i] = tailEntry{index: index + uint64(i), term: r.uvarint(), typ: pb.EntryType(r.byte()), data: r.bytes()}
	}
	return ents, r.end()
}

// hardState is raft's, as a plain value.
type hardState struct{ term, vote, commit uint64 }

// appendHardState encodes HARDSTATE.
func appendHardState(b []byte, h hardState) []byte {
	b = append(b, recordVersion)
	b = binary.AppendUvarint(b, h.term)
	b = binary.AppendUvarint(b, h.vote)
	return binary.AppendUvarint(b, h.commit)
}

func decodeHardState(b []byte) (hardState, error) {
	r, err := newRecordReader(b)
	if err != nil {
		return hardState{}, err
	}
	h := hardState{r.uvarint(), r.uvarint(), r.uvarint()}
	return h, r.end()
}

// snapshotMark is the body of SNAPMARK and REPLICA_CREATE: the replica, and the place in its log that needs nothing before it.
type snapshotMark struct {
	replica     uint64
	index, term uint64
	hash        uint64 // state hash of the snapshot; 0 with REPLICA_CREATE
	conf        *pb.ConfState
	epoch       uint32 // of the row that the membership follows
	installed   bool   // SNAPMARK: the state came from a peer; what the log had before is void
}

func appendMark(b []byte, m snapshotMark) []byte {
	b = append(b, markVersion)
	b = binary.AppendUvarint(b, m.replica)
	b = binary.AppendUvarint(b, m.index)
	b = binary.AppendUvarint(b, m.term)
	b = binary.LittleEndian.AppendUint64(b, m.hash)
	b = binary.AppendUvarint(b, uint64(m.epoch))
	if m.installed {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return appendConf(b, m.conf)
}

func decodeMark(b []byte) (snapshotMark, error) {
	if len(b) == 0 || b[0] != recordVersion && b[0] != markVersion {
		return snapshotMark{}, fmt.Errorf("%w: version", errRecord)
	}
	r := &recordReader{rest: b[1:]}
	m := snapshotMark{replica: r.uvarint(), index: r.uvarint(), term: r.uvarint(), hash: r.uint64(), epoch: 1}
	if b[0] == markVersion {
		m.epoch, m.installed = uint32(r.uvarint()), r.byte() != 0
	}
	m.conf = r.conf()
	return m, r.end()
}

// appendConf encodes a membership: four lists of replica ids and the auto-leave flag.
func appendConf(b []byte, c *pb.ConfState) []byte {
	for _, ids := range [][]uint64{c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()} {
		b = binary.AppendUvarint(b, uint64(len(ids)))
		for _, id := range ids {
			b = binary.AppendUvarint(b, id)
		}
	}
	if c.GetAutoLeave() {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendTombstone encodes REPLICA_TOMBSTONE.
func appendTombstone(b []byte, id uint64) []byte {
	return binary.AppendUvarint(append(b, recordVersion), id)
}

func decodeTombstone(b []byte) (uint64, error) {
	r, err := newRecordReader(b)
	if err != nil {
		return 0, err
	}
	id := r.uvarint()
	return id, r.end()
}

// recordReader reads a body; the first fault sticks.
type recordReader struct {
	rest []byte
	bad  bool
}

func newRecordReader(b []byte) (recordReader, error) {
	if len(b) == 0 || b[0] != recordVersion {
		return recordReader{}, fmt.Errorf("%w: version", errRecord)
	}
	return recordReader{rest: b[1:]}, nil
}

func (r *recordReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *recordReader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

func (r *recordReader) uint64() uint64 {
	if len(r.rest) < 8 {
		r.bad, r.rest = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return v
}

func (r *recordReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	v := r.rest[:n]
	r.rest = r.rest[n:]
	return v
}

func (r *recordReader) conf() *pb.ConfState {
	ids := func() (out []uint64) {
		n := r.uvarint()
		if n > uint64(len(r.rest)) {
			r.bad = true
			return nil
		}
		for range n {
			out = append(out, r.uvarint())
		}
		return out
	}
	c := &pb.ConfState{Voters: ids(), Learners: ids(), VotersOutgoing: ids(), LearnersNext: ids()}
	c.AutoLeave = new(r.byte() == 1)
	return c
}

func (r *recordReader) end() error {
	if r.bad || len(r.rest) != 0 {
		return errRecord
	}
	return nil
}

// tailEntry is an entry that was read but not applied yet.
type tailEntry struct {
	index, term uint64
	typ         pb.EntryType
	data        []byte
}

// entryID names an entry, and with it all that are before it: two logs that have it are the same up to it.
type entryID struct{ index, term uint64 }

// orAfter is what a start makes of a hard state that is older than the snapshot it goes on from.
func (h hardState) orAfter(base entryID) hardState {
	if h.term < base.term {
		h.term, h.vote = base.term, 0
	}
	return h
}
