// Package content keeps what clients gave for their timers: a Blob for each, with its identity and
// its spec, the callbacks that timers share, and the texts of last errors. A blob is addressed by a
// ref and a callback by a row. Both are local to a replica and reused.
//
// A Store has nothing for the garbage collector to mark but its few chunks. It keeps the sum of the
// hashes of its blobs, which is a part of the table's state hash.
package content

import (
	"encoding/binary"
	"math/bits"

	"carillon/shard/table/arena"
	"carillon/shard/table/index"
	"carillon/timer"
	"carillon/timer/encoding"

	"github.com/cespare/xxhash/v2"
)

// Store keeps the blobs and error texts of a table's timers in one arena, and the callbacks that
// timers share. To write or read a blob is O(its bytes).
type Store struct {
	blocks    arena.Arena
	callbacks callbacks
	// sum is the sum of the hashes of all blobs and error texts. Every change updates it.
	sum uint64
}

func New() Store { return Store{callbacks: callbacks{index: index.New()}} }

// View decodes a blob. Its slices point into the arena and are valid until the timer changes.
func (s *Store) View(ref uint32) Blob {
	b := s.blocks.At(ref)
	pad, k := binary.Uvarint(b)
	b = b[k : len(b)-int(pad)]
	v := Blob{Flags: b[0]}
	b = b[1:]
	if v.Flags&HasTarget != 0 {
		target, k := binary.Uvarint(b)
		v.Target = uint32(target)
		b = b[k:]
	}
	v.Decode(b)
	return v
}

// HasURL reports whether a blob has a callback with a URL.
func (s *Store) HasURL(ref uint32) bool {
	b := s.blocks.At(ref)
	_, k := binary.Uvarint(b)
	if b[k]&HasTarget == 0 {
		return false
	}
	n, _ := binary.Uvarint(b[k+1:])
	callback := s.EncodedCallback(uint32(n))
	return len(callback) > 0 && callback[0] == encoding.CallbackURL // it is the first field
}

// Put writes v to the arena. The slices of v may point to another blob or to the batch. The new
// blob takes over the reference to the target.
func (s *Store) Put(h timer.Handle, v *Blob) uint32 {
	v.Flags &= NoExpiry | IsSeries | HasDue
	n := 1 + 4 + 8 + createdLen + 1 + len(v.ID) + len(v.Rest)
	if v.Target != 0 {
		v.Flags |= HasTarget
		n += encoding.UvarintLen(uint64(v.Target))
	}
	if v.Version != 1 {
		v.Flags |= hasVersion
		n += encoding.UvarintLen(uint64(v.Version))
	}
	if v.UpdatedMs > v.CreatedMs {
		v.Flags |= hasUpdate
		n += encoding.UvarintLen(uint64(v.UpdatedMs - v.CreatedMs))
	}
	var room [32]byte
	series := v.appendSeries(room[:0])
	n += len(series)
	ref, b := s.allocPadded(n)
	b = append(b, v.Flags)
	if v.Target != 0 {
		b = binary.AppendUvarint(b, uint64(v.Target))
	}
	from := len(b)
	b = binary.LittleEndian.AppendUint32(b, v.Tag)
	b = binary.LittleEndian.AppendUint64(b, v.Content)
	b = binary.LittleEndian.AppendUint32(b, uint32(v.CreatedMs))
	b = binary.LittleEndian.AppendUint16(b, uint16(v.CreatedMs>>32))
	if v.Flags&hasVersion != 0 {
		b = binary.AppendUvarint(b, uint64(v.Version))
	}
	if v.Flags&hasUpdate != 0 {
		b = binary.AppendUvarint(b, uint64(v.UpdatedMs-v.CreatedMs))
	}
	b = append(b, series...)
	b = append(append(b, byte(len(v.ID))), v.ID...)
	b = append(b, v.Rest...)
	v.Body = b[from:]
	s.sum += s.Hash(h, v)
	return ref
}

// allocPadded returns a block for n bytes. The block is cut to its prefix, which gives the number
// of unused bytes at its end.
func (s *Store) allocPadded(n int) (ref uint32, b []byte) {
	ref, b = s.blocks.Alloc(1 + n)
	if pad := len(b) - 1 - n; pad < 0x80 {
		return ref, append(b[:0], byte(pad))
	}
	s.blocks.Release(ref)
	ref, b = s.blocks.Alloc(2 + n)
	pad := len(b) - 2 - n
	return ref, append(b[:0], byte(pad)|0x80, byte(pad>>7))
}

// Replace writes v in the place of another blob, which its slices may point to.
func (s *Store) Replace(h timer.Handle, old uint32, v *Blob) uint32 {
	ref := s.Put(h, v)
	s.Drop(h, old)
	return ref
}

