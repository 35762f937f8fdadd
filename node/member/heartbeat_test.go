package member

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"carillon/ring"
	"carillon/shard"
)

// heartbeats lets two other nodes, whose clocks are right, be heard of by one whose clock is off, four times a second.
func heartbeats(l *liveness, h *Health, from time.Duration, n int, offMs int64) (first int, why string) {
	const epochMs = 1_700_000_000_000
	first = -1
	for i := range n {
		now := from + time.Duration(i)*heartbeatEach
		right := epochMs + now.Milliseconds()
		for node := uint64(2); node <= 3; node++ {
			l.receive(now, right+offMs, node, &heartbeat{WallMs: right - 3, Starts: 1}) // 3 ms on their way
		}
		if reason := h.check(now, l); reason != "" && first < 0 {
			first, why = i, reason
		}
	}
	return first, why
}

// TestClockStepIsNoticedAtOnce: whichever way the clock jumps, the next beat tells.
func TestClockStepIsNoticedAtOnce(t *testing.T) {
	for _, offMs := range []int64{1500, -1500, 300_000, -3_600_000, 10 * 365 * 86_400_000} {
		l, h := newLiveness(0), newHealth()
		if _, why := heartbeats(l, h, time.Second, 20, 0); why != "" {
			t.Fatalf("in step: %s", why)
		}
		first, why := heartbeats(l, h, 6*time.Second, 20, offMs)
		if first != 0 || !strings.Contains(why, "clock") {
			t.Errorf("%+d ms: noticed after %d beats: %q", offMs, first, why)
		}
	}
}

// TestUnhealthyHolds: a node whose clock is right again may lead after a while, and not before.
func TestUnhealthyHolds(t *testing.T) {
	l, h := newLiveness(0), newHealth()
	heartbeats(l, h, time.Second, 4, 5000)
	if _, why := heartbeats(l, h, 2*time.Second, 4, 0); why == "" {
		t.Error("it may lead at once")
	}
	if _, why := heartbeats(l, h, 2*time.Second+unhealthyHold, 4, 0); why != "" {
		t.Errorf("after %v: %s", unhealthyHold, why)
	}
}

// TestHungSyncIsNoticed: an fsync that does not end makes a node unfit while it lasts, not only when it is over.
func TestHungSyncIsNoticed(t *testing.T) {
	l, h := newLiveness(0), newHealth()
	for i := range 1000 { // fast ones before
		h.SyncBegins(time.Duration(i) * time.Millisecond)
		h.Synced(time.Duration(i)*time.Millisecond, time.Millisecond)
	}
	h.SyncBegins(time.Second)
	if why := h.check(time.Second+hungSync, l); why != "" {
		t.Errorf("too early: %s", why)
	}
	if why := h.check(time.Second+hungSync+1, l); !strings.Contains(why, "fsync") {
		t.Errorf("%q", why)
	}
	h.Synced(3*time.Second, 2*time.Second)
	if why := h.check(4*time.Second, l); why == "" {
		t.Error("it may lead at once")
	}
	if why := h.check(4*time.Second+2*unhealthyHold, l); why != "" {
		t.Errorf("later: %s", why)
	}
}

func TestHeartbeatRoundTrip(t *testing.T) {
	for _, b := range []heartbeat{
		{WallMs: 5000, Starts: 2, Unhealthy: "x", Leads: []shard.ID{1, 5}, Limits: ring.Says{WallMs: 5000, Seq: 2<<32 + 7,
			Heard: []ring.Heard{{Node: 3, Seq: 9}, {Node: 1 << 39, Seq: 1 << 40}}, Parts: []ring.Part{{Topic: 3, Leases: 1}, {Topic: 1 << 31, Leases: 4000}}}},
		{WallMs: 5999, Cordoned: true, Limits: ring.Says{WallMs: 5999, Seq: 1, Unsure: true}},
	} {
		frame := b.encode()
		got, err := decodeHeartbeat(frame)
		if err != nil || !reflect.DeepEqual(*got, b) {
			t.Fatalf("%+v, %v, want %+v", got, err, b)
		}
		for cut := 1; cut < len(frame); cut++ {
			if short, err := decodeHeartbeat(frame[:cut]); err == nil && !short.Limits.Untold {
				t.Errorf("a heartbeat cut at %d of %d says %+v", cut, len(frame), short.Limits)
			}
		}
	}
	older := (&heartbeat{WallMs: 5000}).encode()
	older = append(older[:len(older)-5], 2, 7) // one topic is held
	if got, err := decodeHeartbeat(older); err != nil || !got.Limits.Untold {
		t.Errorf("an older heartbeat: %+v %v", got, err)
	}
}

// TestUnheardNodeIsSilentSinceItIsKnown: to a node that runs for long one that has just joined is not down for as long.
func TestUnheardNodeIsSilentSinceItIsKnown(t *testing.T) {
	l := newLiveness(time.Second)
	nodes := []ring.Node{{ID: 1}, {ID: 2}}
	now := time.Hour
	l.expect(now, nodes)
	now += 3 * time.Second
	l.expect(now, nodes)
	if f := l.facts(now, 0, 1, "", nodes).Nodes[2]; f.Alive || f.DownForMs != 3000 {
		t.Errorf("%+v", f)
	}
	l.receive(now, 0, 2, &heartbeat{Starts: 1})
	now += 10 * time.Second
	l.expect(now, nodes)
	if f := l.facts(now, 0, 1, "", nodes).Nodes[2]; f.Alive || f.DownForMs != 10_000 {
		t.Errorf("after a heartbeat: %+v", f)
	}
}
