// Package slab keeps what changes over a timer's life: a Slot of fixed size for each timer, and an
// Attempt for each that was attempted. Neither has a pointer, and growing copies nothing.
//
// It knows no rules: package table decides what a slot may become, and follows each change with its
// sums and counts.
package slab

import "carillon/timer"

// Slot is the part of a timer that changes over its life: 32 bytes without pointers. The client's
// data is in a blob. Data that only an attempted or ended timer has is in an Attempt.
//
// Its number, attempts, time, marks, priority, Topic (as its TopicID) and Rev are replicated state.
// Ref and Attempt are local to this replica.
type Slot struct {
	seqAttempts uint64 // seq<<16 | attempts
	whenMarks   uint64 // when<<16 | priority<<8 | chained | cancelRequested | reason(3) | state(3)
	// Ref is the blob among the contents. In a free slot it is the next free slot; see NextFree.
	Ref uint32
	// Topic is the row in the table's list of topics.
	Topic uint32
	// Rev grows with each change of the timer's schedule, so that a remembered handle and rev are
	// known to be stale.
	Rev uint32
	// Attempt is the number of the Attempt; 0 is none. Invariant: without one the timer is
	// Scheduled, has no attempts, and its next attempt is at its due time.
	Attempt uint32
}

// Marks of a slot.
const (
	CancelMark = 1 << 6 // its cancel was requested while it was leased
	ChainMark  = 1 << 7 // it shares its id with others
)

// While a timer is Scheduled its reason shows whether a client holds it.
const (
	pausedReason timer.Reason = 7 // it is held
	// missedReason: it was held past its due time, and its series skips missed occurrences.
	missedReason timer.Reason = 6
)

const (
	stateMask     = 7
	reasonShift   = 3
	priorityShift = 8
	lowBits       = 16
	LowMask       = 1<<lowBits - 1 // the most that attempts and marks can be
)

// The fields of a slot's words. When is the time of the next attempt while Scheduled, the end of
// the lease while Leased, the end of the retention when Dead, and else the end of the timer.

func (s *Slot) Seq() uint64          { return s.seqAttempts >> lowBits }
func (s *Slot) Attempts() int        { return int(s.seqAttempts & LowMask) }
func (s *Slot) When() int64          { return int64(s.whenMarks >> lowBits) }
func (s *Slot) State() timer.State   { return timer.State(s.whenMarks & stateMask) }
func (s *Slot) reason() timer.Reason { return timer.Reason(s.whenMarks >> reasonShift & 7) }
func (s *Slot) Cancelled() bool      { return s.whenMarks&CancelMark != 0 }
func (s *Slot) Chained() bool        { return s.whenMarks&ChainMark != 0 }
func (s *Slot) Priority() uint8      { return uint8(s.whenMarks >> priorityShift) }

// Reason is why a timer is dead. In a slot that was loaded it may be a value that the state does
// not have: see Valid.
func (s *Slot) Reason() timer.Reason {
	if s.State() == timer.Scheduled {
		return timer.NoReason
	}
	return s.reason()
}

// Paused reports whether a client holds the timer.
func (s *Slot) Paused() bool { return s.State() == timer.Scheduled && s.reason() == pausedReason }

// Missed reports whether the timer is an occurrence that was missed while it was held, and that its
// series skips.
func (s *Slot) Missed() bool { return s.State() == timer.Scheduled && s.reason() == missedReason }

// SetPaused holds a scheduled timer, or lets it go. missed goes with the latter.
func (s *Slot) SetPaused(on, missed bool) {
	switch {
	case on:
		s.SetReason(pausedReason)
	case missed:
		s.SetReason(missedReason)
	default:
		s.SetReason(timer.NoReason)
	}
}

// Valid reports whether the slot is in a known state, with a reason that the state can have.
func (s *Slot) Valid() bool {
	switch state := s.State(); {
	case state < timer.Scheduled || state > timer.Cancelled:
		return false
	case state == timer.Scheduled && (s.reason() == pausedReason || s.reason() == missedReason):
		return true
	}
	return s.reason() <= timer.Refused
}

// Words returns the two words of replicated state.
func (s *Slot) Words() (seqAttempts, whenMarks uint64) { return s.seqAttempts, s.whenMarks }

// Marks returns the part of a timer's state that is neither number nor time.
func (s *Slot) Marks() uint64 { return s.whenMarks & LowMask }

// Made makes the slot of a timer from its replicated state. Attempts and marks are at most LowMask.
func Made(seq, attempts, when, marks uint64, rev uint32) Slot {
	return Slot{seqAttempts: seq<<lowBits | attempts, whenMarks: when<<lowBits | marks, Rev: rev}
}

func (s *Slot) SetSeq(seq uint64) { s.seqAttempts = seq<<lowBits | s.seqAttempts&LowMask }

func (s *Slot) SetAttempts(n int) {
	s.seqAttempts = s.seqAttempts&^LowMask | uint64(min(max(n, 0), LowMask))
}
func (s *Slot) SetWhen(ms int64) {
	s.whenMarks = s.whenMarks&LowMask | uint64(timer.ClampMs(ms))<<lowBits
}
func (s *Slot) SetState(v timer.State) { s.whenMarks = s.whenMarks&^stateMask | uint64(v) }
func (s *Slot) SetReason(v timer.Reason) {
	s.whenMarks = s.whenMarks&^(7<<reasonShift) | uint64(v&7)<<reasonShift
}
func (s *Slot) SetPriority(v uint8) {
	s.whenMarks = s.whenMarks&^(0xff<<priorityShift) | uint64(v)<<priorityShift
}

// Mark sets or clears a mark.
func (s *Slot) Mark(bit uint64, on bool) {
	s.whenMarks &^= bit
	if on {
		s.whenMarks |= bit
	}
}
