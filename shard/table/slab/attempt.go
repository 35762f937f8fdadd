package slab

const (
	attemptChunkBits = 9 // 32 KiB
	attemptChunkLen  = 1 << attemptChunkBits
)

// Attempt is the data that only an attempted or ended timer has, 64 bytes. A timer that only waits
// has none.
type Attempt struct {
	Fence uint64 // of the last lease
	DueMs int64
	// dueOrEndMs is a time of the last attempt. While Leased it is when the attempt was due, else
	// when the attempt or the timer ended. See AttemptDueMs and EndedMs.
	dueOrEndMs int64
	FiredMs    int64 // start of the last attempt that started; 0 none
	Lateness   int64 // of the first attempt, in ms; -1 before it
	// Newer and Older are the neighbours in the list of finished timers. In a free Attempt, Newer
	// is the next free one.
	Newer, Older uint32
	ErrRef       uint32 // text of the last error among the contents; 0 none
	DurMs        uint32 // duration of the last lease
	Status       uint16 // HTTP status of the last attempt
	Holder       Holder // holder of the last lease
	// Successor is, while Leased, the blob of the timer that takes over the id after the attempt; 0
	// is none.
	Successor uint32
}

// AttemptDueMs is, while Leased, when the attempt was due. A release reschedules the timer at that
// time.
func (a *Attempt) AttemptDueMs() int64      { return a.dueOrEndMs }
func (a *Attempt) SetAttemptDueMs(ms int64) { a.dueOrEndMs = ms }

// EndedMs is the end of a timer that is over. For a timer that is Scheduled after a lease, it is
// when the lease ended and the next attempt was scheduled.
func (a *Attempt) EndedMs() int64      { return a.dueOrEndMs }
func (a *Attempt) SetEndedMs(ms int64) { a.dueOrEndMs = ms }

// Attempts allocates attempts by number, from 1. Its zero value is empty. All operations are O(1).
type Attempts struct {
	chunks []*[attemptChunkLen]Attempt
	high   uint32
	free   uint32
}

func (a *Attempts) At(n uint32) *Attempt {
	return &a.chunks[n>>attemptChunkBits][n&(attemptChunkLen-1)]
}

func (a *Attempts) Take() uint32 {
	n := a.free
	if n != 0 {
		a.free = a.At(n).Newer
	} else {
		a.high++
		n = a.high
		if int(n>>attemptChunkBits) == len(a.chunks) {
			a.chunks = append(a.chunks, new([attemptChunkLen]Attempt))
		}
	}
	*a.At(n) = Attempt{}
	return n
}

func (a *Attempts) Give(n uint32) {
	*a.At(n) = Attempt{Newer: a.free}
	a.free = n
}

func (a *Attempts) Memory() int64 {
	return int64(len(a.chunks))*attemptChunkLen*64 + int64(cap(a.chunks))*8
}

// Holder is the party that ends a lease. The values are part of the snapshot format.
type Holder uint8

const (
	ByCall   Holder = iota // a call by the leader that leased the timer
	ByPuller               // the consumer that pulled the timer
	ByReport               // the receiver that answered 202
)
