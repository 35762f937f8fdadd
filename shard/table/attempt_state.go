package table

import "carillon/timer"

const (
	runChunkBits = 9 // 32 KiB
	runChunkLen  = 1 << runChunkBits
)

// attemptState is what a timer has that was attempted or has ended, 64 bytes. Timers that only wait
// have none.
type attemptState struct {
	fence uint64 // of the last lease
	dueMs int64
	// dueOrEndMs is one of two times of the last attempt: while Leased when it was due, else when
	// it, or the timer, ended. See attemptDueMs and endedMs.
	dueOrEndMs int64
	firedMs    int64 // start of the last attempt that started; 0 none
	lateness   int64 // ms, of the first attempt; -1 before it
	// newer and older are the neighbours in the list of finished timers. A run that is free keeps
	// the next in newer.
	newer, older uint32
	errRef       uint32 // last error's text in the arena: length u16, bytes; 0 none
	durMs        uint32 // how long the last lease was given for
	status       uint16 // HTTP status of the last attempt
	holder       Holder // who ends the last lease
	successor    uint32 // while Leased: the blob of who takes over when the attempt has ended; 0 nobody
}

// attemptDueMs is, while Leased, when the attempt was due: a release takes the timer back to that.
func (r *attemptState) attemptDueMs() int64      { return r.dueOrEndMs }
func (r *attemptState) setAttemptDueMs(ms int64) { r.dueOrEndMs = ms }

// endedMs is, when the timer is over, its end; while it is Scheduled after a lease, when that ended
// and the next attempt was decided.
func (r *attemptState) endedMs() int64      { return r.dueOrEndMs }
func (r *attemptState) setEndedMs(ms int64) { r.dueOrEndMs = ms }

// attemptStates hands out run records by number, from 1.
type attemptStates struct {
	chunks []*[runChunkLen]attemptState
	high   uint32
	free   uint32
}

func (r *attemptStates) at(n uint32) *attemptState {
	return &r.chunks[n>>runChunkBits][n&(runChunkLen-1)]
}

func (r *attemptStates) take() uint32 {
	n := r.free
	if n != 0 {
		r.free = r.at(n).newer
	} else {
		r.high++
		n = r.high
		if int(n>>runChunkBits) == len(r.chunks) {
			r.chunks = append(r.chunks, new([runChunkLen]attemptState))
		}
	}
	*r.at(n) = attemptState{}
	return n
}

func (r *attemptStates) give(n uint32) {
	*r.at(n) = attemptState{newer: r.free}
	r.free = n
}

func (r *attemptStates) memory() int64 {
	return int64(len(r.chunks))*runChunkLen*64 + int64(cap(r.chunks))*8
}

// run returns the run of a touched timer, and makes it if there is none.
func (t *Table) run(s *slot) *attemptState {
	if s.run == 0 {
		s.run = t.runs.take()
		r := t.runs.at(s.run)
		r.dueMs, r.lateness = s.when(), -1
		return r
	}
	return t.runs.at(s.run)
}

func (t *Table) freeRun(h timer.Handle, s *slot) {
	if s.run == 0 {
		return
	}
	t.setError(h, t.runs.at(s.run), "")
	t.dropSuccessor(h, t.runs.at(s.run))
	t.runs.give(s.run)
	s.run = 0
}

func (t *Table) dueMs(s *slot) int64 {
	if s.run == 0 {
		return s.when()
	}
	return t.runs.at(s.run).dueMs
}

// setError keeps the text of the last error.
func (t *Table) setError(h timer.Handle, r *attemptState, text string) {
	if r.errRef != 0 {
		t.addBlob(h, -errorHash(h, t.errorText(r)))
		t.blobs.release(r.errRef)
		r.errRef = 0
	}
	if text == "" {
		return
	}
	ref, b := t.blobs.alloc(2 + len(text))
	b[0], b[1] = byte(len(text)), byte(len(text)>>8)
	copy(b[2:], text)
	r.errRef = ref
	t.addBlob(h, errorHash(h, t.errorText(r)))
}

// errorText is valid until the timer's next change.
func (t *Table) errorText(r *attemptState) []byte {
	if r.errRef == 0 {
		return nil
	}
	b := t.blobs.at(r.errRef)
	return b[2 : 2+(int(b[0])|int(b[1])<<8)]
}

// Holder says who ends a lease. The values are part of the snapshot format.
type Holder uint8

const (
	ByCall   Holder = iota // a call of the leader that took it
	ByPuller               // who pulled it
	byReport               // the receiver, which answered 202
)
