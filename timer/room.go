package timer

import (
	"sync/atomic"
)

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

// BaseSize is about what a timer takes in memory beside its texts.
const BaseSize = 512
