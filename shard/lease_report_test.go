package shard

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// messageCounts counts messages of one kind by destination node, and passes all frames on.
type messageCounts struct {
	Peers
	kind  byte
	nodes map[uint64]int
}

func (m *messageCounts) Send(to uint64, frame []byte) {
	for rest := frame[1:]; len(rest) > 0; {
		_, n := binary.Uvarint(rest[1:])
		size := binary.LittleEndian.Uint32(rest[1+n:])
		if rest[0] == m.kind {
			m.nodes[to]++
		}
		rest = rest[1+n+4+int(size):]
	}
	m.Peers.Send(to, frame)
}

// countingMessages counts a host's messages of one kind.
func countingMessages(kind byte) (p *messageCounts, change func(*Config)) {
	p = &messageCounts{Peers: noPeers{}, kind: kind, nodes: map[uint64]int{}}
	return p, func(cfg *Config) {
		if cfg.Peers != nil {
			p.Peers = cfg.Peers
		}
		cfg.Peers = p
	}
}

// TestLeaderTakenOutWhileCutOffReports: a leader is cut off while a call runs, and the shard moves
// on without it. No replica sends it anything any more, so it learns of no leader. It still knows
// the replicas, and reports the call's outcome to all of them. Found by the simulator.
func TestLeaderTakenOutWhileCutOffReports(t *testing.T) {
	p, change := countingMessages(reportMessage)
	r, c := withFakePeers(t, false, change)
	c.leads()
	r.add("a", 0)
	r.pass(100 * time.Millisecond)
	call := r.one()
	c.mute = true
	r.pass(5 * time.Second)
	if _, known := r.host.Leader(1); known {
		t.Fatal("it knows of a leader")
	}
	moved := Assignment{Group: 1, Epoch: 2, Members: append(slices.Clone(r.rows[1].Members[1:]), Member{Node: 10, Replica: ReplicaID(10, 1)})}
	r.host.Place([]Assignment{r.rows[0], moved})
	call.answer(200)
	r.pass(time.Second)
	if told := slices.Sorted(maps.Keys(p.nodes)); !slices.Equal(told, []uint64{8, 9, 10}) {
		t.Errorf("nodes %v are told how the call ended, those with a replica are 8, 9 and 10", told)
	}
}

// peerMessageOf delivers a message of the host protocol about shard 1.
func (h *hostHarness) peerMessageOf(from uint64, kind byte, body []byte) {
	frame := append([]byte{frameVersion, kind, 1}, byte(len(body)), byte(len(body)>>8), 0, 0)
	h.host.Deliver(from, append(frame, body...))
}

// TestReportOfAReplicaThatWasMadeAgain: a former leader's replica is removed and created again
// while its call runs. The new replica knows nothing of the lease, but the reports must be repeated
// until the leader answers that the lease is over. Found by the simulator.
func TestReportOfAReplicaThatWasMadeAgain(t *testing.T) {
	p, change := countingMessages(reportMessage)
	r, c := withFakePeers(t, false, change)
	c.leads()
	r.add("a", 0)
	r.pass(100 * time.Millisecond)
	call := r.one()
	c.mute = true
	r.pass(5 * time.Second)
	call.answer(200)
	anew := Assignment{Group: 1, Epoch: 2, Members: append([]Member{{Node: 7, Replica: ReplicaID(7, 2)}}, r.rows[1].Members[1:]...)}
	r.host.Place([]Assignment{r.rows[0], anew})
	r.pass(10 * time.Second)
	if r.host.group(1).id != ReplicaID(7, 2) {
		t.Fatal("the replica was not made anew: the test is about nothing")
	}
	clear(p.nodes)
	r.pass(time.Second)
	if p.nodes[8] == 0 || p.nodes[9] == 0 {
		t.Fatalf("ten seconds later its call's end is told to %v", p.nodes)
	}
	j := &call.Job
	over := func(owner table.Incarnation, h timer.Handle, fence uint64) {
		var body []byte
		for _, v := range [...]uint64{uint64(owner), uint64(h), fence} {
			body = binary.AppendUvarint(body, v)
		}
		r.peerMessageOf(8, overMessage, body)
		clear(p.nodes)
		r.pass(time.Second)
	}
	own := r.host.cfg.Incarnation
	over(table.NewIncarnation(8, 1), j.Handle, j.Fence)
	over(own, j.Handle+1, j.Fence)
	over(own, j.Handle, j.Fence+1)
	if len(p.nodes) == 0 {
		t.Error("what is said of another lease ends the report")
	}
	over(own, j.Handle, j.Fence)
	if len(p.nodes) > 0 || r.host.StepDrain() != 0 {
		t.Errorf("the lease is over, and is told of to %v", p.nodes)
	}
}

// TestLeaderSaysThatALeaseIsOver: the leader answers reports on leases that have ended in its
// table, and no others.
func TestLeaderSaysThatALeaseIsOver(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	first := r.one()
	p, change := countingMessages(overMessage)
	r.change = func(c *Config) {
		c.Incarnation = table.NewIncarnation(8, 1)
		change(c)
	}
	r.restart()
	told := func(h timer.Handle, seq, fence uint64) int {
		f := &scheduler.Report{Owner: table.NewIncarnation(7, 1), Handle: h, Seq: seq, Fence: fence, Attempt: delivery.Outcome{Status: 200, StartedMs: first.wallMs, EndedMs: first.wallMs + 1}}
		r.peerMessageOf(7, reportMessage, appendReport(nil, f))
		before := p.nodes[7]
		r.runIdle()
		return p.nodes[7] - before
	}
	j := &first.Job
	if n := told(j.Handle, j.Seq, j.Fence+1); n != 0 {
		t.Errorf("%d answers on a lease that is to come", n)
	}
	if n := told(j.Handle, j.Seq, j.Fence); n != 0 {
		t.Errorf("%d answers on a lease that is not over", n)
	}
	r.pass(10 * time.Millisecond)
	r.wantState("a", "done 1")
	if n := told(j.Handle, j.Seq, j.Fence); n != 1 {
		t.Errorf("%d answers on a lease that is over", n)
	}
	r.wantState("a", "done 1")
}
