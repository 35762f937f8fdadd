package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// The messages by which a node opens another node's state for a backup, and reads it piece by
// piece.

// StateRequest opens a state, or asks for the next piece of an open one.
type StateRequest struct {
	Group  timer.ShardID
	Index  uint64 // to open: the index that the state must include; 0: all that is acknowledged by now
	Number uint64 // of the open state; 0: open one
	Offset uint64
	Bytes  uint64 // length of the piece at most; 0: close the state
}

// StateAnswer is the answer to a StateRequest.
type StateAnswer struct {
	Index  uint64 // the index that the state must include, or includes
	Number uint64 // 0: the state is not ready yet
	Size   uint64
	Hash   uint64
	Piece  []byte
}

func AppendStateRequest(dst []byte, q *StateRequest) []byte {
	dst = append(dst, version)
	dst = encoding.AppendUvarints(dst, uint64(q.Group), q.Index, q.Number, q.Offset, q.Bytes)
	return dst
}

func DecodeStateRequest(b []byte) (q StateRequest, err error) {
	r := open(b)
	q.Group = timer.ShardID(r.Number(1<<32-1, "shard"))
	q.Index, q.Number, q.Offset, q.Bytes = r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint()
	return q, r.Close()
}

func AppendStateAnswer(dst []byte, a *StateAnswer) []byte {
	dst = append(dst, version, faultNone)
	dst = encoding.AppendUvarints(dst, a.Index, a.Number, a.Size, a.Hash)
	dst = binary.AppendUvarint(dst, uint64(len(a.Piece)))
	return append(dst, a.Piece...)
}

// MaxStatePiece bounds a piece of a state, in bytes.
const MaxStatePiece = 256 << 10

// DecodeStateAnswer decodes the output of AppendStateAnswer or AppendFailure. Piece points into b.
func DecodeStateAnswer(b []byte) (a StateAnswer, err error) {
	r, err := answered(b)
	if err != nil {
		return a, err
	}
	a.Index, a.Number, a.Size, a.Hash = r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint()
	a.Piece = r.Block(MaxStatePiece, "piece")
	return a, r.Close()
}
