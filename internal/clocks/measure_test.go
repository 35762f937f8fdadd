package clocks

import (
	"testing"
	"time"
)

// TestMessagesThatWaitedAreOneMeasurement: messages that waited for this node and are then read one
// after the other do not show the sender's clock as slow, neither once nor several times.
func TestMessagesThatWaitedAreOneMeasurement(t *testing.T) {
	const epochMs, interval = 1_700_000_000_000, 250 * time.Millisecond
	var m Measured
	boot, sent := time.Hour, time.Hour
	for range 20 {
		boot, sent = boot+interval, sent+interval
		m.Take(boot, epochMs+sent.Milliseconds(), 0)
	}
	for stop := range 6 {
		boot += 13 * time.Second
		for ; sent+interval <= boot; boot += time.Millisecond {
			sent += interval
			m.Take(boot, epochMs+sent.Milliseconds(), 0)
			if ms, ok := m.OffsetMs(); !ok || ms < epochMs-10 || ms > epochMs {
				t.Fatalf("stop %d, a message %s old: off by %d ms, %t", stop, boot-sent, ms-epochMs, ok)
			}
		}
	}
}

// TestSlowerClockIsMeasured: a clock that falls back shows within 8 messages, whatever was measured
// before.
func TestSlowerClockIsMeasured(t *testing.T) {
	const epochMs, interval = 1_700_000_000_000, 250 * time.Millisecond
	var m Measured
	boot := time.Hour
	take := func(offsetMs int64) {
		boot += interval
		m.Take(boot, epochMs+boot.Milliseconds()+offsetMs, 0)
	}
	for i := range 100 {
		take(int64(i % 2)) // unequal delays
	}
	for i := range int64(8) {
		take(-1500 - i)
	}
	if ms, _ := m.OffsetMs(); ms != epochMs-1500 {
		t.Errorf("off by %d ms", ms-epochMs)
	}
	take(900) // it is set forward a little, again and again
	take(1800)
	if ms, _ := m.OffsetMs(); ms != epochMs+1800 {
		t.Errorf("off by %d ms", ms-epochMs)
	}
}
