package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// minRef is the minimum length of a Ref: length of the id, number, tag, version, flags, two times.
const minRef = 7

// Flags of a Ref.
const (
	markLeased = 1 << iota
	markNoURL
	markPaused
	markOrigin // the shard that gave the number follows

	markFlags = 1<<iota - 1
)

// AppendWalk encodes one step of a walk on one shard.
func AppendWalk(dst []byte, id timer.ShardID, q *timer.Query, at timer.ScanCursor) []byte {
	var begun byte
	if at.Begun {
		begun = 1
	}
	dst = append(dst, version, begun)
	dst = binary.AppendUvarint(dst, uint64(at.From))
	dst = binary.AppendUvarint(dst, uint64(at.High))
	dst = binary.AppendUvarint(dst, at.Seq)
	return AppendQuery(dst, id, q)
}

// DecodeWalk decodes the output of AppendWalk.
func DecodeWalk(b []byte) (id timer.ShardID, q *timer.Query, at timer.ScanCursor, err error) {
	r := open(b)
	at = r.waypoint()
	if err := r.Err(); err != nil {
		return 0, nil, timer.ScanCursor{}, err
	}
	id, q, err = DecodeQuery(r.Rest)
	return id, q, at, err
}

func (r *reader) waypoint() (at timer.ScanCursor) {
	begun := r.Byte()
	if begun > 1 {
		r.Fail("a walk that has begun otherwise")
	}
	at.Begun = begun == 1
	at.From = timer.Handle(r.Number(1<<32-1, "slot"))
	at.High = timer.Handle(r.Number(1<<32-1, "slot"))
	at.Seq = r.Uvarint()
	return at
}

// AppendRefs encodes the timers that a step found, and where the next step begins.
func AppendRefs(dst []byte, marks []timer.Ref, next timer.ScanCursor) []byte {
	var begun byte
	if next.Begun {
		begun = 1
	}
	dst = append(dst, version, faultNone, begun)
	dst = binary.AppendUvarint(dst, uint64(next.From))
	dst = binary.AppendUvarint(dst, uint64(next.High))
	dst = binary.AppendUvarint(dst, next.Seq)
	dst = binary.AppendUvarint(dst, uint64(len(marks)))
	for i := range marks {
		m := &marks[i]
		var flags byte
		if m.Leased {
			flags |= markLeased
		}
		if m.NoURL {
			flags |= markNoURL
		}
		if m.Paused {
			flags |= markPaused
		}
		if m.Origin != 0 {
			flags |= markOrigin
		}
		dst = encoding.AppendBlock(dst, m.ID)
		dst = binary.AppendUvarint(dst, m.Seq)
		dst = binary.AppendUvarint(dst, uint64(m.Tag))
		dst = binary.AppendUvarint(dst, uint64(m.Version))
		dst = append(dst, flags)
		dst = binary.AppendVarint(dst, m.DueMs)
		dst = binary.AppendVarint(dst, m.NextMs)
		if m.Origin != 0 {
			dst = binary.AppendUvarint(dst, uint64(m.Origin))
		}
	}
	return dst
}

// DecodeRefs decodes the output of AppendRefs or AppendFailure.
func DecodeRefs(b []byte) (marks []timer.Ref, next timer.ScanCursor, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, timer.ScanCursor{}, err
	}
	next = r.waypoint()
	for n := r.Count(timer.MaxScan, minRef, "marks"); n > 0 && r.Fault == ""; n-- {
		m := timer.Ref{ID: string(r.Block(encoding.MaxID, "id")), Seq: r.Uvarint(), Tag: uint32(r.Number(1<<32-1, "tag"))}
		m.Version = uint32(r.Number(1<<32-1, "version"))
		flags := r.Byte()
		if flags&^markFlags != 0 {
			r.Fail("unknown flags of a mark")
		}
		m.Leased, m.NoURL, m.Paused = flags&markLeased != 0, flags&markNoURL != 0, flags&markPaused != 0
		m.DueMs, m.NextMs = r.Varint(), r.Varint()
		if flags&markOrigin != 0 {
			m.Origin = timer.ShardID(r.Number(1<<32-1, "origin"))
		}
		marks = append(marks, m)
	}
	if err := r.Close(); err != nil {
		return nil, timer.ScanCursor{}, err
	}
	return marks, next, nil
}
