package table

import (
	"encoding/binary"
	"math/bits"

	"carillon/timer"
	"carillon/timer/encoding"

	"github.com/cespare/xxhash/v2"
)

// Flags of a blob.
const (
	blobTarget   = 1 << iota // has its own callback
	blobVersion              // has a version other than 1
	blobUpdated              // changed since it was created
	blobNoExpiry             // redriven: its expiry no longer counts
	blobFirst                // the first of the merged adds came later than the creation
	blobSeries               // it repeats
	blobDue                  // a successor: it has no slot, so its due time is here
	blobAsked                // somebody asked for an attempt by hand

	blobFlags = 1<<iota - 1
)

const createdLen = 6

// blob is the client's data of a timer, and its identity, decoded in place. Its layout in the
// arena, where numbers without a size are varints:
//
//	pad | flags u8 | target? | tag u32 | content u64 | created u48 | version? |
//	updated − created? | first add − created? | occurrence? | due? | asked − created? |
//	id length u8 | id | rest of the spec
//
// It is followed by pad unused bytes up to the end of its block. The due time is in the slot or
// attemptState.
type blob struct {
	flags     byte
	target    uint32 // row in targets
	tag       uint32
	version   uint32
	content   uint64
	createdMs int64
	updatedMs int64
	firstMs   int64 // time of the first add if blobFirst, else 0
	// occurrence (blobSeries) counts from 1. It is 0 once the series has continued or ended without
	// this timer.
	occurrence uint32
	dueMs      int64 // set if blobDue
	askedMs    int64 // when Fire last asked for an attempt; 0 never
	id, rest   []byte
	body       []byte // from the tag on; Hash covers it, the flags and the callback
}

// view decodes a blob. Its slices point into the arena and are valid until the timer changes.
func (t *Table) view(ref uint32) blob {
	b := t.blobs.at(ref)
	pad, k := binary.Uvarint(b)
	b = b[k : len(b)-int(pad)]
	v := blob{flags: b[0]}
	b = b[1:]
	if v.flags&blobTarget != 0 {
		target, k := binary.Uvarint(b)
		v.target = uint32(target)
		b = b[k:]
	}
	v.readBody(b)
	return v
}

// targetOf is the row of a blob's callback in targets; 0: it has none.
func (t *Table) targetOf(ref uint32) uint32 {
	b := t.blobs.at(ref)
	_, k := binary.Uvarint(b)
	if b[k]&blobTarget == 0 {
		return 0
	}
	n, _ := binary.Uvarint(b[k+1:])
	return uint32(n)
}

// readBody decodes b, which starts at the tag. It must be well-formed; a loaded body has been
// checked before.
func (v *blob) readBody(b []byte) {
	v.body, v.version = b, 1
	v.tag = binary.LittleEndian.Uint32(b)
	v.content = binary.LittleEndian.Uint64(b[4:])
	v.createdMs = int64(binary.LittleEndian.Uint32(b[12:])) | int64(binary.LittleEndian.Uint16(b[16:]))<<32
	v.updatedMs = v.createdMs
	b = b[12+createdLen:]
	if v.flags&blobVersion != 0 {
		version, k := binary.Uvarint(b)
		v.version = uint32(version)
		b = b[k:]
	}
	if v.flags&blobUpdated != 0 {
		delta, k := binary.Uvarint(b)
		v.updatedMs += int64(delta)
		b = b[k:]
	}
	if v.flags&(blobFirst|blobSeries|blobDue|blobAsked) != 0 {
		b = v.readSeries(b)
	}
	n := 1 + int(b[0])
	v.id, v.rest = b[1:n], b[n:]
}

