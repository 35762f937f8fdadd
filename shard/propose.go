package shard

import (
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"carillon/internal/reuse"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// pipeline is what this leader has proposed.
type pipeline struct {
	number       uint64        // of the last proposal
	proposals    []proposal    // that are not applied yet, in order
	proposedAt   time.Duration // when the newest was made
	refusedUntil time.Duration // raft refused a proposal: the next is made then; 0: it did not
	gathering    bool          // changes wait for the newest to be applied; see gathers
	held         []*pb.Message // appends without entries, at most one for each peer; see holdsBack
}

// proposal is one raft entry of this leader that is not applied yet.
type proposal struct {
	number uint64
	bytes  int
	items  []item
	metas  []*metaOp
}

// item describes the origin of one item of a batch.
type item struct {
	kind      itemKind
	closes    bool         // it drops the timers of a force-closed topic
	from      timer.Handle // … in the slots behind this one
	op        *op
	scheduled scheduler.Item // the scheduler's own description, for ofScheduler
	pull      *pullRequest
}

type itemKind uint8

const (
	commandItem itemKind = iota
	ofScheduler
	takeoverItem
	silentItem // nobody waits for its result
	pullItem
	divisionItem // of the division of the shard, or a sweep after it
)

// submit hands an entry with the next number to raft. Raft refuses it if the leadership is over or
// about to be, or if too much is uncommitted. Nothing in it took effect then. The next proposal is
// made at the next tick: before, raft would refuse it for the same reason, and the scheduler would
// acquire and return the same permits in a loop.
func (p *pipeline) submit(r *replica, entry []byte, made proposal) (ok bool) {
	r.w.budget.proposed += len(entry)
	if err := r.raft.Propose(entry); err != nil { // raft copies the data
		p.refusedUntil = r.w.now.Mono + tickInterval
		return false
	}
	p.number++
	made.number, made.bytes = p.number, len(entry)
	p.proposals = append(p.proposals, made)
	p.proposedAt = r.w.now.Mono
	return true
}

// own removes and returns the proposal that became an entry. It returns nil if this leadership did
// not propose the entry.
func (p *pipeline) own(r *replica, origin, number uint64) *proposal {
	if origin != r.w.host.origin || len(p.proposals) == 0 || p.proposals[0].number != number {
		return nil
	}
	own := p.proposals[0]
	p.proposals[0] = proposal{}
	p.proposals = p.proposals[1:]
	return &own
}

// fail answers the operations of the proposals that are not applied: their outcome
// is unknown.
func (p *pipeline) fail() {
	for _, unapplied := range p.proposals {
		unapplied.fail(timer.ErrUnknown)
	}
	p.proposals = nil
}

func (p *proposal) fail(err error) {
	for i := range p.items {
		it := &p.items[i]
		if it.op != nil {
			it.op.answer(timer.Result{}, err)
		}
		if it.pull != nil {
			it.pull.answer(err)
		}
	}
	for _, o := range p.metas {
		if o != nil {
			o.answer(nil, err)
		}
	}
}

// Gathering. An entry costs three nodes a frame, a sync and two messages each, however many changes
// it has. So while an entry is on its way to the other voters, the changes that arrive wait for it
// to be applied and then share the next one. A leader with nothing on its way proposes at once, and
// one that is alone waits for its own disk instead (see maxFramesAlone).
const (
	// gatherFor is the longest wait. It matters where other voters are far away or slow.
	gatherFor = 10 * time.Millisecond
	// maxGather is how many client operations do not wait: they make a good entry by themselves.
	maxGather = 128
)

// gathers reports whether the group's changes wait for the entry that is on its way.
func (p *pipeline) gathers(r *replica) bool {
	return len(p.proposals) > 0 && !r.machine.prompt() && !r.soleVoter() && r.machine.waits() < maxGather && r.w.now.Mono < p.gatherUntil()
}

// gatherUntil returns when changes no longer wait for the newest proposal.
func (p *pipeline) gatherUntil() time.Duration { return p.proposedAt + gatherFor }

// tryPropose proposes the group's changes, unless they gather or too much is on its way to disk.
func (r *replica) tryPropose() {
	r.pipeline.gathering = false
	switch {
	case r.pipeline.gathers(r):
		r.pipeline.gathering = r.machine.hasWork()
	case r.w.mayPropose():
		if !r.leader || !r.mayNotLead() {
			r.machine.propose()
		}
	case r.machine.hasWork():
		r.w.stall(r)
	}
}

// holdsBack keeps an append without entries for a moment, if another append will follow it soon:
// that one has the same facts for the follower, and the answer to this one would be in vain. It is
// sent at the next tick at the latest, because raft also detects lost messages by such appends.
func (p *pipeline) holdsBack(r *replica, m *pb.Message) bool {
	if m.GetType() != pb.MsgApp || r.machine.prompt() {
		return false
	}
	for i, held := range p.held {
		if held.GetTo() == m.GetTo() {
			p.held = append(p.held[:i], p.held[i+1:]...)
			break
		}
	}
	if len(m.Entries) > 0 || !r.leader || len(p.proposals)+r.machine.waits() == 0 {
		return false
	}
	p.held = append(p.held, m)
	return true
}

func (p *pipeline) sendHeld(r *replica) {
	held := p.held
	p.held = nil
	for _, m := range held {
		r.sendNow(m)
	}
}

// setClockEvery is how long a leader waits before it proposes again to set the shard's clock back.
const setClockEvery = time.Second

// maxPipelined bounds the proposed and unapplied entries of a group. When it is reached, client
// operations wait and may time out.
const maxPipelined = 64

// maxEntryItems is the number of items from which on an entry takes no more commands of clients:
// each replica applies it in one turn.
const maxEntryItems = 2048

// propose makes one raft entry of the group's pending changes: first outcomes, since they end
// active leases, then client commands, then leases.
func (s *timerShard) propose() {
	if !s.g.leader || s.g.transfer.sent || s.g.pipeline.refusedUntil != 0 || len(s.g.pipeline.proposals) >= maxPipelined || s.g.pipeline.laden(s.g) {
		return // waiting operations time out by themselves
	}
	if s.division.propose() {
		return
	}
	s.batch.Reset(s.entryMs(), s.g.w.host.origin, s.g.pipeline.number+1)
	s.batch.SetLevel(s.g.w.host.agreed())
	s.items, s.spareItems = s.spareItems, nil
	if s.g.compare.wanted {
		s.g.compare.wanted = false
		s.batch.Compare()
		s.items = append(s.items, item{kind: silentItem})
	}
	if s.g.takeover {
		s.g.takeover = false
		s.batch.Takeover(uint64(s.g.w.host.cfg.Incarnation))
		s.items = append(s.items, item{kind: takeoverItem})
	}
	if s.g.serving {
		s.proposeClock()
		if s.scheduler.KnowsTime() {
			s.scheduler.Outcomes.Propose(&s.batch)
			s.division.proposeSweep()
			if s.g.transfer.to == 0 {
				s.proposeCommands()
				s.proposePulls()
				s.scheduler.Lease(&s.batch)
			}
		}
	}
	if len(s.items) == 0 {
		s.spareItems = s.items
		return
	}
	s.submit()
}

// submit hands the entry that was made to raft.
func (s *timerShard) submit() {
	s.g.w.out.operations += len(s.items)
	if p := (proposal{items: s.items}); !s.g.pipeline.submit(s.g, s.batch.Bytes(), p) {
		s.dropped(&p)
	}
}

func (s *timerShard) proposeCommands() {
	n := 0
	s.items = slices.Grow(s.items, min(len(s.waiting), maxEntryItems))
	for ; n < len(s.waiting) && len(s.items) < maxEntryItems && s.batch.Size() < table.MaxBatchBytes; n++ {
		s.proposeCommand(s.waiting[n])
		s.waiting[n] = nil
	}
	if n == len(s.waiting) {
		s.waiting = reuse.Emptied(s.waiting)
		return
	}
	s.waiting = s.waiting[n:]
	s.g.w.touchNext(s.g)
}

// proposeCommand adds one command. A lease whose call has not started is given back first, so that
// the command finds the timer scheduled: a cancelled timer is not called, even if it was cancelled
// a millisecond before its time (I5).
func (s *timerShard) proposeCommand(o *op) {
	if o.cmd.Kind.UpdatesLease() {
		s.proposeLeaseUpdate(o)
		return
	}
	if !s.scheduler.Leases.GiveWay(&s.batch, o.cmd, o) {
		return
	}
	cmd := o.cmd
	if (cmd.Kind == timer.Fire || cmd.Kind == timer.Redrive || cmd.Kind == timer.Resume) && cmd.DueMs == 0 {
		// "At once" is by this leader's clock. The table's may once have been set far ahead.
		now := *cmd
		now.DueMs = s.g.w.now.WallMs
		cmd = &now
	}
	s.batch.Command(cmd)
	s.items = append(s.items, item{kind: commandItem, op: o, closes: cmd.Kind == timer.CloseTopic && cmd.Force, from: cmd.From})
}

// dropped undoes a proposal that raft refused.
func (s *timerShard) dropped(p *proposal) {
	for i := range p.items {
		switch it := &p.items[i]; it.kind {
		case commandItem:
			it.op.answer(timer.Result{}, s.g.timeoutError())
		case ofScheduler:
			s.scheduler.ItemDropped(it.scheduled)
		case pullItem:
			it.pull.dropped(s)
		case takeoverItem:
			s.g.takeover = true
		case silentItem:
			s.scheduler.RearmAll()
		case divisionItem:
			s.division.proposed = false
		}
	}
}

func confChange(e *pb.Entry) (pb.ConfChangeI, error) {
	if e.GetType() == pb.EntryConfChange {
		var cc pb.ConfChange
		return &cc, proto.Unmarshal(e.Data, &cc)
	}
	var cc pb.ConfChangeV2
	return &cc, proto.Unmarshal(e.Data, &cc)
}

// entryMs returns the time of the next entry. A leader that was never sure of its clock keeps the
// shard's clock as it is. One that was sure once continues from there by the boot clock. So a
// doubtful clock advances the shard's no further than the time that has passed.
func (s *timerShard) entryMs() int64 {
	if s.g.w.sure() || s.scheduler.KnowsTime() {
		return s.g.w.now.WallMs
	}
	return s.table.ClockMs()
}

// proposeClock sets the shard's clock back if it is too far ahead. Otherwise it continues to
// correct timestamps that an earlier change of the clock left in the future.
func (s *timerShard) proposeClock() {
	ahead := s.table.ClockMs() - s.g.w.now.WallMs
	if ahead <= table.ClockAheadMs || !s.g.w.sure() || s.g.w.now.Mono < s.setClockAt {
		s.scheduler.FollowClock(&s.batch)
		return
	}
	s.setClockAt = s.g.w.now.Mono + setClockEvery
	s.g.w.host.cfg.Logger.Warn("the shard's clock is set back: that of an earlier leader was ahead", "shard", uint32(s.g.shard), "ahead_ms", ahead)
	s.batch.SetClock()
	s.scheduler.Rebase()
	s.items = append(s.items, item{kind: silentItem})
}
