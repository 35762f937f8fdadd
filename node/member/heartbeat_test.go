package member

import (
	"fmt"
	"math/rand/v2"
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
	if why := h.check(time.Second, "its clock is off", ""); why != "its clock is off" {
		t.Errorf("%q", why)
	}
	if why := h.check(2*time.Second, "", ""); why == "" {
		t.Error("it may lead at once")
	}
	if why := h.check(2*time.Second+unhealthyHold, "", ""); why != "" {
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
	if why := h.check(time.Second+hungSync, "", ""); why != "" {
		t.Errorf("too early: %s", why)
	}
	if why := h.check(time.Second+hungSync+1, "", ""); !strings.Contains(why, "fsync") {
		t.Errorf("%q", why)
	}
	h.Synced(3*time.Second, 2*time.Second)
	if why := h.check(4*time.Second, "", ""); why == "" {
		t.Error("it may lead at once")
	}
	if why := h.check(4*time.Second+2*unhealthyHold, "", ""); why != "" {
		t.Errorf("later: %s", why)
	}
}

func TestHeartbeatRoundTrip(t *testing.T) {
	for _, b := range []heartbeat{
		{WallMs: 5000, Clock: heartbeatClock{Known: true}, Starts: 2, Unhealthy: "x", Leads: []timer.ShardID{1, 5}, Limits: ring.AllocationReport{WallMs: 5000, Seq: 2<<32 + 7,
			Received: []ring.ReportRef{{Node: 3, Seq: 9}, {Node: 1 << 39, Seq: 1 << 40}}, Parts: []ring.Part{{Topic: 3, Leases: 1}, {Topic: 1 << 31, Leases: 4000}}}},
		{WallMs: 5999, Clock: heartbeatClock{Known: true}, Cordoned: true, Limits: ring.AllocationReport{WallMs: 5999, Seq: 1, Unsure: true, Parts: []ring.Part{{Topic: 5, Leases: 2, Keys: 1000}}}},
		{WallMs: 6000, Clock: heartbeatClock{Known: true}, Limits: ring.AllocationReport{WallMs: 6000, Seq: 2, Unlisted: true}},
		{WallMs: 6000, Clock: heartbeatClock{Known: true}, Tight: true, Limits: ring.AllocationReport{WallMs: 6000, Seq: 2, Unsure: true}},
		{WallMs: 6001, Clock: heartbeatClock{Known: true}, Limits: ring.AllocationReport{WallMs: 6001, Seq: 3, Unlisted: true, Unheard: []uint64{4, 1 << 39}, Parts: []ring.Part{{Topic: 5, Leases: 2}}}},
	} {
		frame := b.encode()
		got, err := decodeHeartbeat(frame)
		if err != nil || !reflect.DeepEqual(*got, b) {
			t.Fatalf("%+v, %v, want %+v", got, err, b)
		}
		for cut := 1; cut < len(frame); cut++ {
			if short, err := decodeHeartbeat(frame[:cut]); err == nil {
				t.Errorf("a heartbeat cut at %d of %d report %+v", cut, len(frame), short.Limits)
			}
		}
	}
}

// TestBytesOfHeartbeats: a node's heartbeats to all others cost it so many bytes a second each way,
// the frames' heads not counted; more while a topic has a limit of leases at once: then each lists
// those that it has received. docs/scale.md has the figures.
func TestBytesOfHeartbeats(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		nodes, perHeartbeat int
		listed              bool
	}{{12, 190, true}, {100, 1_250, true}, {1_000, 12_100, true}, {12, 45, false}, {100, 45, false}, {1_000, 60, false}} {
		b := heartbeat{WallMs: 1_800_000_000_000, Starts: 3, Clock: heartbeatClock{Steps: 1, Steady: 24 * time.Hour, Sure: true}}
		for i := range 16 {
			b.Leads = append(b.Leads, timer.ShardID(1+i*c.nodes))
		}
		const week = uint64(7 * 24 * time.Hour / heartbeatInterval)
		b.Limits.Seq, b.Limits.Unlisted = 3<<32+week, !c.listed
		for range c.nodes - 1 {
			if ref := (ring.ReportRef{Node: chance.Uint64N(1 << 40), Seq: 3<<32 + week}); c.listed {
				b.Limits.Received = append(b.Limits.Received, ref)
			}
		}
		n := len(b.encode())
		perSecond := float64(n*(c.nodes-1)) / heartbeatInterval.Seconds()
		t.Logf("%d nodes, listed %v: %d bytes a heartbeat, %.3g MB/s", c.nodes, c.listed, n, perSecond/1e6)
		if n > c.perHeartbeat {
			t.Errorf("%d nodes, listed %v: %d bytes a heartbeat, more than %d", c.nodes, c.listed, n, c.perHeartbeat)
		}
	}
}

// BenchmarkHeartbeat measures what one received heartbeat costs among a thousand nodes, by whether
// it lists those that its sender has received.
func BenchmarkHeartbeat(b *testing.B) {
	for _, listed := range []bool{false, true} {
		b.Run(fmt.Sprintf("listed=%v", listed), func(b *testing.B) { benchHeartbeat(b, listed) })
	}
}

func benchHeartbeat(b *testing.B, listed bool) {
	beat := heartbeat{WallMs: 1_800_000_000_000, Starts: 3}
	for i := range 16 {
		beat.Leads = append(beat.Leads, timer.ShardID(1+i*1000))
	}
	beat.Limits.Unlisted = !listed
	limits := ring.NewLimitAllocator(1, 1)
	for i := range uint64(999) {
		if listed {
			beat.Limits.Received = append(beat.Limits.Received, ring.ReportRef{Node: 2 + i, Seq: 3<<32 + 1})
		}
		limits.Receive(time.Second, 2+i, &ring.AllocationReport{Seq: 3<<32 + 1})
	}
	if listed { // there is a topic with a limit
		none := func(timer.TopicID) int { return 0 }
		limits.Tick(&ring.Observation{Now: time.Second, Shards: 1, Leads: map[uint64]int64{1: 1}, Topics: []*timer.Topic{{ID: 1, Policy: timer.Policy{Concurrency: 8}}}, Held: none, Keys: none})
	}
	frame := beat.encode()
	b.ReportAllocs()
	for n := uint64(0); b.Loop(); n++ {
		got, err := decodeHeartbeat(frame)
		if err != nil {
			b.Fatal(err)
		}
		got.Limits.Seq = 3<<32 + 2 + n
		limits.Receive(time.Second, 2, &got.Limits)
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
	if f := l.facts(now, 0, 1, ring.NodeFacts{}, nodes).Nodes[2]; f.Alive || f.DownForMs != 3000 {
		t.Errorf("%+v", f)
	}
	l.receive(now, 2, &heartbeat{Starts: 1})
	now += 10 * time.Second
	l.expect(now, nodes)
	if f := l.facts(now, 0, 1, ring.NodeFacts{}, nodes).Nodes[2]; f.Alive || f.DownForMs != 10_000 {
		t.Errorf("after a heartbeat: %+v", f)
	}
}
