package shard

import (
	"encoding/binary"

	"carillon/timer"
)

// minWireRef is the least that a mark takes: length of the id, version, flags, two times.
const minWireRef = 5

const markLeased = 1 // a flag of a mark

// AppendWalk encodes a step of a walk on one shard.
func AppendWalk(dst []byte, id timer.ShardID, q *timer.Query, at ScanCursor) []byte {
	var begun byte
	if at.Begun {
		begun = 1
	}
	dst = append(dst, wireVersion, begun)
	dst = binary.AppendUvarint(dst, uint64(at.From))
	dst = binary.AppendUvarint(dst, uint64(at.High))
	dst = binary.AppendUvarint(dst, at.Seq)
	return AppendQuery(dst, id, q)
}

// DecodeWalk decodes what AppendWalk wrote.
func DecodeWalk(b []byte) (id timer.ShardID, q *timer.Query, at ScanCursor, err error) {
	r := openWire(b)
	at = r.waypoint()
	if err := r.err(); err != nil {
		return 0, nil, ScanCursor{}, err
	}
	id, q, err = DecodeQuery(r.b)
	return id, q, at, err
}

func (r *wireReader) waypoint() (at ScanCursor) {
	begun := r.byte()
	if begun > 1 {
		r.fail("a walk that has begun otherwise")
	}
	at.Begun = begun == 1
	at.From = timer.Handle(r.number(1<<32-1, "slot"))
	at.High = timer.Handle(r.number(1<<32-1, "slot"))
	at.Seq = r.uvarint()
	return at
}

// AppendRefs encodes what a step met and where the next one begins.
func AppendRefs(dst []byte, marks []timer.Ref, next ScanCursor) []byte {
	var begun byte
	if next.Begun {
		begun = 1
	}
	dst = append(dst, wireVersion, faultNone, begun)
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
		dst = appendBlock(dst, m.ID)
		dst = binary.AppendUvarint(dst, uint64(m.Version))
		dst = append(dst, flags)
		dst = binary.AppendVarint(dst, m.DueMs)
		dst = binary.AppendVarint(dst, m.NextMs)
	}
	return dst
}

// DecodeRefs decodes what AppendRefs or AppendFailure wrote.
func DecodeRefs(b []byte) (marks []timer.Ref, next ScanCursor, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, ScanCursor{}, err
	}
	next = r.waypoint()
	for n := r.count(maxScan, minWireRef, "marks"); n > 0 && r.fault == ""; n-- {
		m := timer.Ref{ID: string(r.block(maxID, "id")), Version: uint32(r.number(1<<32-1, "version"))}
		flags := r.byte()
		if flags&^markLeased != 0 {
			r.fail("unknown flags of a mark")
		}
		m.Leased = flags&markLeased != 0
		m.DueMs, m.NextMs = r.varint(), r.varint()
		marks = append(marks, m)
	}
	if err := r.close(); err != nil {
		return nil, ScanCursor{}, err
	}
	return marks, next, nil
}
