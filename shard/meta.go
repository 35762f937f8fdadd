package shard

import (
	"encoding/binary"
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Machine is the state machine of the meta group: deterministic, and called from one goroutine only.
type Machine interface {
	// Apply runs one command; nowMs is the proposer's clock. The result goes to the proposer.
	Apply(nowMs int64, cmd []byte) any
	// Save is the whole state; Load replaces it.
	Save() []byte
	Load([]byte) error
}

// metaGroup is what the meta group has instead of a table.
type metaGroup struct {
	machine Machine
	waiting []*metaOp
}

// An entry of the meta group: version, then nowMs, origin, number, and the commands, each with its length; uvarints.
const metaVersion = 1

func (m *metaGroup) propose(g *group) {
	if !g.leader || len(g.proposals) >= maxPipelined {
		return
	}
	if g.takeover { // nothing to fence: meta reads no clock and calls nobody
		g.takeover, g.serving = false, true
	}
	if len(m.waiting) == 0 {
		return
	}
	g.number++
	b := []byte{metaVersion}
	for _, v := range []uint64{uint64(g.w.nowMs), g.w.host.origin, g.number} {
		b = binary.AppendUvarint(b, v)
	}
	for _, o := range m.waiting {
		b = binary.AppendUvarint(b, uint64(len(o.cmd)))
		b = append(b, o.cmd...)
	}
	g.w.proposed += len(b)
	p := proposal{number: g.number, metas: m.waiting}
	m.waiting = nil
	if err := g.raft.Propose(b); err != nil {
		p.fail(ErrUnknown)
		return
	}
	g.proposals = append(g.proposals, p)
}

// replay applies an entry without anybody waiting; apply also answers this leader's own.
func (m *metaGroup) replay(data []byte) (results []any, origin, number uint64, err error) {
	if len(data) == 0 || data[0] != metaVersion {
		return nil, 0, 0, errRecord
	}
	r := recordReader{rest: data[1:]}
	nowMs, origin, number := int64(r.uvarint()), r.uvarint(), r.uvarint()
	for len(r.rest) > 0 && !r.bad {
		if cmd := r.bytes(); !r.bad {
			results = append(results, m.machine.Apply(nowMs, cmd))
		}
	}
	return results, origin, number, r.end()
}

func (m *metaGroup) apply(g *group, e *pb.Entry) {
	results, origin, number, err := m.replay(e.Data)
	if err != nil {
		panic(fmt.Sprintf("meta: entry %d cannot be applied: %v", e.GetIndex(), err))
	}
	if origin != g.w.host.origin || len(g.proposals) == 0 || g.proposals[0].number != number {
		return
	}
	p := g.proposals[0]
	g.proposals = g.proposals[1:]
	for i, o := range p.metas {
		o.answer(results[i], nil)
	}
}

func (m *metaGroup) expire(now time.Duration) {
	for len(m.waiting) > 0 && m.waiting[0].deadline <= now {
		m.waiting[0].answer(nil, ErrNoLeader)
		m.waiting = m.waiting[1:]
	}
}