// putBlob writes v to the arena. The slices of v may point to another blob or to the batch. The new
// blob takes over the reference to the target.
func (t *Table) putBlob(h timer.Handle, v *blob) uint32 {
	v.flags &= blobNoExpiry | blobSeries | blobDue
	n := 1 + 4 + 8 + createdLen + 1 + len(v.id) + len(v.rest)
	if v.target != 0 {
		v.flags |= blobTarget
		n += encoding.UvarintLen(uint64(v.target))
	}
	if v.version != 1 {
		v.flags |= blobVersion
		n += encoding.UvarintLen(uint64(v.version))
	}
	if v.updatedMs > v.createdMs {
		v.flags |= blobUpdated
		n += encoding.UvarintLen(uint64(v.updatedMs - v.createdMs))
	}
	var room [32]byte
	series := v.appendSeries(room[:0])
	n += len(series)
	ref, b := t.allocPadded(n)
	b = append(b, v.flags)
	if v.target != 0 {
		b = binary.AppendUvarint(b, uint64(v.target))
	}
	from := len(b)
	b = binary.LittleEndian.AppendUint32(b, v.tag)
	b = binary.LittleEndian.AppendUint64(b, v.content)
	b = binary.LittleEndian.AppendUint32(b, uint32(v.createdMs))
	b = binary.LittleEndian.AppendUint16(b, uint16(v.createdMs>>32))
	if v.flags&blobVersion != 0 {
		b = binary.AppendUvarint(b, uint64(v.version))
	}
	if v.flags&blobUpdated != 0 {
		b = binary.AppendUvarint(b, uint64(v.updatedMs-v.createdMs))
	}
	b = append(b, series...)
	b = append(append(b, byte(len(v.id))), v.id...)
	b = append(b, v.rest...)
	t.addBlob(t.blobHash(h, v.flags, v.target, b[from:]))
	return ref
}

// allocPadded returns a block for n bytes. The block is cut to its prefix, which gives the number
// of unused bytes at its end.
func (t *Table) allocPadded(n int) (ref uint32, b []byte) {
	ref, b = t.blobs.alloc(1 + n)
	if pad := len(b) - 1 - n; pad < 0x80 {
		return ref, append(b[:0], byte(pad))
	}
	t.blobs.release(ref)
	ref, b = t.blobs.alloc(2 + n)
	pad := len(b) - 2 - n
	return ref, append(b[:0], byte(pad)|0x80, byte(pad>>7))
}

func (t *Table) dropBlob(h timer.Handle, ref uint32) {
	v := t.view(ref)
	t.addBlob(-t.blobHash(h, v.flags, v.target, v.body))
	t.targets.release(&t.blobs, v.target)
	t.blobs.release(ref)
}

// mix folds two words into one, as in wyhash.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xA0761D6478BD642F, b^0xE7037ED1A0B428DB)
	return hi ^ lo
}

func (t *Table) blobHash(h timer.Handle, flags byte, target uint32, body []byte) uint64 {
	x := mix(uint64(h)<<8|uint64(flags), xxhash.Sum64(body))
	if target != 0 {
		x = mix(x, t.targets.at(target).hash)
	}
	return x
}

func errorHash(h timer.Handle, text []byte) uint64 { return mix(^uint64(h), xxhash.Sum64(text)) }

// slotHash covers the fields of a slot and its attemptState. The sums over all slots and blobs
// follow each change, so reading the hash of the whole state costs nothing extra (I7, I12).
func (t *Table) slotHash(h timer.Handle, s *slot) uint64 {
	x := mix(uint64(h), s.seqAttempts)
	x = mix(x, s.whenMarks)
	if s.state() == 0 {
		return mix(x, uint64(s.ref))
	}
	x = mix(x, uint64(t.topics.rows[s.topic].id)<<32|uint64(s.rev))
	if s.run != 0 {
		r := t.runs.at(s.run)
		x = mix(x, r.fence)
		x = mix(x, uint64(r.dueMs))
		x = mix(x, uint64(r.dueOrEndMs))
		x = mix(x, uint64(r.firedMs))
		x = mix(x, uint64(r.lateness))
		x = mix(x, uint64(r.newer)<<32|uint64(r.older))
		x = mix(x, uint64(r.status)|uint64(r.durMs)<<16|uint64(r.holder)<<48)
	}
	if s.chained() {
		l := t.chains[h]
		x = mix(x, uint64(l.newer)<<32|uint64(l.older))
	}
	return x
}
