package encoding

import (
	"encoding/binary"

	"carillon/timer"
)

// Flags of a timer.
const (
	TimerCancelRequested = 1 << iota
	timerSuccessor
	_          // it was once used
	TimerAsked // the time is last
	timerMade  // Content, FirstMs and Occurrence follow; the history does not keep them
	timerPaused
	// TimerCollects: how many payloads the array has, and whether it is full, are last.
	TimerCollects
	TimerOrigin // the shard that gave the number is last
)

func AppendTimer(dst []byte, t *timer.Timer) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.Topic))
	dst = AppendBlock(dst, t.ID)
	dst, at := OpenBlock(dst)
	dst = AppendSpec(dst, &t.Spec)
	CloseBlock(dst, at)
	dst = binary.AppendUvarint(dst, t.Seq)
	dst = binary.LittleEndian.AppendUint32(dst, t.Tag)
	dst = binary.AppendUvarint(dst, uint64(t.Version))
	flags := Flag(t.CancelRequested, TimerCancelRequested) | Flag(t.Successor, timerSuccessor) |
		Flag(t.AskedMs != 0, TimerAsked) | Flag(t.Paused, timerPaused) | Flag(t.Collected != 0, TimerCollects) |
		Flag(t.Origin != 0, TimerOrigin) | Flag(t.Content != 0 || t.FirstMs != 0 || t.Occurrence != 0, timerMade)
	dst = append(dst, byte(t.State), byte(t.Reason), flags)
	dst = AppendVarints(dst, t.NextMs, t.CreatedMs, t.UpdatedMs, t.EndedMs, t.FiredMs, t.LatenessMs, int64(t.Attempts))
	dst = binary.AppendUvarint(dst, t.Fence)
	dst = binary.AppendVarint(dst, int64(t.LastStatus))
	if flags&timerMade != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, t.Content)
		dst = binary.AppendVarint(dst, t.FirstMs)
		dst = binary.AppendUvarint(dst, uint64(t.Occurrence))
	}
	dst = AppendError(dst, t.LastError, t.LastAnswer)
	if t.AskedMs != 0 {
		dst = binary.AppendVarint(dst, t.AskedMs)
	}
	if t.Collected != 0 {
		dst = AppendCollected(dst, int(t.Collected), t.Full)
	}
	if t.Origin != 0 {
		dst = binary.AppendUvarint(dst, uint64(t.Origin))
	}
	return dst
}

// AppendCollected writes how many payloads an array has, and whether it is full.
func AppendCollected(dst []byte, n int, full bool) []byte {
	return binary.AppendUvarint(dst, uint64(n)<<1|uint64(Flag(full, 1)))
}

// Timer reads a Timer; after a fault the result has no meaning.
func (r *Reader) Timer() *timer.Timer {
	t := new(timer.Timer)
	t.Topic = timer.TopicID(r.Number(1<<32-1, "topic"))
	t.ID = string(r.Block(MaxID, "id"))
	body := Reader{Rest: r.Block(MaxBlock, "spec")}
	if r.Fault != "" {
		return t
	}
	raw := body.Spec()
	if err := body.Err(); err != nil {
		r.Fail("spec " + body.Fault)
	} else if err := raw.DecodeTo(&t.Spec); err != nil {
		r.Fail("spec cannot be read")
	}
	t.Seq = r.Uvarint()
	t.Tag = r.u32()
	t.Version = uint32(r.Number(1<<32-1, "version"))
	t.State, t.Reason = timer.State(r.Byte()), timer.Reason(r.Byte())
	if t.State < timer.Scheduled || t.State > timer.Cancelled || t.Reason > timer.Refused {
		r.Fail("unknown state or reason")
	}
	flags := r.Byte()
	t.CancelRequested = flags&TimerCancelRequested != 0
	t.Successor = flags&timerSuccessor != 0
	t.Paused = flags&timerPaused != 0
	t.NextMs = r.Varint()
	t.CreatedMs = r.Varint()
	t.UpdatedMs = r.Varint()
	t.EndedMs = r.Varint()
	t.FiredMs = r.Varint()
	t.LatenessMs = r.Varint()
	t.Attempts = int(r.Varint())
	t.Fence = r.Uvarint()
	t.LastStatus = int(r.Varint())
	if flags&timerMade != 0 {
		t.Content = r.U64()
		t.FirstMs = r.Varint()
		t.Occurrence = uint32(r.Number(1<<32-1, "occurrence"))
	}
	t.LastError, t.LastAnswer = r.Failure()
	if flags&TimerAsked != 0 {
		t.AskedMs = r.Varint()
	}
	if flags&TimerCollects != 0 {
		word := r.Number(timer.MaxCollectMax<<1|1, "collected")
		t.Collected, t.Full = uint16(word>>1), word&1 != 0
	}
	if flags&TimerOrigin != 0 {
		t.Origin = timer.ShardID(r.Number(1<<32-1, "origin"))
	}
	return t
}
