package shard

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"
	"time"
)

// reportsTo is a company that notes who is told how calls ended.
type reportsTo struct {
	*company
	nodes map[uint64]int
}

func (p *reportsTo) Send(to uint64, frame []byte) {
	for rest := frame[1:]; len(rest) > 0; {
		_, n := binary.Uvarint(rest[1:])
		size := binary.LittleEndian.Uint32(rest[1+n:])
		if rest[0] == reportMessage {
			p.nodes[to]++
		}
		rest = rest[1+n+4+int(size):]
	}
	p.company.Send(to, frame)
}

// TestLeaderTakenOutWhileCutOffReports: a leader is cut off with a call in hand, and the shard moves on without it. Nobody of the shard speaks to
// it any more, so it hears of no leader. It knows who has replicas, and tells them how its call ended. Found by the simulator.
func TestLeaderTakenOutWhileCutOffReports(t *testing.T) {
	p := &reportsTo{nodes: map[uint64]int{}}
	r, c := inCompany(t, false, func(cfg *Config) {
		p.company = cfg.Peers.(*company)
		cfg.Peers = p
	})
	c.leads()
	r.add("a", 0)
	r.pass(100 * time.Millisecond)
	call := r.one()
	c.mute = true
	r.pass(5 * time.Second)
	if _, known := r.host.Leader(1); known {
		t.Fatal("it knows of a leader")
	}
	moved := Row{Group: 1, Epoch: 2, Members: append(slices.Clone(r.rows[1].Members[1:]), Member{Node: 10, Replica: ReplicaID(10, 1)})}
	r.host.Place([]Row{r.rows[0], moved})
	call.answer(200)
	r.pass(time.Second)
	if told := slices.Sorted(maps.Keys(p.nodes)); !slices.Equal(told, []uint64{8, 9, 10}) {
		t.Errorf("nodes %v are told how the call ended, those with a replica are 8, 9 and 10", told)
	}
}
