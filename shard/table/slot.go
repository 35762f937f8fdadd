package table

import "carillon/timer"

const (
	// Chunks of 32 KiB keep a table with few timers small, and growing copies nothing.
	slotChunkBits = 10
	slotChunkLen  = 1 << slotChunkBits
)

// slot is the part of a timer that changes over its life: 32 bytes without pointers. The client's
// data is in a blob. Data that only an attempted or ended timer has is in an attemptState.
//
// The fields seq, attempts, when, marks, priority, topic (as its TopicID) and rev are replicated
// state. The fields ref and run are local to this replica.
type slot struct {
	seqAttempts uint64 // seq<<16 | attempts
	whenMarks   uint64 // when<<16 | priority<<8 | chained | cancelRequested | reason(3) | state(3)
	// ref is the blob in the arena. In a free slot it is the next free slot.
	ref uint32
	// topic is the row in the table's list of topics.
	topic uint32
	// rev grows with each change of the timer's schedule, so that a remembered handle and rev are
	// known to be stale.
	rev uint32
	// run is the number of the attemptState; 0 is none. Invariant: without a run the timer is
	// Scheduled, has no attempts, and its next attempt is at its due time.
	run uint32
}

const (
	stateMask     = 7
	reasonShift   = 3
	cancelMark    = 1 << 6
	chainMark     = 1 << 7
	priorityShift = 8
	lowBits       = 16
	lowMask       = 1<<lowBits - 1
)

func (s *slot) seq() uint64          { return s.seqAttempts >> lowBits }
func (s *slot) attempts() int        { return int(s.seqAttempts & lowMask) }
func (s *slot) when() int64          { return int64(s.whenMarks >> lowBits) }
func (s *slot) state() timer.State   { return timer.State(s.whenMarks & stateMask) }
func (s *slot) reason() timer.Reason { return timer.Reason(s.whenMarks >> reasonShift & 7) }
func (s *slot) cancelled() bool {
	return s.whenMarks&cancelMark != 0
}
func (s *slot) chained() bool   { return s.whenMarks&chainMark != 0 }
func (s *slot) priority() uint8 { return uint8(s.whenMarks >> priorityShift) }

func (s *slot) setSeq(seq uint64) { s.seqAttempts = seq<<lowBits | s.seqAttempts&lowMask }

func (s *slot) setAttempts(n int) {
	s.seqAttempts = s.seqAttempts&^lowMask | uint64(min(max(n, 0), lowMask))
}
func (s *slot) setWhen(ms int64) {
	s.whenMarks = s.whenMarks&lowMask | uint64(timer.ClampMs(ms))<<lowBits
}
func (s *slot) setState(v timer.State) { s.whenMarks = s.whenMarks&^stateMask | uint64(v) }
func (s *slot) setReason(v timer.Reason) {
	s.whenMarks = s.whenMarks&^(7<<reasonShift) | uint64(v&7)<<reasonShift
}
func (s *slot) setPriority(v uint8) {
	s.whenMarks = s.whenMarks&^(0xff<<priorityShift) | uint64(v)<<priorityShift
}
func (s *slot) mark(bit uint64, on bool) {
	s.whenMarks &^= bit
	if on {
		s.whenMarks |= bit
	}
}

// slab is the array of slots, indexed by handle.
type slab struct {
	chunks []*[slotChunkLen]slot
	high   timer.Handle // the highest handle ever used
	// free is the first free slot. The order of the free list decides future handles, so it is
	// replicated.
	free   timer.Handle
	unused int // number of free slots
}

// at returns the slot of a handle, which must be at most high.
func (b *slab) at(h timer.Handle) *slot {
	return &b.chunks[h>>slotChunkBits][h&(slotChunkLen-1)]
}

// extend allocates the chunk of handle h.
func (b *slab) extend(h timer.Handle) {
	for i := int(h >> slotChunkBits); len(b.chunks) <= i; {
		b.chunks = append(b.chunks, nil)
	}
	if c := &b.chunks[h>>slotChunkBits]; *c == nil {
		*c = new([slotChunkLen]slot)
	}
}

func (b *slab) memory() int64 {
	used := 0
	for _, c := range b.chunks {
		if c != nil {
			used++
		}
	}
	return int64(used)*slotChunkLen*32 + int64(cap(b.chunks))*8
}
