package shard

import (
	"fmt"

	"carillon/shard/table"
	"carillon/timer"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// apply runs committed entries through the state machine. One that this build cannot apply stops
// the group.
func (g *group) apply(ents []*pb.Entry) {
	for _, e := range ents {
		var compares bool
		var err error
		switch {
		case e.GetType() != pb.EntryNormal:
			err = g.changeMembers(e)
		case len(e.Data) > 0:
			compares, err = g.applyData(e)
		default:
			g.known.came(e)
		}
		if err != nil {
			g.stop(fmt.Errorf("shard %d: entry %d cannot be applied: %w", g.id, e.GetIndex(), err))
			return
		}
		g.applied, g.appliedTerm = e.GetIndex(), e.GetTerm()
		g.tellApplied(g.applied)
		if compares {
			g.reportState()
		}
	}
	if g.takeover && g.meta != nil {
		g.w.touchNext(g) // it may have been this term's first entry
	}
	g.takeRefill()
	g.compact()
}

// tellApplied is for who watches states entry by entry.
func (g *group) tellApplied(index uint64) {
	if watch := g.w.host.cfg.Applied; watch != nil {
		watch(g.id, index, g.stateHash())
	}
}

// stateHash is of what the group's entries have made.
func (g *group) stateHash() uint64 {
	if g.meta != nil {
		return g.meta.machine.Hash()
	}
	return g.table.Hash()
}

// compact drops applied entries from memory that no follower waits for. A group that has other
// members keeps some in any case.
func (g *group) compact() {
	keep := min(g.applied, g.store.last())
	least, most := g.w.kept()
	if q := g.quarantine; q != nil && g.store.bytes() < most {
		keep = min(keep, q.from) // what comes after the state that it is sent is applied to that again
	}
	if !g.soleVoter() || len(g.store.conf.Learners) > 0 {
		keep = min(keep, g.store.retained(least))
		if g.leader && keep > g.store.offset && g.store.bytes() < most {
			keep = min(keep, g.behind())
		}
	}
	g.store.compact(keep)
}

// behind is the last entry that all members have which are here, or that the snapshot covers which
// they are being sent. Where memory is tight those alone count that are being sent one.
func (g *group) behind() uint64 {
	least := g.applied
	if run := g.w.snapshot; run != nil && run.group == g {
		least = min(least, run.mark.Index)
	}
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		switch {
		case id == g.replica:
		case pr.State == tracker.StateSnapshot:
			least = min(least, pr.PendingSnapshot)
		case pr.RecentActive && g.w.pressure == roomy:
			least = min(least, pr.Match)
		}
	})
	return least
}

// applyData applies one entry of commands and settles what waited for it. It says whether the
// entry has the replicas compare their states.
func (g *group) applyData(e *pb.Entry) (compares bool, err error) {
	if err := g.w.host.mayRead(e.Data); err != nil {
		return false, err
	}
	if g.meta != nil {
		return g.meta.apply(g, e)
	}
	p, err := g.own(e)
	if err != nil {
		return false, err
	}
	var want func(int, *timer.Result) bool
	if p != nil {
		want = func(i int, r *timer.Result) bool {
			return p.items[i].op.wants(g.table, r)
		}
	}
	g.listen()
	if g.results, err = g.table.Apply(e.Data, want, g.results[:0]); err != nil {
		if p != nil {
			p.fail(timer.ErrUnknown)
		}
		return false, err
	}
	g.tell(e.GetIndex())
	if p != nil {
		for i := range p.items {
			g.settle(&p.items[i], &g.results[i])
		}
		g.spareItems, p.items = emptied(p.items), nil
	}
	return g.table.Compares(), nil
}

// listen has the table gather what the history is to be told: the table may be another than before,
// from a snapshot.
func (g *group) listen() {
	if g.w.host.cfg.History != nil {
		g.table.KeepHistory()
	}
}

// tell passes on what an entry did.
func (g *group) tell(index uint64) {
	if events := g.table.TakeHistory(); len(events) > 0 {
		g.w.host.cfg.History.Record(g.id, index, events)
		g.showEnds(events)
	}
}

// own is the proposal of this leader that the entry is, or nil.
func (g *group) own(e *pb.Entry) (*proposal, error) {
	_, origin, number, err := table.BatchHead(e.Data)
	if err != nil || origin != g.w.host.origin || len(g.proposals) == 0 || g.proposals[0].number != number {
		return nil, err
	}
	p := g.proposals[0]
	g.proposals[0] = proposal{}
	g.proposals = g.proposals[1:]
	return &p, nil
}

// settle hands an item's result to who waits for it.
func (g *group) settle(it *item, r *timer.Result) {
	switch it.kind {
	case commandItem:
		if it.op != nil {
			g.settleOp(it.op, r)
		}
	case ofScheduler:
		g.scheduler.ItemApplied(it.scheduled, r)
	case pullItem:
		it.pull.granted(g, r)
	case takeoverItem:
		g.tookOver()
	}
	if it.closes {
		g.scheduler.ReviewDropped(it.from, r.Handle)
	} else {
		g.scheduler.Review(r.Handle)
	}
}

func (g *group) settleOp(o *op, r *timer.Result) {
	if o.outcome != nil {
		g.settleLeaseUpdate(o, r)
		return
	}
	if r.Timer != nil {
		g.scheduler.Overlay(r.Timer)
	}
	if r.Code == timer.InFlight && o.cmd.Kind == timer.Add && g.scheduler.Hides(r.Handle) {
		r.Code = timer.Exists
	}
	if o.wait != nil {
		g.w.host.cfg.Observer.Command(o.cmd.Kind, r.Code)
		g.showChange(o.cmd, r)
	}
	if o.cmd.Kind == timer.Deliver {
		g.scheduler.DeliveryChanged(o.cmd.Topic)
	}
	o.answer(*r, nil)
}
