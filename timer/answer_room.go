package timer

import (
	"sync/atomic"
)

// Room reports whether an answer may take this many more bytes of timers. Take runs on a worker's
// goroutine and must not wait. GiveBack is for timers that are not answered after all.
type Room interface {
	Take(bytes int) bool
	GiveBack(bytes int)
}

// Allowance is the Room of a single answer.
type Allowance struct{ left atomic.Int64 }

// NewAllowance returns a Room of a number of bytes.
func NewAllowance(bytes int) *Allowance {
	a := &Allowance{}
	a.left.Store(int64(bytes))
	return a
}

func (a *Allowance) Take(bytes int) bool { return a.left.Add(-int64(bytes)) >= 0 }

func (a *Allowance) GiveBack(bytes int) { a.left.Add(int64(bytes)) }

// BaseSize is about how many bytes a timer takes in memory without its texts.
const BaseSize = 512
