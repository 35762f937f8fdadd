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

// Flags of a place in a walk.
const (
	walkBegun   = 1 << iota
	walkRefused // in an answer: the step was not taken
	walkMore    // in an answer: that of another step follows

	walkFlags = 1<<iota - 1
)

// AppendWalk encodes a step each of some walks, at least one, in ascending order of their shards.
func AppendWalk(dst []byte, steps []timer.Step, q *timer.Query) []byte {
	ids := make([]timer.ShardID, len(steps))
	for i := range steps {
		ids[i] = steps[i].Shard
	}
	dst = appendCursor(append(dst, version), 0, steps[0].At)
	dst = AppendQuery(dst, ids, q)
	for i := range steps[1:] {
		dst = appendCursor(dst, 0, steps[1+i].At)
	}
	return dst
}

func DecodeWalk(b []byte) ([]timer.Step, *timer.Query, error) {
	r := open(b)
	at, _ := r.cursor(walkBegun)
	if v := r.Byte(); v != version {
		r.Fail("version of a query")
	}
	ids, q := r.query()
	steps := make([]timer.Step, len(ids))
	for i, id := range ids {
		if i > 0 {
			at, _ = r.cursor(walkBegun)
		}
		steps[i] = timer.Step{Shard: id, At: at}
	}
	if err := r.Close(); err != nil {
		return nil, nil, err
	}
	return steps, q, nil
}

func appendCursor(dst []byte, flags byte, at timer.ScanCursor) []byte {
	if at.Begun {
		flags |= walkBegun
	}
	dst = append(dst, flags)
	dst = encoding.AppendUvarints(dst, uint64(at.From), uint64(at.High))
	return binary.AppendUvarint(dst, at.Seq)
}

func (r *reader) cursor(known byte) (at timer.ScanCursor, flags byte) {
	if flags = r.Byte(); flags&^known != 0 {
		r.Fail("unknown flags of a place in a walk")
	}
	at.Begun = flags&walkBegun != 0
	at.From = timer.Handle(r.Number(1<<32-1, "slot"))
	at.High = timer.Handle(r.Number(1<<32-1, "slot"))
	at.Seq = r.Uvarint()
	return at, flags
}

// AppendSteps encodes where each walk is by now, and the timers that its step has found.
func AppendSteps(dst []byte, steps []timer.Step) []byte {
	dst = append(dst, version, faultNone)
	for i := range steps {
		s := &steps[i]
		flags := encoding.Flag(s.Refused, walkRefused) | encoding.Flag(i < len(steps)-1, walkMore)
		dst = appendRefs(appendCursor(dst, flags, s.At), s.Refs)
	}
	return dst
}

// DecodeSteps decodes the output of AppendSteps or AppendFailure, the answer to these steps, into
// them.
func DecodeSteps(b []byte, steps []timer.Step) error {
	r, err := answered(b)
	if err != nil {
		return err
	}
	found := make([]timer.Step, len(steps))
	for i := range found {
		s := &found[i]
		var flags byte
		s.At, flags = r.cursor(walkFlags)
		if s.Shard, s.Refused, s.Refs = steps[i].Shard, flags&walkRefused != 0, r.refs(); (flags&walkMore != 0) != (i < len(steps)-1) {
			r.Fail("not as many steps as were asked for")
		}
	}
	if err := r.Close(); err != nil {
		return err
	}
	copy(steps, found)
	return nil
}

func appendRefs(dst []byte, marks []timer.Ref) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(marks)))
	for i := range marks {
		m := &marks[i]
		flags := encoding.Flag(m.Leased, markLeased) | encoding.Flag(m.NoURL, markNoURL) | encoding.Flag(m.Paused, markPaused) |
			encoding.Flag(m.Origin != 0, markOrigin)
		dst = encoding.AppendBlock(dst, m.ID)
		dst = encoding.AppendUvarints(dst, m.Seq, uint64(m.Tag), uint64(m.Version))
		dst = append(dst, flags)
		dst = encoding.AppendVarints(dst, m.DueMs, m.NextMs)
		if m.Origin != 0 {
			dst = binary.AppendUvarint(dst, uint64(m.Origin))
		}
	}
	return dst
}

func (r *reader) refs() (marks []timer.Ref) {
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
	return marks
}
