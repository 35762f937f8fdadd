package loadtest

import (
	"context"
	"time"
)

// pace decides when a worker sends.
type pace struct {
	measure time.Time     // operations intended earlier are warm-up
	end     time.Time     // zero = no end
	first   time.Time     // open loop: first intended send
	every   time.Duration // open loop: between intended sends; 0 = closed loop
}

// wakeLagAllowed is how late our own timer may wake an idle connection
// without that counting as the server's latency. Runtime timers are good to
// about a millisecond; beyond it we are starved, and the intended time rules.
const wakeLagAllowed = 2 * time.Millisecond

// await waits for the intended time and returns when latency counts from.
func (w *worker) await(ctx context.Context, intended time.Time) time.Time {
	ahead := time.Until(intended)
	if ahead <= 0 {
		return intended
	}
	pause(ctx, ahead)
	if woken := time.Now(); woken.Sub(intended) <= wakeLagAllowed {
		return woken
	}
	return intended
}

// skip counts the operations that were intended before the end but never sent.
func (w *worker) skip(intended time.Time) {
	if left := w.pace.end.Sub(intended); left > 0 {
		w.tally.unsent.Add(int64((left-1)/w.pace.every) + 1)
	}
}
