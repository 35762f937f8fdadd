package record

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/timer/encoding"
)

// Versions of the bodies of the log's records (docs/formats/records.md). Integers are uvarints
// unless noted otherwise. Each body starts with a version byte, so that later builds can read it.
const (
	recordVersion = 1
	markVersion   = 2
)

var ErrMalformed = errors.New("malformed record")

// AppendEntries encodes ENTRIES: the first index, the count, and the term, type and data of each
// entry.
func AppendEntries(b []byte, ents []*pb.Entry) []byte {
	b = append(b, recordVersion)
	b = encoding.AppendUvarints(b, ents[0].GetIndex(), uint64(len(ents)))
	for _, e := range ents {
		b = AppendEntry(b, e)
	}
	return b
}

// AppendEntry encodes the term, type and data of an entry.
func AppendEntry(b []byte, e *pb.Entry) []byte {
	b = append(binary.AppendUvarint(b, e.GetTerm()), byte(e.GetType()))
	return encoding.AppendBlock(b, e.Data)
}

// ReadEntries decodes ENTRIES. The data of the entries point into the body.
func ReadEntries(b []byte) ([]Entry, error) {
	r, err := NewReader(b)
	if err != nil {
		return nil, err
	}
	index, n := r.Uvarint(), r.Uvarint()
	if n == 0 || n > uint64(len(r.Rest)) {
		return nil, ErrMalformed
	}
	ents := make([]Entry, n)
	for i := range ents {
		ents[i] = Entry{Index: index + uint64(i), Term: r.Uvarint(), Type: pb.EntryType(r.Byte()), Data: r.Bytes()}
	}
	return ents, r.End()
}

// HardState is raft's hard state as a plain value.
type HardState struct{ Term, Vote, Commit uint64 }

// AppendHardState encodes HARDSTATE.
func AppendHardState(b []byte, h HardState) []byte {
	b = append(b, recordVersion)
	return encoding.AppendUvarints(b, h.Term, h.Vote, h.Commit)
}

func DecodeHardState(b []byte) (HardState, error) {
	r, err := NewReader(b)
	if err != nil {
		return HardState{}, err
	}
	h := HardState{r.Uvarint(), r.Uvarint(), r.Uvarint()}
	return h, r.End()
}

// Mark is the body of SNAPMARK and REPLICA_CREATE: the replica, and the position in its log before
// which no entry is needed.
type Mark struct {
	Replica     uint64
	Index, Term uint64
	Hash        uint64 // state hash of the snapshot; 0 with REPLICA_CREATE
	Conf        *pb.ConfState
	Epoch       uint32 // epoch of the assignment that the membership follows
	// SNAPMARK: the state came from a peer, so earlier records of the log are void
	Installed bool
}

func AppendMark(b []byte, m Mark) []byte {
	b = append(b, markVersion)
	b = encoding.AppendUvarints(b, m.Replica, m.Index, m.Term)
	b = binary.LittleEndian.AppendUint64(b, m.Hash)
	b = binary.AppendUvarint(b, uint64(m.Epoch))
	return AppendConf(append(b, encoding.Flag(m.Installed, 1)), m.Conf)
}

func DecodeMark(b []byte) (Mark, error) {
	if len(b) == 0 || b[0] != markVersion {
		return Mark{}, fmt.Errorf("%w: version", ErrMalformed)
	}
	r := Read(b[1:])
	m := Mark{Replica: r.Uvarint(), Index: r.Uvarint(), Term: r.Uvarint(), Hash: r.U64(), Epoch: uint32(r.Uvarint()), Installed: r.Byte() != 0, Conf: r.Conf()}
	return m, r.End()
}

// AppendConf encodes a membership: four lists of replica ids and the auto-leave flag.
func AppendConf(b []byte, c *pb.ConfState) []byte {
	for _, ids := range [][]uint64{c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()} {
		b = encoding.AppendUvarints(binary.AppendUvarint(b, uint64(len(ids))), ids...)
	}
	return append(b, encoding.Flag(c.GetAutoLeave(), 1))
}

func AppendTombstone(b []byte, id uint64) []byte {
	return binary.AppendUvarint(append(b, recordVersion), id)
}

func DecodeTombstone(b []byte) (uint64, error) {
	r, err := NewReader(b)
	if err != nil {
		return 0, err
	}
	id := r.Uvarint()
	return id, r.End()
}

// Reader reads a body. After the first fault all values read as zero and End returns an error.
type Reader struct{ encoding.Reader }

func NewReader(b []byte) (Reader, error) {
	if len(b) == 0 || b[0] != recordVersion {
		return Reader{}, fmt.Errorf("%w: version", ErrMalformed)
	}
	return Read(b[1:]), nil
}

// Read reads what has no version of a record's.
func Read(b []byte) Reader { return Reader{encoding.Reader{Rest: b}} }

// Bytes reads a length, and that many bytes.
func (r *Reader) Bytes() []byte { return r.Block(len(r.Rest), "bytes") }

func (r *Reader) Conf() *pb.ConfState {
	ids := func() (out []uint64) {
		for range r.Count(len(r.Rest), 1, "members") {
			out = append(out, r.Uvarint())
		}
		return out
	}
	c := &pb.ConfState{Voters: ids(), Learners: ids(), VotersOutgoing: ids(), LearnersNext: ids()}
	c.AutoLeave = new(r.Byte() == 1)
	return c
}

func (r *Reader) End() error {
	if r.Close() != nil {
		return ErrMalformed
	}
	return nil
}

// Entry is an entry that was read and is not applied yet.
type Entry struct {
	Index, Term uint64
	Type        pb.EntryType
	Data        []byte
}
