package member

import (
	"reflect"
	"testing"
	"time"

	"carillon/internal/clocks"
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
	for i := range 2 {
		now += heartbeatInterval
		say(now, epochMs+now.Milliseconds()-60_000, 1)
		h, ago, _ = l.last(now, 2)
		if got, known := h.clock(2, ago); !known || got.Awaited != (i == 0) {
			t.Errorf("%d messages after its clock was set back: known: %t, %+v", i+1, known, got)
		}
	}
	if got, _ := h.clock(2, ago); got.OffsetMs != epochMs-60_000 || got.Steps != 1 {
		t.Errorf("after its clock was set back: %+v", got)
	}
	now += 10 * heartbeatInterval
	say(now, epochMs+now.Milliseconds()-60_000, 1)
	for _, later := range []time.Duration{0, 2 * heartbeatInterval} {
		h, ago, _ = l.last(now+later, 2)
		if got, known := h.clock(2, ago); known != (later == 0) || known && !got.Awaited {
			t.Errorf("%s after the first message after a silence: known: %t, %+v", later, known, got)
		}
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

// fakeMachine is the clocks of a machine; see clocks.Source.
type fakeMachine struct{ wall, boot time.Duration }

func (m *fakeMachine) Boot() time.Duration { return m.boot }

func (m *fakeMachine) Read() clocks.Reading {
	return clocks.Reading{WallUs: m.wall.Microseconds(), Mono: m.boot, Boot: m.boot}
}

// A virtual machine is stopped, and its boot clock with it, so to its node there was no silence.
// Then its wall clock is as late as the messages that lay in its socket. They do not confirm it;
// the next ones do, if it is right.
func TestMessagesThatLayInASocketOfAStoppedMachine(t *testing.T) {
	const stop = 24 * time.Second
	for _, late := range []time.Duration{0, 8 * time.Second} {
		m := &fakeMachine{wall: 1_700_000_000 * time.Second, boot: time.Hour}
		k, l := clocks.NewKeeper(clocks.Config{Source: m, Confirm: true}), newLiveness(0)
		said := m.wall // when the others' messages were sent, by their clocks
		hear := func() {
			for _, node := range []uint64{2, 3} {
				l.receive(m.boot, node, &heartbeat{WallMs: said.Milliseconds(), Starts: 1, Clock: heartbeatClock{Known: true, Sure: true}})
			}
		}
		judge := func() clocks.Trust {
			var peers []clocks.Peer
			for _, node := range []uint64{2, 3} {
				h, ago, _ := l.last(m.boot, node)
				if p, known := h.clock(node, ago); known {
					peers = append(peers, p)
				}
			}
			k.Judge(1, 3, peers)
			return k.Look().Trust
		}
		pass := func() {
			m.wall, m.boot, said = m.wall+heartbeatInterval, m.boot+heartbeatInterval, said+heartbeatInterval
		}
		for range 20 {
			pass()
			hear()
		}
		if got := judge(); got != clocks.Sure {
			t.Fatalf("before the stop: trust %d", got)
		}
		m.wall += stop - late
		k.Look()
		for ; said < m.wall; said += heartbeatInterval {
			hear()
		}
		if got := judge(); got != clocks.Held {
			t.Errorf("%s late: trust %d by the messages that it reads first", late, got)
		}
		said += late
		pass()
		hear()
		if got := judge(); (got == clocks.Sure) != (late == 0) {
			t.Errorf("%s late: trust %d by new messages", late, got)
		}
	}
}
