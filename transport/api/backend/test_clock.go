package backend

import (
	"context"
	"errors"
)

// TestClock is the clock of a node for tests. It stands still until it is moved.
type TestClock interface {
	NowMs() int64
	// Move has the time pass, and does all that becomes due on the way. Moves are made one after
	// the other. It stops early when the context ends, and by its own bounds.
	Move(ctx context.Context, m ClockMove) (ClockMoved, error)
}

// ClockMove is how far a TestClock is to be moved.
type ClockMove struct {
	By   bool  // ByMs counts, else ToMs
	ByMs int64 // ≥ 0
	ToMs int64 // Unix ms
}

// ClockMoved is what a move has done.
type ClockMoved struct {
	NowMs   int64
	Calls   int64 // to receivers
	Left    int64 // timers that were due by now and wait for somebody
	Stopped bool  // it stopped before the time that was asked for, or with work left
}

// Errors of TestClock.Move.
var (
	ErrClockPast  = errors.New("the clock has passed this time, and never goes back: for an earlier time start a node with another --data")
	ErrClockEnd   = errors.New("the clock ends with the year 9999")
	ErrClockFar   = errors.New("the clock goes no further than 292 years from where it was when the node started")
	ErrClockWaits = errors.New("the clock was not moved") // the reason follows
)
