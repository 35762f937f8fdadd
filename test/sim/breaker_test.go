package sim

import (
	"testing"
	"time"

	"carillon/timer"
)

func TestBreaker(t *testing.T) {
	policy := &timer.Breaker{Failures: 3, OpenMs: 1000, Probes: 1}
	var b breaker
	now := time.Hour
	blocked := func(want time.Duration) {
		t.Helper()
		if got := b.blocked(now, policy); got != want {
			t.Errorf("blocked for %s, want %s", got, want)
		}
	}
	for range 2 {
		b.tell(now, policy, false, true)
	}
	b.tell(now, policy, false, false) // resets the count
	for range 3 {
		blocked(0)
		b.tell(now, policy, false, true)
	}
	blocked(time.Second)
	now += time.Second
	blocked(0)
	b.probing = true
	blocked(125 * time.Millisecond)
	b.tell(now, policy, false, false) // a call that began before the breaker opened does not count
	blocked(125 * time.Millisecond)
	b.tell(now, policy, true, true)
	blocked(time.Second)
	now += time.Second
	blocked(0)
	b.tell(now, policy, true, false)
	blocked(0)
	blocked(0)
}
