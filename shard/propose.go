package shard

import (
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"carillon/timer"
)

// Bounds on what one group has in raft's pipeline. Beyond them client operations wait, and time out if they must.
const (
	maxBatchBytes = 4 << 20
	maxPipelined  = 64
)

// propose makes one raft entry of all that the group has to say in this turn: outcomes first, since they end
// active leases, then clients' commands, then leases.
func (g *group) propose() {
	if g.leader && g.mayNotLead() {
		return
	}
	if g.meta != nil {
		g.meta.propose(g)
		return
	}
	if !g.leader || g.transferSent || g.refusedUntil != 0 || len(g.proposals) >= maxPipelined || g.laden() {
		return // waiting operations time out by themselves
	}
	g.batch.Reset(g.entryMs(), g.w.host.origin, g.number+1)
	g.items, g.spareItems = g.spareItems, nil
	if g.compare.wanted {
		g.compare.wanted = false
		g.batch.Compare()
		g.items = append(g.items, item{kind: silentItem})
	}
	if g.takeover {
		g.takeover = false
		g.batch.Takeover(uint64(g.w.host.cfg.Incarnation))
		g.items = append(g.items, item{kind: takeoverItem})
	}
	if g.serving {
		g.proposeClock()
		if g.scheduler.timed {
			g.proposeOutcomes()
		}
		if g.transferee == 0 && g.scheduler.timed {
			g.proposeCommands()
			g.proposePulls()
			if !g.w.host.draining.Load() && g.scheduler.mayStart() {
				g.scheduler.lease(&g.batch)
			}
		}
	}
	if len(g.items) == 0 {
		g.spareItems = g.items
		return
	}
	g.number++
	g.w.operations += len(g.items)
	g.w.proposed += g.batch.Size()
	p := proposal{number: g.number, bytes: g.batch.Size(), items: g.items}
	if err := g.raft.Propose(g.batch.Bytes()); err != nil { // raft copies what it takes
		g.dropped(&p)
		return
	}
	g.proposals = append(g.proposals, p)
}

// maxSpare is how many elements of a list that is empty again are kept for the next time.
const maxSpare = 64

// emptied is the memory of a list whose elements are done with, for the next ones; nil when it is much.
func emptied[T any](list []T) []T {
	if cap(list) > maxSpare {
		return nil
	}
	clear(list)
	return list[:0]
}

func (g *group) proposeOutcomes() {
	l := g.scheduler
	n := 0
	for ; n < len(l.out.outcomes) && g.batch.Size() < maxBatchBytes; n++ {
		g.batch.Outcome(&l.out.outcomes[n].Outcome)
		g.items = append(g.items, item{kind: outcomeItemKind, lease: l.out.outcomes[n].lease})
	}
	if n < len(l.out.outcomes) {
		g.w.touchNext(g)
	}
	left := copy(l.out.outcomes, l.out.outcomes[n:])
	clear(l.out.outcomes[left:])
	l.out.outcomes = l.out.outcomes[:left]
	if g.w.sure() {
		g.proposeEnds()
	}
	g.proposeOverlaps()
}

// proposeEnds says what is over because of the time.
func (g *group) proposeEnds() {
	l := g.scheduler
	for _, e := range l.out.expires {
		g.batch.Expire(e.handle, e.seq, e.rev, g.w.nowMs+l.retention(e.handle), l.again(e.handle, 0))
		g.items = append(g.items, item{kind: silentItem})
		g.w.host.cfg.Observer.Expired()
	}
	for _, e := range l.out.forgets {
		g.batch.Forget(e.handle, e.seq)
		g.items = append(g.items, item{kind: silentItem})
	}
	l.out.expires, l.out.forgets = l.out.expires[:0], l.out.forgets[:0]
	g.proposeSkips()
}

func (g *group) proposeCommands() {
	n := 0
	for ; n < len(g.waiting) && g.batch.Size() < maxBatchBytes; n++ {
		g.proposeCommand(g.waiting[n])
		g.waiting[n] = nil
	}
	if n == len(g.waiting) {
		g.waiting = emptied(g.waiting)
		return
	}
	g.waiting = g.waiting[n:]
	g.w.touchNext(g)
}