// Move moves a blob to where less memory is unused, if it can, and returns its ref.
func (s *Store) Move(ref uint32) uint32 { return s.blocks.Move(ref) }

// EndMoves ends the moves of blobs. Cost: O(memory / 64 KiB).
func (s *Store) EndMoves() { s.blocks.EndMoves() }

// Drop releases a blob and its reference to the target.
func (s *Store) Drop(h timer.Handle, ref uint32) {
	v := s.View(ref)
	s.sum -= s.Hash(h, &v)
	s.release(v.Target)
	s.blocks.Release(ref)
}

// Hash returns a blob's part of the sum.
func (s *Store) Hash(h timer.Handle, v *Blob) uint64 {
	x := Mix(uint64(h)<<8|uint64(v.Flags), xxhash.Sum64(v.Body))
	if v.Target != 0 {
		x = Mix(x, s.callbacks.at(v.Target).hash)
	}
	return x
}

// Mix folds two words into one, as in wyhash.
func Mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xA0761D6478BD642F, b^0xE7037ED1A0B428DB)
	return hi ^ lo
}

// attemptsFollow is added to the length of an error text in the arena if a log of attempts follows.
const attemptsFollow = encoding.AnswerFollows << 1

// SetError replaces an error text, the encoded answer with it, and the log of attempts, each of
// which may be empty, and returns the new ref. Ref 0 is none of them. answer and attempts must not
// view what they replace.
//
// In the arena: length of the text u16, with encoding.AnswerFollows and attemptsFollow, text; then,
// if they follow, length of the answer u16, answer; length of the attempts u16, attempts.
func (s *Store) SetError(h timer.Handle, ref uint32, text string, answer, attempts []byte) uint32 {
	if ref != 0 {
		s.sum -= s.ErrorHash(h, ref)
		s.blocks.Release(ref)
	}
	head, n := len(text), 2+len(text)
	if len(answer) > 0 {
		head, n = head|encoding.AnswerFollows, n+2+len(answer)
	}
	if len(attempts) > 0 {
		head, n = head|attemptsFollow, n+2+len(attempts)
	}
	if head == 0 {
		return 0
	}
	ref, b := s.blocks.Alloc(n)
	b = append(binary.LittleEndian.AppendUint16(b[:0], uint16(head)), text...)
	for _, part := range [...][]byte{answer, attempts} {
		if len(part) > 0 {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(part))), part...)
		}
	}
	s.sum += s.ErrorHash(h, ref)
	return ref
}

// ErrorText returns an error text. It is valid until the timer's next change.
func (s *Store) ErrorText(ref uint32) []byte {
	text, _ := s.Failure(ref)
	return text
}

// Failure returns an error text and the encoded answer with it. They are valid until the timer's
// next change.
func (s *Store) Failure(ref uint32) (text, answer []byte) {
	text, answer, _ = s.failure(ref)
	return text, answer
}

// Attempts returns the log of attempts with an error text. It is valid until the timer's next
// change.
func (s *Store) Attempts(ref uint32) []byte {
	_, _, attempts := s.failure(ref)
	return attempts
}

func (s *Store) failure(ref uint32) (text, answer, attempts []byte) {
	if ref == 0 {
		return nil, nil, nil
	}
	b := s.blocks.At(ref)
	head := int(binary.LittleEndian.Uint16(b))
	part := func(n int) (p []byte) {
		p, b = b[2:2+n], b[2+n:]
		return p
	}
	text = part(head &^ (encoding.AnswerFollows | attemptsFollow))
	if head&encoding.AnswerFollows != 0 {
		answer = part(int(binary.LittleEndian.Uint16(b)))
	}
	if head&attemptsFollow != 0 {
		attempts = part(int(binary.LittleEndian.Uint16(b)))
	}
	return text, answer, attempts
}

// ErrorHash returns the part of the sum of an error text and what is kept with it.
func (s *Store) ErrorHash(h timer.Handle, ref uint32) uint64 {
	if ref == 0 {
		return 0
	}
	text, answer, attempts := s.failure(ref)
	x := Mix(^uint64(h), xxhash.Sum64(text))
	if len(answer) > 0 {
		x = Mix(x, xxhash.Sum64(answer))
	}
	if len(attempts) > 0 {
		x = Mix(x, ^xxhash.Sum64(attempts))
	}
	return x
}

// Sum returns the sum of the hashes of all blobs and error texts.
func (s *Store) Sum() uint64 { return s.sum }

// Full reports that hardly anything more finds a place.
func (s *Store) Full() bool { return s.blocks.Full() }

func (s *Store) Memory() int64 { return s.blocks.Memory() + s.callbacks.memory() }
