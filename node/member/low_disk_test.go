package member

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/ring"
	"carillon/timer"
	"carillon/wal"
)

// TestHeartbeatSaysThatADiskIsLow: with limits or without.
func TestHeartbeatSaysThatADiskIsLow(t *testing.T) {
	low := timer.LowDiskError{Node: 7, Name: "n2", Path: "/var/lib/carillon", Free: 195 << 20, Limit: 256 << 20}
	for _, limits := range []ring.AllocationReport{{WallMs: 5}, {WallMs: 5, Seq: 3, Parts: []ring.Part{{Topic: 3, Leases: 1}}}} {
		h := heartbeat{WallMs: 5, Starts: 1, Limits: limits, Clock: heartbeatClock{Known: true}}
		well := len(h.encode())
		h.LowDisk = low
		frame := h.encode()
		for cut := well; cut <= len(frame); cut++ {
			got, err := decodeHeartbeat(frame[:cut])
			switch {
			case cut == well && (err != nil || got.LowDisk != timer.LowDiskError{}):
				t.Errorf("of a disk that is well it says %+v, %v", got.LowDisk, err)
			case cut > well && cut < len(frame) && err == nil:
				t.Errorf("cut at %d of %d it says %+v", cut, len(frame), got.LowDisk)
			case cut == len(frame) && (err != nil || !reflect.DeepEqual(*got, h)):
				t.Errorf("%+v, %v, want %+v", got, err, h)
			}
		}
	}
}

// TestLowDisksAreThoseOfNodesThatAreHeard: under the id of the reporter, until it says otherwise or
// is not heard any more.
func TestLowDisksAreThoseOfNodesThatAreHeard(t *testing.T) {
	l := newLiveness(0)
	low := timer.LowDiskError{Node: 99, Name: "n2", Free: 1, Limit: 2}
	said := func() (nodes []uint64) {
		for _, e := range l.lowDisks(2 * time.Second) {
			nodes = append(nodes, e.Node)
		}
		return nodes
	}
	l.receive(time.Second, 3, &heartbeat{Starts: 1, LowDisk: low})
	l.receive(time.Second, 2, &heartbeat{Starts: 1, LowDisk: low})
	l.receive(time.Second, 4, &heartbeat{Starts: 1})
	l.receive(0, 5, &heartbeat{Starts: 1, LowDisk: low})
	if got := said(); !reflect.DeepEqual(got, []uint64{2, 3}) {
		t.Errorf("low are %v", got)
	}
	l.receive(2*time.Second, 2, &heartbeat{Starts: 1})
	if got := said(); !reflect.DeepEqual(got, []uint64{3}) {
		t.Errorf("later low are %v", got)
	}
}

// TestControllerKnowsLowDisks: what a node says of its disk is a fact for the plan.
func TestControllerKnowsLowDisks(t *testing.T) {
	l := newLiveness(0)
	l.receive(time.Second, 2, &heartbeat{Starts: 1, LowDisk: timer.LowDiskError{Free: 1, Limit: 2}})
	l.receive(time.Second, 3, &heartbeat{Starts: 1})
	facts := l.facts(time.Second, 0, 1, ring.NodeFacts{Alive: true}, []ring.Node{{ID: 1}, {ID: 2}, {ID: 3}})
	if f := facts.Nodes; f[1].LowDisk || !f[2].LowDisk || f[3].LowDisk {
		t.Errorf("%+v", f)
	}
}

// TestNodeThatOnlyJoinsIsUnheard: until its first heartbeat nobody knows what a node has room for.
func TestNodeThatOnlyJoinsIsUnheard(t *testing.T) {
	l := newLiveness(0)
	unheard := func() ring.NodeFacts {
		return l.facts(time.Second, 0, 1, ring.NodeFacts{Alive: true}, []ring.Node{{ID: 1}, {ID: 2}}).Nodes[2]
	}
	l.touch(time.Second, 2, 1)
	if f := unheard(); !f.Alive || !f.Unheard {
		t.Errorf("it joins: %+v", f)
	}
	l.receive(time.Second, 2, &heartbeat{Starts: 1})
	l.touch(time.Second, 2, 1)
	if f := unheard(); !f.Alive || f.Unheard {
		t.Errorf("after a heartbeat: %+v", f)
	}
}

// TestTightMemoryIsThatOfNodesThatAreHeard: as with low disks.
func TestTightMemoryIsThatOfNodesThatAreHeard(t *testing.T) {
	l := newLiveness(0)
	l.receive(time.Second, 3, &heartbeat{Starts: 1, Tight: true})
	l.receive(time.Second, 2, &heartbeat{Starts: 1, Tight: true})
	l.receive(time.Second, 4, &heartbeat{Starts: 1})
	l.receive(0, 5, &heartbeat{Starts: 1, Tight: true})
	if got := l.tight(2 * time.Second); !reflect.DeepEqual(got, []uint64{2, 3}) {
		t.Errorf("tight are %v", got)
	}
	l.receive(2*time.Second, 2, &heartbeat{Starts: 1})
	if got := l.tight(2 * time.Second); !reflect.DeepEqual(got, []uint64{3}) {
		t.Errorf("later tight are %v", got)
	}
}

// roomyHost is a host of which the disk alone is of interest.
type roomyHost struct {
	Host
	disk wal.Disk
}

func (h *roomyHost) Disk() wal.Disk { return h.disk }

// TestOperatorIsToldOfLowDisks: once when it begins, with its path and sizes, and once when it
// ends.
func TestOperatorIsToldOfLowDisks(t *testing.T) {
	var said strings.Builder
	host := &roomyHost{}
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	clock := clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})
	l := &local{Self: &Self{id: 1, cfg: Config{Name: "n1", Dir: "/data"}, log: log, clock: clock, liveness: newLiveness(0)}, host: host}
	s := newHeartbeatSender(l, &observer{l}, nil)
	look := func() string {
		said.Reset()
		own := s.ownLowDisk()
		s.logLowDisks(&own)
		return said.String()
	}
	if text := look(); text != "" {
		t.Errorf("with room it says %s", text)
	}
	host.disk = wal.Disk{Free: 100, Limit: 200, Low: true}
	if text := look(); !strings.HasPrefix(text, "level=WARN") || !strings.Contains(text, "node=n1 path=/data free=100 limit=200") {
		t.Errorf("it begins with %s", text)
	}
	if text := look(); text != "" {
		t.Errorf("it says again %s", text)
	}
	host.disk.Low = false
	if text := look(); !strings.HasPrefix(text, "level=INFO") || !strings.Contains(text, "node=n1") {
		t.Errorf("it ends with %s", text)
	}
}
