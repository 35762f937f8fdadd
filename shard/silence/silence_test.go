package silence

import (
	"slices"
	"testing"
	"time"
)

const (
	tick  = 50 * time.Millisecond
	after = time.Second
)

// TestSilences: a node is silent once nothing has arrived from it for a while, and is found so once.
func TestSilences(t *testing.T) {
	s := New(after, 2*tick)
	now := time.Hour
	look := func(passed time.Duration, want ...uint64) {
		t.Helper()
		if now += passed; !slices.Equal(s.NewlySilent(now), want) {
			t.Errorf("%v after an hour: want that %v are silent", now-time.Hour, want)
		}
	}
	pass := func(d time.Duration) {
		t.Helper()
		for range d / tick {
			look(tick)
		}
	}
	pass(2 * after)
	s.InContact(9)
	s.InContact(8)
	pass(after - tick)
	s.InContact(7)
	look(tick, 8, 9)
	pass(after - 2*tick)
	s.InContact(8)
	look(tick, 7)
	pass(after - 2*tick)
	look(tick, 8)
	pass(2 * after)
}

// TestProcessThatStoodStillFindsNobodySilent: the time in which it did not look proves little about
// others.
func TestProcessThatStoodStillFindsNobodySilent(t *testing.T) {
	s := New(after, 2*tick)
	now := time.Hour
	s.NewlySilent(now)
	for range after/(2*tick) - 1 {
		s.InContact(8)
		for range after/(2*tick) - 1 {
			now += 10 * time.Second
			if silent := s.NewlySilent(now); len(silent) > 0 {
				t.Fatalf("%v are silent", silent)
			}
		}
	}
	if now += 10 * time.Second; !slices.Equal(s.NewlySilent(now), []uint64{8}) {
		t.Error("it takes for ever")
	}
}
