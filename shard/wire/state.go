package wire

import (
	"encoding/binary"

	"carillon/timer"
)

// What nodes ask each other about states that are to be part of a backup: to open one, and for
// pieces of it.

// StateRequest asks for a state, or for the next piece of one that was opened.
type StateRequest struct {
	Group  timer.ShardID
	Index  uint64 // to open: what it must have; 0: all that is acknowledged by now
	Number uint64 // of one that was opened; 0: open one
	Offset uint64
	Bytes  uint64 // of the piece, at most; 0: it is not needed any more
}

// StateAnswer is what became of it.
type StateAnswer struct {
	Index  uint64 // what a state must have, or what it has
	Number uint64 // 0: it is not there yet
	Size   uint64
	Hash   uint64
	Piece  []byte
}

// AppendStateRequest encodes one.
func AppendStateRequest(dst []byte, q *StateRequest) []byte {
	dst = append(dst, version)
	for _, v := range [...]uint64{uint64(q.Group), q.Index, q.Number, q.Offset, q.Bytes} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// DecodeStateRequest decodes what AppendStateRequest wrote.
func DecodeStateRequest(b []byte) (q StateRequest, err error) {
	r := open(b)
	q.Group = timer.ShardID(r.Number(1<<32-1, "shard"))
	q.Index, q.Number, q.Offset, q.Bytes = r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint()
	return q, r.Close()
}

// AppendStateAnswer encodes one.
func AppendStateAnswer(dst []byte, a *StateAnswer) []byte {
	dst = append(dst, version, faultNone)
	for _, v := range [...]uint64{a.Index, a.Number, a.Size, a.Hash} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = binary.AppendUvarint(dst, uint64(len(a.Piece)))
	return append(dst, a.Piece...)
}

// MaxStatePiece bounds a piece of a state on its way between nodes.
const MaxStatePiece = 256 << 10

// DecodeStateAnswer decodes what AppendStateAnswer or AppendFailure wrote.
func DecodeStateAnswer(b []byte) (a StateAnswer, err error) {
	r, err := answered(b)
	if err != nil {
		return a, err
	}
	a.Index, a.Number, a.Size, a.Hash = r.Uvarint(), r.Uvarint(), r.Uvarint(), r.Uvarint()
	a.Piece = r.Block(MaxStatePiece, "piece")
	return a, r.Close()
}