// proposeCommand adds one command. A lease whose call has not started is given back first, so that the command
// finds the timer scheduled: cancelled means cancelled, even a millisecond before its time (I5).
func (g *group) proposeCommand(o *op) {
	if o.cmd.Kind.UpdatesLease() {
		g.proposeLeaseUpdate(o)
		return
	}
	if !g.releaseFor(o) {
		return
	}
	if o.cmd.Kind == timer.Deliver {
		g.releaseHeld(o.cmd.Topic)
	}
	o.proposed = true
	cmd := o.cmd
	if (cmd.Kind == timer.Fire || cmd.Kind == timer.Redrive) && cmd.DueMs == 0 {
		now := *cmd // "at once" is by this clock: the table's never goes back, and may once have been far ahead
		now.DueMs = g.w.nowMs
		cmd = &now
	}
	g.batch.Command(cmd)
	g.items = append(g.items, item{kind: commandItem, op: o, closes: cmd.Kind == timer.CloseTopic && cmd.Force, from: timer.Handle(min(max(cmd.DueMs, 0), maxHandle))})
}

// releaseFor gives back the leases that stand in the way of a command; false: it waits for one that is on its way.
func (g *group) releaseFor(o *op) bool {
	if o.cmd.Kind == timer.Add && o.cmd.Merge == timer.MergeReject {
		return true
	}
	h, _ := g.table.Lookup(o.cmd.Topic, o.cmd.ID)
	for h != 0 {
		switch f := g.scheduler.leases.byTimer[h]; {
		case f == nil || !g.table.Live(h, f.seq):
		case o.cmd.Kind == timer.Add && f.dueMs <= g.w.nowMs:
			// Not ahead of its time: the attempt goes, or adds that come all the time would put it off for ever.
		case f.phase == proposed:
			f.revoked = true
			g.scheduler.await(f, o)
			return false
		case f.phase == held:
			g.release(f)
		}
		if o.cmd.Kind != timer.Cancel {
			break
		}
		h = g.table.chains[h].older // a cancel is of all that has not ended under the id
	}
	return true
}

// release gives a lease back whose call has not started, in this entry.
func (g *group) release(f *activeLease) {
	f.permit.Cancel()
	f.phase = returned
	g.batch.Outcome(&Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: Release})
	g.items = append(g.items, item{kind: outcomeItemKind, lease: f})
}

// releaseHeld gives back a topic's leases that clients do not see yet.
func (g *group) releaseHeld(topic timer.TopicID) {
	for _, h := range g.scheduler.activeHandles() {
		if f := g.scheduler.leases.byTimer[h]; f.phase == held && g.table.Live(h, f.seq) && g.table.Due(h).Topic == topic {
			g.release(f)
		}
	}
}

// dropped takes back what raft refused: the leadership is over or about to be, or too much is uncommitted. Nothing of it was done. The next
// tick tries again: at once would be in vain again, and the permits that are given back here would go round and round.
func (g *group) dropped(p *proposal) {
	g.number--
	g.refusedUntil = g.w.mono + tickInterval // not again at once: it would be refused for the same reason
	for i := range p.items {
		switch it := &p.items[i]; it.kind {
		case commandItem:
			it.op.proposed = false
			it.op.answer(timer.Result{}, g.timeoutError())
		case leaseItem:
			it.lease.permit.Cancel()
			g.scheduler.settled(it.lease)
			g.table.Rearm(it.lease.handle, it.lease.seq)
		case outcomeItemKind:
			switch f := it.lease; {
			case f == nil:
				g.scheduler.scanAgain()
			case f.phase == returned:
				g.scheduler.out.outcomes = append(g.scheduler.out.outcomes, outcomeItem{Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: Release}, f})
			default:
				g.scheduler.ended(f, &f.attempt)
			}
		case pullItem:
			it.pull.dropped(g)
		case takeoverItem:
			g.takeover = true
		case silentItem:
			g.scheduler.due.rearming, g.scheduler.due.rearmFrom = true, 0
		}
	}
}

// tookOver begins the leadership: the takeover is applied, so the table holds all that former leaders committed.
func (g *group) tookOver() {
	g.serving = true
	w := g.w
	g.servingSince = w.mono
	g.scheduler.begin()
	g.canary.begin(w.mono)
	w.touchNext(g)
}

// confChange decodes a membership change entry.
func confChange(e *pb.Entry) (pb.ConfChangeI, error) {
	if e.GetType() == pb.EntryConfChange {
		var cc pb.ConfChange
		return &cc, proto.Unmarshal(e.Data, &cc)
	}
	var cc pb.ConfChangeV2
	return &cc, proto.Unmarshal(e.Data, &cc)
}
