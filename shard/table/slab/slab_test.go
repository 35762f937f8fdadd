package slab

import (
	"testing"
	"unsafe"

	"carillon/timer"
)

// TestSlotFields: the fields of a slot do not overlap.
func TestSlotFields(t *testing.T) {
	var s Slot
	s.SetSeq(1<<48 - 1)
	s.SetAttempts(70_000)
	s.SetWhen(timer.MaxMs + 1)
	s.SetState(timer.Cancelled)
	s.SetReason(timer.Refused)
	s.SetPriority(255)
	s.Mark(CancelMark, true)
	s.Mark(ChainMark, true)
	if s.Seq() != 1<<48-1 || s.Attempts() != LowMask || s.When() != timer.MaxMs || s.State() != timer.Cancelled || s.Reason() != timer.Refused || s.Priority() != 255 || !s.Cancelled() || !s.Chained() {
		t.Errorf("%+v", s)
	}
	if made := Made(s.Seq(), uint64(s.Attempts()), uint64(s.When()), s.Marks(), 0); made != s {
		t.Errorf("made %+v, want %+v", made, s)
	}
	s.SetSeq(0)
	s.SetAttempts(-1)
	s.SetWhen(0)
	s.SetState(0)
	s.SetReason(0)
	s.SetPriority(0)
	s.Mark(CancelMark, false)
	s.Mark(ChainMark, false)
	if s != (Slot{}) {
		t.Errorf("%+v is left", s)
	}
}

// TestSizes: the memory of a timer is planned for these sizes.
func TestSizes(t *testing.T) {
	if slot, attempt := unsafe.Sizeof(Slot{}), unsafe.Sizeof(Attempt{}); slot != 32 || attempt != 64 {
		t.Errorf("a slot has %d bytes, an attempt %d", slot, attempt)
	}
}

// TestSlotsGrow: chunks are allocated only for the handles that are used, and slots do not move.
func TestSlotsGrow(t *testing.T) {
	var s Slots
	s.Extend(1)
	first := s.At(1)
	first.SetSeq(5)
	s.Extend(10 * slotChunkLen)
	if s.At(1) != first || s.At(1).Seq() != 5 || s.At(10*slotChunkLen).State() != 0 {
		t.Error("a slot has moved")
	}
	if most := int64(3 * slotChunkLen * 32); s.Memory() > most {
		t.Errorf("two chunks take %d bytes", s.Memory())
	}
}

// TestAttemptsAreReused: a freed attempt is given again, empty.
func TestAttemptsAreReused(t *testing.T) {
	var a Attempts
	one, two := a.Take(), a.Take()
	a.At(one).Fence, a.At(two).Fence = 1, 2
	a.Give(one)
	if again := a.Take(); again != one || *a.At(again) != (Attempt{}) || a.At(two).Fence != 2 {
		t.Errorf("%d after %d: %+v", again, one, a.At(again))
	}
	if three := a.Take(); three == one || three == two || three == 0 {
		t.Errorf("%d is given twice", three)
	}
}
