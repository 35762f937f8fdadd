package shard

import (
	"encoding/binary"

	"carillon/timer"
)

// Flags of a timer.
const (
	timerCancelRequested = 1 << iota
	timerSuccessor
	timerShort

	timerFlags = 1<<iota - 1
)

func appendTimer(dst []byte, t *timer.Timer) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.Topic))
	dst = appendBlock(dst, t.ID)
	dst, at := openBlock(dst)
	dst = appendSpec(dst, &t.Spec)
	closeBlock(dst, at)
	dst = binary.AppendUvarint(dst, t.Seq)
	dst = binary.LittleEndian.AppendUint32(dst, t.Tag)
	dst = binary.AppendUvarint(dst, uint64(t.Version))
	var flags byte
	if t.CancelRequested {
		flags |= timerCancelRequested
	}
	if t.Successor {
		flags |= timerSuccessor
	}
	if t.Short {
		flags |= timerShort
	}
	dst = append(dst, byte(t.State), byte(t.Reason), flags)
	dst = binary.AppendVarint(dst, t.NextMs)
	dst = binary.AppendVarint(dst, t.CreatedMs)
	dst = binary.AppendVarint(dst, t.UpdatedMs)
	dst = binary.AppendVarint(dst, t.EndedMs)
	dst = binary.AppendVarint(dst, t.FiredMs)
	dst = binary.AppendVarint(dst, t.LatenessMs)
	dst = binary.AppendVarint(dst, int64(t.Attempts))
	dst = binary.AppendUvarint(dst, t.Fence)
	dst = binary.AppendVarint(dst, int64(t.LastStatus))
	return appendBlock(dst, cut(t.LastError, maxErr))
}

// timer reads a timer; after a fault what it returns means nothing.
func (r *reader) timer() *timer.Timer {
	t := new(timer.Timer)
	t.Topic = timer.TopicID(r.number(1<<32-1, "topic"))
	t.ID = string(r.block(maxID, "id"))
	body := reader{b: r.block(maxBlock, "spec")}
	if r.fault != "" {
		return t
	}
	raw := body.spec()
	if err := body.err(); err != nil {
		r.fail("spec " + body.fault)
	} else if err := raw.decodeTo(&t.Spec); err != nil {
		r.fail("spec cannot be read")
	}
	t.Seq = r.uvarint()
	t.Tag = r.u32()
	t.Version = uint32(r.number(1<<32-1, "version"))
	t.State, t.Reason = timer.State(r.byte()), timer.Reason(r.byte())
	if t.State < timer.Scheduled || t.State > timer.Cancelled || t.Reason > timer.Refused {
		r.fail("unknown state or reason")
	}
	flags := r.byte()
	if flags&^timerFlags != 0 {
		r.fail("unknown flags of a timer")
	}
	t.CancelRequested = flags&timerCancelRequested != 0
	t.Successor = flags&timerSuccessor != 0
	t.Short = flags&timerShort != 0
	t.NextMs = r.varint()
	t.CreatedMs = r.varint()
	t.UpdatedMs = r.varint()
	t.EndedMs = r.varint()
	t.FiredMs = r.varint()
	t.LatenessMs = r.varint()
	t.Attempts = int(r.varint())
	t.Fence = r.uvarint()
	t.LastStatus = int(r.varint())
	t.LastError = string(r.block(maxErr, "error text"))
	return t
}
