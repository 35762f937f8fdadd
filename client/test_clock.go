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
	// again goes on.
	Stopped bool `json:"stopped"`
}

// Clock returns the time of a node's test clock, which stands still. A node without one refuses it
// with ErrNoTestClock. Package clienttest starts a node with one.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	var answer ClockMoved
	err := c.call(ctx, Request{Method: http.MethodGet, Path: Path("clock"), Repeatable: true}, nil, &answer)
	return answer.Now, err
}

// Advance lets time pass by a test clock. All that becomes due on the way is done, in order; see
// AdvanceTo.
func (c *Client) Advance(ctx context.Context, by time.Duration) (ClockMoved, error) {
	return c.moveClock(ctx, map[string]any{"advance": wireDuration(by)}, false)
}

// AdvanceTo is Advance to a time: ErrClockPast if that is past. It returns when nothing that was
// due by then is left but what waits for somebody (a pause, a report or a pull, a breaker), or after
// 100,000 calls or a minute: see ClockMoved.Stopped.
func (c *Client) AdvanceTo(ctx context.Context, to time.Time) (ClockMoved, error) {
	return c.moveClock(ctx, map[string]any{"to": to}, true)
}

func (c *Client) moveClock(ctx context.Context, body any, repeatable bool) (moved ClockMoved, err error) {
	err = c.call(ctx, Request{Method: http.MethodPost, Path: Path("clock"), Repeatable: repeatable}, body, &moved)
	return moved, err
}
