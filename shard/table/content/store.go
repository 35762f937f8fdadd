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

// New makes an empty store.
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

// SetError replaces an error text and the encoded answer with it, which may be empty, and returns
// the new ref. Ref 0 and an empty text without an answer are none.
//
// In the arena: length of the text u16, with encoding.AnswerFollows if there is an answer, text,
// length of the answer u16, answer.
func (s *Store) SetError(h timer.Handle, ref uint32, text string, answer []byte) uint32 {
	if ref != 0 {
		s.sum -= s.ErrorHash(h, ref)
		s.blocks.Release(ref)
	}
	if text == "" && len(answer) == 0 {
		return 0
	}
	n := 2 + len(text)
	if len(answer) > 0 {
		n += 2 + len(answer)
	}
	ref, b := s.blocks.Alloc(n)
	binary.LittleEndian.PutUint16(b, uint16(len(text)))
	copy(b[2:], text)
	if len(answer) > 0 {
		binary.LittleEndian.PutUint16(b, uint16(len(text)|encoding.AnswerFollows))
		b = b[2+len(text):]
		binary.LittleEndian.PutUint16(b, uint16(len(answer)))
		copy(b[2:], answer)
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
	if ref == 0 {
		return nil, nil
	}
	b := s.blocks.At(ref)
	n := int(binary.LittleEndian.Uint16(b))
	text, b = b[2:2+n&^encoding.AnswerFollows], b[2+n&^encoding.AnswerFollows:]
	if n&encoding.AnswerFollows != 0 {
		answer = b[2 : 2+int(binary.LittleEndian.Uint16(b))]
	}
	return text, answer
}

// ErrorHash returns the part of the sum of an error text and its answer.
func (s *Store) ErrorHash(h timer.Handle, ref uint32) uint64 {
	if ref == 0 {
		return 0
	}
	text, answer := s.Failure(ref)
	x := Mix(^uint64(h), xxhash.Sum64(text))
	if len(answer) > 0 {
		x = Mix(x, xxhash.Sum64(answer))
	}
	return x
}

// Sum returns the sum of the hashes of all blobs and error texts.
func (s *Store) Sum() uint64 { return s.sum }

// Memory returns the bytes allocated.
func (s *Store) Memory() int64 { return s.blocks.Memory() + s.callbacks.memory() }
