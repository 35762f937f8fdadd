package shard

import "sync/atomic"

// Room says whether an answer may take so many bytes of timers more. Take is called on a worker's goroutine: it must not wait.
type Room interface{ Take(bytes int) bool }

// Allowance is the Room of one answer by itself.
type Allowance struct{ left atomic.Int64 }

// NewAllowance makes room for so many bytes.
func NewAllowance(bytes int) *Allowance {
	a := &Allowance{}
	a.left.Store(int64(bytes))
	return a
}

// Take implements Room.
func (a *Allowance) Take(bytes int) bool { return a.left.Add(-int64(bytes)) >= 0 }

// timerBytes is about what a timer takes in memory beside its texts.
const timerBytes = 512

// Size is about how many bytes a timer takes in memory.
func (t *Timer) Size() int {
	n := timerBytes + len(t.ID) + len(t.Payload) + len(t.ContentType) + len(t.Callback.URL) + len(t.LastError)
	for i := range t.Callback.Headers {
		n += len(t.Callback.Headers[i].Name) + len(t.Callback.Headers[i].Value)
	}
	for _, l := range t.Labels {
		n += len(l)
	}
	return n
}

// Shorten leaves nothing of a timer but its place in a listing: there was no room for the rest.
func (t *Timer) Shorten() {
	*t = Timer{Topic: t.Topic, ID: t.ID, Seq: t.Seq, State: t.State, EndedMs: t.EndedMs, Spec: Spec{DueMs: t.DueMs}, Short: true}
}

// copySize is Size of a timer that is in the table, without copying it.
func (t *Table) copySize(h Handle, payload bool) int {
	s := t.get(h)
	if s == nil {
		return 0
	}
	v := t.view(s.ref)
	n := timerBytes + len(v.id) + len(v.rest)
	if !payload {
		n -= len(payloadIn(v.rest))
	}
	if v.target != 0 {
		n += len(t.targets.at(v.target).bytes(&t.blobs))
	}
	return n
}
