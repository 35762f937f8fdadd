package shard

import (
	"fmt"
	"io"
	"math"
	"time"

	"carillon/internal/feature"
	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/encoding"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Machine is the state machine of the meta group. It is deterministic, and all methods but Read are
// called from one goroutine.
type Machine interface {
	// Check returns an error if a command must not be proposed. It is called on the leader.
	Check(cmd []byte) error
	// Apply runs one command. nowMs is the proposer's clock. The result goes to the proposer. An
	// error means that this build cannot apply the command: the state is unchanged and the replica
	// stops.
	Apply(nowMs int64, cmd []byte) (any, error)
	// Hash returns the hash of the whole state. Replicas that applied the same commands have the
	// same hash.
	Hash() uint64
	// BeginSave starts to save the current state.
	BeginSave() timer.Saving
	// Read reads the output of a Saving and returns the state and its hash. It may run concurrently
	// with every other method.
	Read(r io.Reader) (state any, hash uint64, err error)
	// Replace makes a state returned by Read the current one.
	Replace(state any)
}

// metaGroup takes the place of a table in the meta group.
type metaGroup struct {
	g       *replica
	machine Machine
	waiting []*metaOp
}

// An entry of the meta group is the feature level that was agreed when it was proposed, a byte, and
// then uvarints: nowMs, origin, number and flags. The commands follow, each with its length.
const (
	metaCompares    = 1 // flag: the replicas compare their states
	metaHashVersion = 1 // of the machine's hash
)

// maxMetaWaiting bounds the commands that wait to be proposed.
const maxMetaWaiting = 10_000

// propose makes one entry of the waiting commands. A leader begins to propose, and to serve reads,
// when it has applied the first entry of its term. Before, its state may lack commands that earlier
// leaders acknowledged.
func (m *metaGroup) propose() {
	r := m.g
	if !r.leader {
		return
	}
	if r.takeover && r.appliedTerm == r.term {
		// There is no lease to fence: the meta group reads no clock and makes no calls.
		r.takeover, r.serving, r.servingSince = false, true, r.w.now.Mono
	}
	if !r.serving || r.transfer.to != 0 || r.pipeline.refusedUntil != 0 || len(r.pipeline.proposals) >= maxPipelined {
		return // waiting commands time out by themselves
	}
	if len(m.waiting) == 0 && !r.compare.wanted {
		return
	}
	entry := m.entry()
	if len(entry.ops) == 0 && !entry.compares {
		return // all waiting commands were refused
	}
	b := entry.encode(r.w.host.agreed(), uint64(r.w.now.WallMs), r.w.host.origin, r.pipeline.number+1)
	p := proposal{metas: entry.ops}
	if !r.pipeline.submit(r, b, p) {
		p.fail(timer.ErrNoLeader) // the commands had no effect, so clients can try again
		return
	}
	r.compare.wanted = false
}

// metaEntry is an entry that is about to be proposed.
type metaEntry struct {
	compares bool
	ops      []*metaOp
}

// entry takes waiting commands, up to the size of one entry. It answers those that Check refuses.
func (m *metaGroup) entry() metaEntry {
	r := m.g
	e := metaEntry{compares: r.compare.wanted}
	bytes, n := 0, 0
	for ; n < len(m.waiting) && bytes < table.MaxBatchBytes; n++ {
		o := m.waiting[n]
		if err := m.machine.Check(o.cmd); err != nil {
			o.answer(nil, err)
			continue
		}
		e.ops = append(e.ops, o)
		bytes += len(o.cmd)
	}
	clear(m.waiting[:n])
	if m.waiting = m.waiting[n:]; len(m.waiting) > 0 {
		r.w.touchNext(r)
	}
	return e
}

func (e *metaEntry) encode(level feature.Level, nowMs, origin, number uint64) []byte {
	b := encoding.AppendUvarints([]byte{byte(level)}, nowMs, origin, number, uint64(encoding.Flag(e.compares, metaCompares)))
	for _, o := range e.ops {
		b = encoding.AppendBlock(b, o.cmd)
	}
	return b
}

// metaResult is the result of an applied entry.
type metaResult struct {
	nowMs          int64
	origin, number uint64
	compares       bool
	results        []any
}

// readMetaEntry reads the head of an entry. in holds the commands.
func readMetaEntry(data []byte) (out metaResult, in record.Reader, err error) {
	if len(data) == 0 || data[0] == 0 {
		return out, in, record.ErrMalformed
	}
	in = record.Read(data[1:])
	out.nowMs = int64(in.Uvarint())
	out.origin, out.number = in.Uvarint(), in.Uvarint()
	flags := in.Uvarint()
	if out.compares = flags&metaCompares != 0; flags > metaCompares {
		return out, in, fmt.Errorf("%w: flags %x", feature.ErrNewer, flags)
	}
	return out, in, nil
}

// runCommands applies an entry's commands.
func (m *metaGroup) runCommands(data []byte) (out metaResult, err error) {
	out, r, err := readMetaEntry(data)
	if err != nil {
		return out, err
	}
	for len(r.Rest) > 0 {
		cmd := r.Bytes()
		if r.Fault != "" {
			break
		}
		result, err := m.machine.Apply(out.nowMs, cmd)
		if err != nil {
			return out, err
		}
		out.results = append(out.results, result)
	}
	return out, r.End()
}

func (m *metaGroup) replay(e *record.Entry) error {
	_, err := m.runCommands(e.Data)
	return err
}

func (m *metaGroup) apply(e *pb.Entry) (compares bool, err error) {
	r := m.g
	out, err := m.runCommands(e.Data)
	if err != nil {
		return false, err
	}
	if p := r.pipeline.own(r, out.origin, out.number); p != nil {
		for i, o := range p.metas {
			if o != nil {
				o.answer(out.results[i], nil)
			}
		}
	}
	return out.compares, nil
}

// expire answers commands that have waited too long to be proposed or to be committed.
func (m *metaGroup) expire(now time.Duration) {
	for len(m.waiting) > 0 && m.waiting[0].deadline <= now {
		m.waiting[0].answer(nil, timer.ErrNoLeader)
		m.waiting[0] = nil
		m.waiting = m.waiting[1:]
	}
	for _, p := range m.g.pipeline.proposals {
		for i, o := range p.metas {
			if o != nil && o.deadline+commitGrace <= now {
				o.answer(nil, timer.ErrUnknown)
				p.metas[i] = nil
			}
		}
	}
}

func (m *metaGroup) refuse(err error) {
	for _, o := range m.waiting {
		o.answer(nil, err)
	}
	m.waiting = nil
}

// afterApply has the leader propose if the first entry of its term, which it waits for, is applied.
func (m *metaGroup) afterApply() {
	if m.g.takeover {
		m.g.w.touchNext(m.g)
	}
}

func (m *metaGroup) hash() uint64       { return m.machine.Hash() }
func (m *metaGroup) hashVersion() byte  { return metaHashVersion }
func (m *metaGroup) save() timer.Saving { return m.machine.BeginSave() }
func (m *metaGroup) replace(state any)  { m.machine.Replace(state) }
func (m *metaGroup) hasWork() bool      { return len(m.waiting) > 0 }
func (m *metaGroup) end()               { m.g.pipeline.fail() }

func (m *metaGroup) read(r io.Reader) (state any, hash uint64, err error) { return m.machine.Read(r) }

// prompt implements machine: nodes wait for their copy of the meta group's state.
func (m *metaGroup) prompt() bool { return true }

// What follows is for groups with timers, clients' operations or calls: the meta group has none.

func (m *metaGroup) bytes() int64                 { return 0 }
func (m *metaGroup) slots() int                   { return 0 }
func (m *metaGroup) clear()                       {}
func (m *metaGroup) waits() int                   { return 0 }
func (m *metaGroup) run()                         {}
func (m *metaGroup) nextWake() int64              { return math.MaxInt64 }
func (m *metaGroup) tick()                        {}
func (m *metaGroup) tickRemoved()                 {}
func (m *metaGroup) doubt()                       {}
func (m *metaGroup) drain()                       {}
func (m *metaGroup) unstarted() int               { return 0 }
func (m *metaGroup) scanLeases()                  {}
func (m *metaGroup) receive(byte, uint64, []byte) {}
func (m *metaGroup) status(*GroupStatus)          {}
func (m *metaGroup) stats(*Stats)                 {}

func (h *Host) metaGroup() *metaGroup { return h.group(Meta).machine.(*metaGroup) }
