package slab

import (
	"math/rand/v2"
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

// TestPackedSlots: packed slots are what they were, give the same handles, and are cheap.
func TestPackedSlots(t *testing.T) {
	pick := rand.New(rand.NewPCG(1, 2))
	var plain, packed Slots
	seqs := map[timer.Handle]uint64{}
	check := func() {
		t.Helper()
		if plain.High != packed.High || plain.Free != packed.Free || plain.Unused != packed.Unused {
			t.Fatalf("%d %d %d, plain %d %d %d", packed.High, packed.Free, packed.Unused, plain.High, plain.Free, plain.Unused)
		}
		met := 0
		for h := timer.Handle(0); h < packed.High; {
			next, s := packed.Visit(h, packed.High)
			for h++; h < next; h++ {
				if packed.At(h).State() != 0 {
					t.Fatalf("handle %d is passed over", h)
				}
			}
			if packed.At(next) != s {
				t.Fatalf("a visit of handle %d gets another slot", next)
			}
			if s.Seq() != seqs[next] || (s.State() == 0) != (seqs[next] == 0) {
				t.Fatalf("handle %d has number %d, not %d", next, s.Seq(), seqs[next])
			}
			if s.State() == 0 {
				continue
			}
			if met++; packed.Handle(packed.Row(next)) != next {
				t.Fatalf("the row of handle %d is that of %d", next, packed.Handle(packed.Row(next)))
			}
		}
		for h, n := packed.Free, 0; h != 0; h, n = packed.NextFree(h), n+1 {
			if packed.NextFree(h) != plain.NextFree(h) || n > packed.Unused {
				t.Fatalf("%d follows %d in the free list, plain %d", packed.NextFree(h), h, plain.NextFree(h))
			}
		}
		if met != len(seqs) {
			t.Fatalf("%d of %d are met", met, len(seqs))
		}
	}
	take := func(both ...*Slots) {
		for _, s := range both {
			h, slot := s.Take()
			slot.SetState(timer.Scheduled)
			slot.SetSeq(uint64(len(seqs)) + 7)
			if s == both[len(both)-1] {
				seqs[h] = slot.Seq()
			}
		}
	}
	give := func(h timer.Handle) {
		plain.Give(h)
		packed.Give(h)
		delete(seqs, h)
	}
	const most = 20_000
	for range most {
		take(&plain, &packed)
	}
	for h := timer.Handle(1); h <= most; h++ {
		if pick.IntN(16) != 0 {
			give(h)
		}
	}
	before := packed.Memory()
	packed.Pack()
	if after := packed.Memory(); after > before/3 {
		t.Errorf("%d bytes packed, %d before", after, before)
	}
	check()
	for range 30_000 {
		if h := timer.Handle(1 + pick.IntN(int(packed.High))); pick.IntN(3) == 0 && seqs[h] != 0 {
			give(h)
		} else {
			take(&plain, &packed)
		}
	}
	check()
}
