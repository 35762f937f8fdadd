package member

import (
	"reflect"
	"testing"
	"time"

	"carillon/ring"
	"carillon/timer"
)

func TestHeartbeatCarriesTheClock(t *testing.T) {
	sent := heartbeat{WallMs: 1_800_000_000_000, Starts: 7, Cordoned: true, Unhealthy: "its clock was set", Leads: []timer.ShardID{1, 4},
		Clock:  heartbeatClock{Known: true, AheadMs: -3_600_000, Steps: 3, Steady: 90 * time.Second, Sure: true},
		Limits: ring.AllocationReport{Seq: 9, WallMs: 1_800_003_600_000}}
	got, err := decodeHeartbeat(sent.encode())
	if err != nil || !reflect.DeepEqual(*got, sent) {
		t.Errorf("%+v, %v", got, err)
	}
	whole := sent.encode()
	for n := 1; n < len(whole); n++ {
		if b, err := decodeHeartbeat(whole[:n]); err == nil {
			t.Errorf("cut after %d of %d bytes: %+v", n, len(whole), b)
		}
	}
}

// A measurement of a peer's clock stays true when this node's is set, and is void when the peer's
// is.
func TestClocksOfPeersAreMeasuredByTheBootClock(t *testing.T) {
	const epochMs = 1_700_000_000_000
	l := newLiveness(0)
	say := func(now time.Duration, ms int64, steps uint32) {
		l.receive(now, 2, &heartbeat{WallMs: ms, Starts: 1, Clock: heartbeatClock{Known: true, Steps: steps, Sure: true}})
	}
	var now time.Duration
	for range 20 {
		now += heartbeatInterval
		say(now, epochMs+now.Milliseconds()-3, 0) // 3 ms on its way
	}
	h, ago, _ := l.last(now, 2)
	if got, known := h.clock(2, ago); !known || got.OffsetMs != epochMs-3 || !got.Sure {
		t.Errorf("%+v", got)
	}
	// This node's own clock is off by so much.
	for _, off := range []int64{0, 3_600_000, -3_600_000} {
		if ms, ok := h.offset(now, epochMs+now.Milliseconds()+off); !ok || ms != -3-off {
			t.Errorf("its own clock off by %d ms: the other's seems off by %d", off, ms)
		}
	}
	now += heartbeatInterval
	say(now, epochMs+now.Milliseconds()-60_000, 1)
	h, ago, _ = l.last(now, 2)
	if got, _ := h.clock(2, ago); got.OffsetMs != epochMs-60_000 || got.Steps != 1 {
		t.Errorf("after its clock was set back: %+v", got)
	}
	now += suspectAfter
	l.touch(now, 2, 1)
	h, ago, _ = l.last(now, 2)
	if got, known := h.clock(2, ago); known {
		t.Errorf("a contact without a heartbeat makes an old measurement a new one: %+v", got)
	}
	l.touch(now, 3, 1)
	h, ago, _ = l.last(now, 3)
	if _, known := h.clock(3, ago); known {
		t.Error("a node that has sent no heartbeat has a clock")
	}
}
