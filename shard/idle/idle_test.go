package idle

import (
	"math"
	"testing"
)

// TestSettled: the workers are settled once each has ended its turn at the present instant with
// nothing to do, no event waits, and no turn began meanwhile.
func TestSettled(t *testing.T) {
	f := New(2)
	none := func(int) bool { return false }
	want := func(nowMs, nextMs int64, settled bool, hasEvents func(int) bool) {
		t.Helper()
		if next, ok := f.Settled(nowMs, hasEvents); next != nextMs || ok != settled {
			t.Errorf("next %d, settled %v", next, ok)
		}
	}
	f.Begin(0)
	f.End(0, &Period{5, math.MaxInt64})
	want(5, 0, false, none) // the other has had no turn
	f.Begin(1)
	f.End(1, nil)
	want(5, 0, false, none)
	f.End(1, &Period{5, 9})
	want(5, 9, true, none)
	want(6, 0, false, none)
	want(5, 0, false, func(worker int) bool { return worker == 1 })
	if next, ok := f.Settled(5, func(worker int) bool {
		if worker == 1 {
			f.Begin(0)
		}
		return false
	}); ok {
		t.Errorf("settled until %d, though a turn began meanwhile", next)
	}
	<-f.Ended()
}
