package loadtest

import (
	"testing"
	"time"
)

// TestClosedLoopRests: where a node is busy, a connection asks again no sooner than the answer asks
// for, or after a second where it is a batch's result. An open loop sends what it is to send, and
// no rest is longer than the run.
func TestClosedLoopRests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		config  Config
		seconds float64
		errors  int64
	}{
		{"one by one", Config{}, 20, 10},
		{"batches", Config{Batch: 25}, 4, 10},
		{"open loop", Config{Rate: 1000}, 0, 10},
		{"to the end", Config{Duration: 3 * time.Second}, 3, 2},
	} {
		bubble(t, func(t *testing.T) {
			f := newFake(t, every(10, faultBusy))
			c.config.Mode, c.config.Connections, c.config.Timers, c.config.Delay = ModeAdd, 1, 100, "1h"
			r, out := play(t, f, c.config)
			if r.Seconds < c.seconds || r.Seconds > c.seconds+0.5 || r.Errors != c.errors {
				t.Errorf("%s: %d errors in %v s, want %d in %v\n%s", c.name, r.Errors, r.Seconds, c.errors, c.seconds, out)
			}
		})
	}
}
