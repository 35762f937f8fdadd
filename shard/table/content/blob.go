package content

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// Flags of a blob.
const (
	HasTarget  = 1 << iota // has its own callback
	hasVersion             // has a version other than 1
	hasUpdate              // changed since it was created
	NoExpiry               // redriven: its expiry no longer counts
	hasFirst               // the first of the merged adds came later than the creation
	IsSeries               // it repeats
	HasDue                 // a successor: it has no slot, so its due time is here
	hasAsked               // somebody asked for an attempt by hand

	allFlags = 1<<iota - 1
)

const createdLen = 6

// Blob is the client's data of a timer, and its identity, decoded in place. Its layout in the
// arena, where numbers without a size are varints:
//
//	pad | flags u8 | target? | tag u32 | content u64 | created u48 | version? |
//	updated − created? | first add − created? | occurrence? | due? | asked − created? |
//	id length u8 | id | rest of the spec
//
// It is followed by pad unused bytes up to the end of its block. The due time is in the slot or
// attempt.
type Blob struct {
	Flags     byte
	Target    uint32 // row of its callback; 0 none
	Tag       uint32
	Version   uint32
	Content   uint64
	CreatedMs int64
	UpdatedMs int64
	FirstMs   int64 // time of the first add if hasFirst, else 0
	// Occurrence (IsSeries) counts from 1. It is 0 once the series has continued or ended without
	// this timer.
	Occurrence uint32
	DueMs      int64 // set if HasDue
	AskedMs    int64 // when Fire last asked for an attempt; 0 never
	ID, Rest   []byte
	Body       []byte // from the tag on; Hash covers it, the flags and the callback
}

// Decode reads the body p, which starts at the tag. It must be well-formed; a loaded body has been
// checked before.
func (b *Blob) Decode(p []byte) {
	b.Body, b.Version = p, 1
	b.Tag = binary.LittleEndian.Uint32(p)
	b.Content = binary.LittleEndian.Uint64(p[4:])
	b.CreatedMs = int64(binary.LittleEndian.Uint32(p[12:])) | int64(binary.LittleEndian.Uint16(p[16:]))<<32
	b.UpdatedMs = b.CreatedMs
	p = p[12+createdLen:]
	if b.Flags&hasVersion != 0 {
		version, k := binary.Uvarint(p)
		b.Version = uint32(version)
		p = p[k:]
	}
	if b.Flags&hasUpdate != 0 {
		delta, k := binary.Uvarint(p)
		b.UpdatedMs += int64(delta)
		p = p[k:]
	}
	if b.Flags&(hasFirst|IsSeries|HasDue|hasAsked) != 0 {
		p = b.readSeries(p)
	}
	n := 1 + int(p[0])
	b.ID, b.Rest = p[1:n], p[n:]
}

// Begin resets a blob for new content: a repeating timer is at its first occurrence, and its expiry
// counts.
func (b *Blob) Begin(repeats bool) {
	b.Flags, b.Occurrence, b.AskedMs = 0, 0, 0
	if repeats {
		b.Flags, b.Occurrence = IsSeries, 1
	}
}

// appendSeries appends the fields that most blobs lack, and sets hasFirst and hasAsked.
func (b *Blob) appendSeries(p []byte) []byte {
	if b.FirstMs > b.CreatedMs {
		b.Flags |= hasFirst
		p = binary.AppendUvarint(p, uint64(b.FirstMs-b.CreatedMs))
	}
	if b.Flags&IsSeries != 0 {
		p = binary.AppendUvarint(p, uint64(b.Occurrence))
	}
	if b.Flags&HasDue != 0 {
		p = binary.AppendUvarint(p, uint64(b.DueMs))
	}
	if b.AskedMs != 0 {
		b.Flags |= hasAsked
		p = binary.AppendVarint(p, b.AskedMs-b.CreatedMs) // negative if two leaders' clocks differ
	}
	return p
}

// readSeries reads the fields that appendSeries wrote and returns the remaining bytes.
func (b *Blob) readSeries(p []byte) []byte {
	number := func(bit byte) uint64 {
		if b.Flags&bit == 0 {
			return 0
		}
		n, k := binary.Uvarint(p)
		p = p[k:]
		return n
	}
	if first := number(hasFirst); first != 0 {
		b.FirstMs = b.CreatedMs + int64(first)
	}
	b.Occurrence = uint32(number(IsSeries))
	b.DueMs = int64(number(HasDue))
	if b.Flags&hasAsked != 0 {
		asked, k := binary.Varint(p)
		b.AskedMs = b.CreatedMs + asked
		p = p[k:]
	}
	return p
}

// FirstAdd returns the time of the first add since the timer's last end. This is its creation,
// unless the timer was redriven or repeats; then the wait starts now.
func (b *Blob) FirstAdd(nowMs int64) int64 {
	switch {
	case b.FirstMs != 0:
		return b.FirstMs
	case b.Flags&NoExpiry == 0 && (b.Flags&IsSeries == 0 || b.Occurrence == 1):
		return b.CreatedMs
	}
	return nowMs
}

// ExpiresMs returns the last time at which an attempt may start; 0 = unlimited.
func (b *Blob) ExpiresMs(dueMs int64) int64 {
	if b.Flags&NoExpiry != 0 {
		return 0
	}
	after, ok := encoding.RestExpiry(b.Rest)
	if !ok {
		return 0
	}
	return max(timer.ClampMs(dueMs+timer.ClampMs(after)), 1) // 0 would mean never
}

// LateFrom returns the time from which lateness counts: when the timer was due and existed, or when
// Fire asked for an attempt before that.
func (b *Blob) LateFrom(dueMs int64) int64 {
	if from := max(dueMs, b.CreatedMs); b.AskedMs == 0 || b.AskedMs > from {
		return from
	}
	return b.AskedMs
}

// Check checks the assumptions of Decode, and that Put would write the same flags.
func (b *Blob) Check(body []byte) error {
	r := encoding.Reader{Rest: body}
	r.Take(4 + 8 + createdLen)
	if b.Flags&^allFlags != 0 {
		r.Fail("unknown flags")
	}
	if b.Flags&hasVersion != 0 && r.Number(1<<32-1, "version") == 1 {
		r.Fail("version 1 is not written")
	}
	if b.Flags&hasUpdate != 0 && r.Number(timer.MaxMs, "update time") == 0 {
		r.Fail("an update at the creation is not written")
	}
	if b.Flags&hasFirst != 0 && r.Number(timer.MaxMs, "first add") == 0 {
		r.Fail("a first add at the creation is not written")
	}
	if b.Flags&IsSeries != 0 {
		r.Number(1<<32-1, "occurrence")
	}
	if b.Flags&HasDue != 0 {
		r.Number(timer.MaxMs, "due time")
	}
	if b.Flags&hasAsked != 0 {
		r.Varint()
	}
	r.Take(int(r.Byte()))
	return r.Err()
}
