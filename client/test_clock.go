package client

import (
	"context"
	"net/http"
	"time"
)

// ClockMoved is what has happened while a test clock was moved.
type ClockMoved struct {
	Now   time.Time `json:"now"`
	Calls int       `json:"calls"` // to receivers
	Left  int       `json:"left"`  // timers that were due by Now, have not ended, and wait for somebody
	// Stopped: it was too much for one request, and Now is not the time that was asked for. Asking
	// again continues.
	Stopped bool `json:"stopped"`
}

// TestClock is the clock of a node that was started with --test-clock: time stands still there
// until it is moved. A node without one refuses all calls with ErrNoTestClock. Package clienttest
// starts a node with one.
type TestClock struct{ Client *Client }

// Now returns the clock's time.
func (t TestClock) Now(ctx context.Context) (time.Time, error) {
	var answer ClockMoved
	err := t.Client.call(ctx, Request{Method: http.MethodGet, Path: Path("clock"), Repeatable: true}, nil, &answer)
	return answer.Now, err
}

// Advance lets time pass. All that becomes due on the way is done, in order; see AdvanceTo.
func (t TestClock) Advance(ctx context.Context, by time.Duration) (ClockMoved, error) {
	return t.move(ctx, map[string]any{"advance": wireDuration(by)}, false)
}

// AdvanceTo is Advance to a time: ErrClockPast if that is past. It returns when nothing that was
// due by then is left but what waits for somebody (a pause, a report or a pull, a breaker), or
// after 100,000 calls or a minute: see ClockMoved.Stopped.
func (t TestClock) AdvanceTo(ctx context.Context, to time.Time) (ClockMoved, error) {
	return t.move(ctx, map[string]any{"to": to}, true)
}

func (t TestClock) move(ctx context.Context, body any, repeatable bool) (moved ClockMoved, err error) {
	err = t.Client.call(ctx, Request{Method: http.MethodPost, Path: Path("clock"), Repeatable: repeatable}, body, &moved)
	return moved, err
}
