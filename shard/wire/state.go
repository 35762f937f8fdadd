package wire

import (
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

// MaxStatePiece bounds a piece of a state, in bytes.
const MaxStatePiece = 256 << 10

func stateRequest(c *encoding.Codec, q *StateRequest) {
	encoding.Uint32(c, &q.Group, "shard")
	c.Uvarints(&q.Index, &q.Number, &q.Offset, &q.Bytes)
}

func stateAnswer(c *encoding.Codec, a *StateAnswer) {
	c.Uvarints(&a.Index, &a.Number, &a.Size, &a.Hash)
	encoding.Text(c, &a.Piece, MaxStatePiece, "piece")
}

func AppendStateRequest(dst []byte, q *StateRequest) []byte { return request(dst, q, stateRequest) }

func DecodeStateRequest(b []byte) (StateRequest, error) { return asked(b, stateRequest) }

func AppendStateAnswer(dst []byte, a *StateAnswer) []byte { return answer(dst, a, stateAnswer) }

// DecodeStateAnswer decodes the output of AppendStateAnswer or AppendFailure. Piece points into b.
func DecodeStateAnswer(b []byte) (StateAnswer, error) { return answered(b, stateAnswer) }
