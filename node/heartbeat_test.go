package node

import (
	"strings"
	"testing"
	"time"
)

// beats lets two other nodes, whose clocks are right, be heard of by one whose clock is off, four times a second.
func beats(p *pulse, h *health, from time.Duration, n int, offMs int64) (first int, why string) {
	const epochMs = 1_700_000_000_000
	first = -1
	for i := range n {
		now := from + time.Duration(i)*beatEach
		right := epochMs + now.Milliseconds()
		for node := uint64(2); node <= 3; node++ {
			p.hear(now, right+offMs, node, &beat{WallMs: right - 3, Starts: 1}) // 3 ms on their way
		}
		if reason := h.unfit(now, p); reason != "" && first < 0 {
			first, why = i, reason
		}
	}
	return first, why
}

// TestClockStepIsNoticedAtOnce: whichever way the clock jumps, the next beat tells.
func TestClockStepIsNoticedAtOnce(t *testing.T) {
	for _, offMs := range []int64{1500, -1500, 300_000, -3_600_000, 10 * 365 * 86_400_000} {
		p, h := newPulse(0), &health{since: none}
		if _, why := beats(p, h, time.Second, 20, 0); why != "" {
			t.Fatalf("in step: %s", why)
		}
		first, why := beats(p, h, 6*time.Second, 20, offMs)
		if first != 0 || !strings.Contains(why, "clock") {
			t.Errorf("%+d ms: noticed after %d beats: %q", offMs, first, why)
		}
	}
}

// TestUnfitHolds: a node whose clock is right again may lead after a while, and not before.
func TestUnfitHolds(t *testing.T) {
	p, h := newPulse(0), &health{since: none}
	beats(p, h, time.Second, 4, 5000)
	if _, why := beats(p, h, 2*time.Second, 4, 0); why == "" {
		t.Error("it may lead at once")
	}
	if _, why := beats(p, h, 2*time.Second+unfitHold, 4, 0); why != "" {
		t.Errorf("after %v: %s", unfitHold, why)
	}
}

// TestHungSyncIsNoticed: an fsync that does not end makes a node unfit while it lasts, not only when it is over.
func TestHungSyncIsNoticed(t *testing.T) {
	p, h := newPulse(0), &health{since: none}
	for i := range 1000 { // fast ones before
		h.syncs(time.Duration(i) * time.Millisecond)
		h.synced(time.Duration(i)*time.Millisecond, time.Millisecond)
	}
	h.syncs(time.Second)
	if why := h.unfit(time.Second+hungSync, p); why != "" {
		t.Errorf("too early: %s", why)
	}
	if why := h.unfit(time.Second+hungSync+1, p); !strings.Contains(why, "fsync") {
		t.Errorf("%q", why)
	}
	h.synced(3*time.Second, 2*time.Second)
	if why := h.unfit(4*time.Second, p); why == "" {
		t.Error("it may lead at once")
	}
	if why := h.unfit(4*time.Second+2*unfitHold, p); why != "" {
		t.Errorf("later: %s", why)
	}
}
