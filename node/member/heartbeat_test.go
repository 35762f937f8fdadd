package member

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"carillon/ring"
	"carillon/timer"
)

// TestUnhealthyHolds: a node whose clock is right again may lead after a while, and not before.
func TestUnhealthyHolds(t *testing.T) {
	h := newHealth()
	if why := h.check(time.Second, "its clock is off"); why != "its clock is off" {
		t.Errorf("%q", why)
	}
	if why := h.check(2*time.Second, ""); why == "" {
		t.Error("it may lead at once")
	}
	if why := h.check(2*time.Second+unhealthyHold, ""); why != "" {
		t.Errorf("after %v: %s", unhealthyHold, why)
	}
}

// TestHungSyncIsNoticed: an fsync that does not end makes a node unfit while it lasts, not only
// when it is over.
func TestHungSyncIsNoticed(t *testing.T) {
	h := newHealth()
	for i := range 1000 { // fast ones before
		h.SyncBegins(time.Duration(i) * time.Millisecond)
		h.Synced(time.Duration(i)*time.Millisecond, time.Millisecond)
	}
	h.SyncBegins(time.Second)
	if why := h.check(time.Second+hungSync, ""); why != "" {
		t.Errorf("too early: %s", why)
	}
	if why := h.check(time.Second+hungSync+1, ""); !strings.Contains(why, "fsync") {
		t.Errorf("%q", why)
	}
	h.Synced(3*time.Second, 2*time.Second)
	if why := h.check(4*time.Second, ""); why == "" {
		t.Error("it may lead at once")
	}
	if why := h.check(4*time.Second+2*unhealthyHold, ""); why != "" {
		t.Errorf("later: %s", why)
	}
}

func TestHeartbeatRoundTrip(t *testing.T) {
	for _, b := range []heartbeat{
		{WallMs: 5000, Clock: heartbeatClock{Known: true}, Starts: 2, Unhealthy: "x", Leads: []timer.ShardID{1, 5}, Limits: ring.AllocationReport{WallMs: 5000, Seq: 2<<32 + 7,
			Received: []ring.ReportRef{{Node: 3, Seq: 9}, {Node: 1 << 39, Seq: 1 << 40}}, Parts: []ring.Part{{Topic: 3, Leases: 1}, {Topic: 1 << 31, Leases: 4000}}}},
		{WallMs: 5999, Clock: heartbeatClock{Known: true}, Cordoned: true, Limits: ring.AllocationReport{WallMs: 5999, Seq: 1, Unsure: true, Parts: []ring.Part{{Topic: 5, Leases: 2, Keys: 1000}}}},
	} {
		frame := b.encode()
		got, err := decodeHeartbeat(frame)
		if err != nil || !reflect.DeepEqual(*got, b) {
			t.Fatalf("%+v, %v, want %+v", got, err, b)
		}
		for cut := 1; cut < len(frame); cut++ {
			if short, err := decodeHeartbeat(frame[:cut]); err == nil && !short.Limits.Omitted {
				t.Errorf("a heartbeat cut at %d of %d report %+v", cut, len(frame), short.Limits)
			}
		}
	}
	older := (&heartbeat{WallMs: 5000}).encode()
	older = append(older[:len(older)-5], 2, 7) // one topic is held
	if got, err := decodeHeartbeat(older); err != nil || !got.Limits.Omitted {
		t.Errorf("an older heartbeat: %+v %v", got, err)
	}
}

// TestUnheardNodeIsSilentSinceItIsKnown: to a node that runs for long one that has just joined is
// not down for as long.
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
	l.receive(now, 2, &heartbeat{Starts: 1})
	now += 10 * time.Second
	l.expect(now, nodes)
	if f := l.facts(now, 0, 1, "", nodes).Nodes[2]; f.Alive || f.DownForMs != 10_000 {
		t.Errorf("after a heartbeat: %+v", f)
	}
}
