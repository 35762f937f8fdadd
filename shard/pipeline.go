package shard

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/scheduler"
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
	// gatherMost is how many client operations do not wait: they make a good entry by themselves.
	gatherMost = 128
)

// gathers reports whether the group's changes wait for the entry that is on its way.
func (p *pipeline) gathers(r *replica) bool {
	return len(p.proposals) > 0 && !r.machine.prompt() && !r.soleVoter() && r.machine.waits() < gatherMost && r.w.now.Mono < p.gatherUntil()
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
// that one has the same facts for the follower, and a follower with nothing to write answers for
// nothing. At the next tick it is sent at the latest, because raft also finds out by such appends
// what was lost.
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
