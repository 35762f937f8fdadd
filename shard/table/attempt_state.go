package table

import "carillon/timer"

const (
	runChunkBits = 9 // 32 KiB
	runChunkLen  = 1 << runChunkBits
)

// attemptState is the data that only an attempted or ended timer has, 64 bytes. A timer that only
// waits has none.
type attemptState struct {
	fence uint64 // of the last lease
	dueMs int64
	// dueOrEndMs is a time of the last attempt. While Leased it is when the attempt was due, else
	// when the attempt or the timer ended. See attemptDueMs and endedMs.
	dueOrEndMs int64
	firedMs    int64 // start of the last attempt that started; 0 none
	lateness   int64 // of the first attempt, in ms; -1 before it
	// newer and older are the neighbours in the list of finished timers. In a free attemptState,
	// newer is the next free one.
	newer, older uint32
	errRef       uint32 // text of the last error in the arena: length u16, bytes; 0 none
	durMs        uint32 // duration of the last lease
	status       uint16 // HTTP status of the last attempt
	holder       Holder // holder of the last lease
	// successor is, while Leased, the blob of the timer that takes over the id after the attempt; 0
	// is none.
	successor uint32
}

// attemptDueMs is, while Leased, when the attempt was due. A release reschedules the timer at that
// time.
func (r *attemptState) attemptDueMs() int64      { return r.dueOrEndMs }
func (r *attemptState) setAttemptDueMs(ms int64) { r.dueOrEndMs = ms }

// endedMs is the end of a timer that is over. For a timer that is Scheduled after a lease, it is
// when the lease ended and the next attempt was scheduled.
func (r *attemptState) endedMs() int64      { return r.dueOrEndMs }
func (r *attemptState) setEndedMs(ms int64) { r.dueOrEndMs = ms }

// attemptStates allocates attemptStates by number, from 1.
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

// run returns the attemptState of a timer with an open update. It creates one if there is none.
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

// setError stores the text of the last error; an empty text removes it.
func (t *Table) setError(h timer.Handle, r *attemptState, text string) {
	if r.errRef != 0 {
		t.addBlob(-errorHash(h, t.errorText(r)))
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
	t.addBlob(errorHash(h, t.errorText(r)))
}

// errorText returns the text of the last error. It is valid until the timer's next change.
func (t *Table) errorText(r *attemptState) []byte {
	if r.errRef == 0 {
		return nil
	}
	b := t.blobs.at(r.errRef)
	return b[2 : 2+(int(b[0])|int(b[1])<<8)]
}

// RefusedAddress is the error of a scheduled timer whose last call was refused an address; "" of any
// other.
func (t *Table) RefusedAddress(h timer.Handle) string {
	if s := t.get(h); s != nil && t.wasRefused(s) {
		return string(t.errorText(t.runs.at(s.run)))
	}
	return ""
}

// Holder is the party that ends a lease. The values are part of the snapshot format.
type Holder uint8

const (
	ByCall   Holder = iota // a call by the leader that leased the timer
	ByPuller               // the consumer that pulled the timer
	byReport               // the receiver that answered 202
)
