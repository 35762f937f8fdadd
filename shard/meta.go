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

// maxMetaWaiting bounds the commands that wait to be proposed.
const maxMetaWaiting = 10_000

// propose makes one entry of the commands that wait. The leader begins with that, and with reads, when it has applied
// the first entry of its term: before, its state may lack what former leaders have acknowledged.
func (m *metaGroup) propose(g *group) {
	if !g.leader {
		return
	}
	if g.takeover && g.appliedTerm == g.term {
		// There is nothing to fence: the meta group reads no clock and calls nobody.
		g.takeover, g.serving, g.servingSince = false, true, g.w.mono
	}
	if !g.serving || len(m.waiting) == 0 || g.heir != 0 || g.refusedUntil != 0 || len(g.proposals) >= maxPipelined {
		return // what waits times out by itself
	}
	g.number++
	b := []byte{metaVersion}
	for _, v := range []uint64{uint64(g.w.nowMs), g.w.host.origin, g.number} {
		b = binary.AppendUvarint(b, v)
	}
	n := 0
	for ; n < len(m.waiting) && len(b) < maxBatchBytes; n++ {
		b = binary.AppendUvarint(b, uint64(len(m.waiting[n].cmd)))
		b = append(b, m.waiting[n].cmd...)
	}
	g.w.proposed += len(b)
	p := proposal{number: g.number, metas: m.waiting[:n:n]}
	if m.waiting = m.waiting[n:]; len(m.waiting) > 0 {
		g.w.touchNext(g)
	}
	if err := g.raft.Propose(b); err != nil {
		m.dropped(g, &p)
		return
	}
	g.proposals = append(g.proposals, p)
}

// dropped answers what raft refused. Nothing of it was done, so it can be tried again; see group.dropped.
func (m *metaGroup) dropped(g *group, p *proposal) {
	g.number--
	g.refusedUntil = g.w.mono + tickInterval
	p.fail(ErrNoLeader)
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
		if o != nil {
			o.answer(results[i], nil)
		}
	}
}

// expire answers what has waited too long to be proposed, or to be committed.
func (m *metaGroup) expire(g *group, now time.Duration) {
	for len(m.waiting) > 0 && m.waiting[0].deadline <= now {
		m.waiting[0].answer(nil, ErrNoLeader)
		m.waiting[0] = nil
		m.waiting = m.waiting[1:]
	}
	for _, p := range g.proposals {
		for i, o := range p.metas {
			if o != nil && o.deadline+commitGrace <= now {
				o.answer(nil, ErrUnknown)
				p.metas[i] = nil
			}
		}
	}
}
