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
	body := reader{b: r.block(maxWireBlock, "spec")}
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

// AppendTimerRequest encodes the question for one timer.
func AppendTimerRequest(dst []byte, id timer.ShardID, topic timer.TopicID, timerID string) []byte {
	dst = binary.AppendUvarint(append(dst, wireVersion), uint64(id))
	dst = binary.AppendUvarint(dst, uint64(topic))
	return appendBlock(dst, timerID)
}

// DecodeTimerRequest decodes what AppendTimerRequest wrote.
func DecodeTimerRequest(b []byte) (id timer.ShardID, topic timer.TopicID, timerID string, err error) {
	r := openWire(b)
	id = timer.ShardID(r.number(1<<32-1, "shard"))
	topic = timer.TopicID(r.number(1<<32-1, "topic"))
	timerID = string(r.block(maxID, "id"))
	return id, topic, timerID, r.close()
}

// AppendTimer encodes the answer for one timer; nil says that there is none.
func AppendTimer(dst []byte, t *timer.Timer) []byte {
	dst = append(dst, wireVersion, faultNone)
	if t == nil {
		return append(dst, 0)
	}
	return appendTimer(append(dst, 1), t)
}

// DecodeTimer decodes what AppendTimer or AppendFailure wrote.
func DecodeTimer(b []byte) (*timer.Timer, error) {
	r, err := answered(b)
	if err != nil {
		return nil, err
	}
	var t *timer.Timer
	if r.number(1, "presence") == 1 {
		t = r.timer()
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return t, nil
}

// AppendTimers encodes a page of timers, the first of the list as far as they fit; at least one does.
func AppendTimers(dst []byte, list []*timer.Timer) []byte {
	start := len(dst)
	dst = append(dst, wireVersion, faultNone, 0)
	for _, t := range list {
		if len(dst)-start > answerBytes {
			dst[start+2] = 1
			return append(dst, 0)
		}
		dst = appendTimer(append(dst, 1), t)
	}
	return append(dst, 0)
}

// DecodeTimers decodes what AppendTimers or AppendFailure wrote. cut says that the list went on.
func DecodeTimers(b []byte) (list []*timer.Timer, cut bool, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, false, err
	}
	cut = r.number(1, "cut") == 1
	for r.number(1, "presence") == 1 && r.fault == "" {
		list = append(list, r.timer())
	}
	if err := r.close(); err != nil {
		return nil, false, err
	}
	return list, cut, nil
}
