package shard

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"carillon/shard/table"
	"carillon/timer"
)

// setClockEach is how long a leader waits before it proposes again to set the shard's clock back.
const setClockEach = time.Second

// maxPipelined bounds the proposed and unapplied entries of a group. When it is reached, client
// operations wait and may time out.
const maxPipelined = 64

// maxEntryItems is the number of items from which on an entry takes no more commands of clients:
// each replica applies it in one turn.
const maxEntryItems = 2048

// propose makes one raft entry of the group's pending changes: first outcomes, since they end
// active leases, then client commands, then leases.
func (g *group) propose() {
	if g.leader && g.mayNotLead() {
		return
	}
	if g.meta != nil {
		g.meta.propose(g)
		return
	}
	if !g.leader || g.transfer.sent || g.refusedUntil != 0 || len(g.proposals) >= maxPipelined || g.laden() {
		return // waiting operations time out by themselves
	}
	g.batch.Reset(g.entryMs(), g.w.host.origin, g.number+1)
	g.batch.SetLevel(g.w.host.agreed())
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
		if g.scheduler.KnowsTime() {
			g.scheduler.ProposeOutcomes(&g.batch)
			if g.transfer.to == 0 {
				g.proposeCommands()
				g.proposePulls()
				g.scheduler.Lease(&g.batch)
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
	if err := g.raft.Propose(g.batch.Bytes()); err != nil { // raft copies the data
		g.dropped(&p)
		return
	}
	g.proposals = append(g.proposals, p)
	g.proposedAt = g.w.now.Mono
}

// maxSpare is the largest capacity of an empty list that is kept for reuse.
const maxSpare = 64

// emptied clears a list whose elements are done with and returns it for reuse, or nil if its
// capacity exceeds maxSpare.
func emptied[T any](list []T) []T {
	if cap(list) > maxSpare {
		return nil
	}
	clear(list)
	return list[:0]
}

func (g *group) proposeCommands() {
	n := 0
	for ; n < len(g.waiting) && len(g.items) < maxEntryItems && g.batch.Size() < table.MaxBatchBytes; n++ {
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

// proposeCommand adds one command. A lease whose call has not started is given back first, so that
// the command finds the timer scheduled: a cancelled timer is not called, even if it was cancelled
// a millisecond before its time (I5).
func (g *group) proposeCommand(o *op) {
	if o.cmd.Kind.UpdatesLease() {
		g.proposeLeaseUpdate(o)
		return
	}
	if !g.scheduler.GiveWay(&g.batch, o.cmd, o) {
		return
	}
	cmd := o.cmd
	if (cmd.Kind == timer.Fire || cmd.Kind == timer.Redrive) && cmd.DueMs == 0 {
		// "At once" is by this leader's clock. The table's may once have been set far ahead.
		now := *cmd
		now.DueMs = g.w.now.WallMs
		cmd = &now
	}
	g.batch.Command(cmd)
	g.items = append(g.items, item{kind: commandItem, op: o, closes: cmd.Kind == timer.CloseTopic && cmd.Force, from: cmd.From})
}

// dropped undoes a proposal that raft refused, because the leadership is over or about to be, or
// because too much is uncommitted. Nothing in it took effect. The next proposal is made at the next
// tick: before, raft would refuse it for the same reason, and the scheduler would acquire and
// return the same permits in a loop.
func (g *group) dropped(p *proposal) {
	g.number--
	g.refusedUntil = g.w.now.Mono + tickInterval
	for i := range p.items {
		switch it := &p.items[i]; it.kind {
		case commandItem:
			it.op.answer(timer.Result{}, g.timeoutError())
		case ofScheduler:
			g.scheduler.ItemDropped(it.scheduled)
		case pullItem:
			it.pull.dropped(g)
		case takeoverItem:
			g.takeover = true
		case silentItem:
			g.scheduler.RearmAll()
		}
	}
}

// tookOver begins to serve: the takeover is applied, so the table holds everything that former
// leaders committed.
func (g *group) tookOver() {
	g.serving = true
	w := g.w
	g.servingSince = w.now.Mono
	g.scheduler.Begin()
	g.canary.begin(w.now.Mono)
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

// entryMs returns the time of the next entry. A leader that was never sure of its clock keeps the
// shard's clock as it is. One that was sure once goes on from there by the boot clock. So a
// doubtful clock advances the shard's no further than the time that has passed.
func (g *group) entryMs() int64 {
	if g.w.sure() || g.scheduler.KnowsTime() {
		return g.w.now.WallMs
	}
	return g.table.ClockMs()
}

// proposeClock sets the shard's clock back if it is too far ahead. Otherwise it continues to
// correct timestamps that an earlier change of the clock left in the future.
func (g *group) proposeClock() {
	ahead := g.table.ClockMs() - g.w.now.WallMs
	if ahead <= table.ClockAheadMs || !g.w.sure() || g.w.now.Mono < g.setClockAt {
		g.scheduler.FollowClock(&g.batch)
		return
	}
	g.setClockAt = g.w.now.Mono + setClockEach
	g.w.host.cfg.Logger.Warn("the shard's clock is set back: an earlier leader's was wrong", "shard", uint32(g.id), "ahead_ms", ahead)
	g.batch.SetClock()
	g.scheduler.Rebase()
	g.items = append(g.items, item{kind: silentItem})
}
