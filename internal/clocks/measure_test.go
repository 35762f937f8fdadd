package clocks

import (
	"testing"
	"time"
)

// TestMessagesThatLayInASocket: this node stands still, and when it wakes reads in one go what
// another one sent meanwhile. That the messages are old does not make the other's clock late: it
// would confirm a clock of this node's that was set back by as much. Found by the simulator, seed
// 995500.
func TestMessagesThatLayInASocket(t *testing.T) {
	const each, stop, epochMs = 250 * time.Millisecond, 24 * time.Second, int64(1_700_000_000_000)
	for _, c := range []struct {
		of     string
		before int    // messages that arrived before this node stood still
		steps  uint32 // of the other's clock meanwhile
	}{
		{"a clock that was known", 20, 0},
		{"one that was set since", 20, 1},
		{"of a process that began since", 0, 0},
	} {
		var m Measured
		now := time.Hour
		for range c.before {
			now += each
			m.Take(now, epochMs+now.Milliseconds(), 0)
		}
		woke := now + stop
		for sent := now; sent < woke-8*time.Second; sent += each { // then the other stands still, too
			m.Take(woke+(sent-now)/1000, epochMs+sent.Milliseconds(), c.steps)
		}
		if ms, ok := m.OffsetMs(); ok {
			t.Errorf("%s: by old messages alone it is %d ms off", c.of, ms-epochMs)
		}
		interrupted := m
		now = woke + each
		m.Take(now, epochMs+now.Milliseconds(), c.steps)
		if ms, ok := m.OffsetMs(); !ok || ms != epochMs {
			t.Errorf("%s: by a new message, too, it is %d ms off (known: %t)", c.of, ms-epochMs, ok)
		}
		interrupted.Take(woke+time.Second, epochMs+(woke-7*time.Second).Milliseconds(), c.steps)
		if ms, _ := interrupted.OffsetMs(); c.before > 0 && c.steps == 0 && ms != epochMs {
			t.Errorf("%s: by old messages that are read in two goes it is %d ms off", c.of, ms-epochMs)
		}
	}
}
