package shard

import (
	"fmt"

	"carillon/shard/table"
	"carillon/timer"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// apply applies committed entries. An entry that this build cannot apply stops the group.
func (g *group) apply(ents []*pb.Entry) {
	for _, e := range ents {
		g.w.effort.Entries++
		g.w.effort.Bytes += uint64(len(e.Data))
		var compares bool
		var err error
		switch {
		case e.GetType() != pb.EntryNormal:
			err = g.membership.apply(g, e)
		case len(e.Data) > 0:
			compares, err = g.applyData(e)
		default:
			g.membership.known.came(e)
		}
		if err != nil {
			g.stop(fmt.Errorf("shard %d: entry %d cannot be applied: %w", g.id, e.GetIndex(), err))
			return
		}
		g.applied, g.appliedTerm = e.GetIndex(), e.GetTerm()
		g.tellApplied(g.applied)
		if compares {
			g.compare.report(g)
		}
	}
	g.machine.afterApply()
	g.compact()
}

// tellApplied passes the applied index and the state hash to Config.Applied.
func (g *group) tellApplied(index uint64) {
	if watch := g.w.host.cfg.Applied; watch != nil {
		watch(g.id, index, g.machine.hash())
	}
}

// compact drops applied entries from memory once no follower waits for them. Unless memory is over
// its limit, a group with other members keeps some in any case, see worker.kept.
func (g *group) compact() {
	keep := min(g.applied, g.store.last())
	least, most := g.w.kept()
	if !g.soleVoter() || len(g.store.conf.Learners) > 0 {
		keep = min(keep, g.store.retained(least))
		if g.leader && keep > g.store.offset && g.store.bytes() < most {
			keep = min(keep, g.behind())
		}
	}
	g.store.compact(keep)
}

// behind returns the last entry that no member needs from memory: all active members have it, or
// the snapshot that is being written or sent covers it. When memory is tight, only members that are
// being sent a snapshot count.
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
		case pr.RecentActive && g.w.held.pressure == roomy:
			least = min(least, pr.Match)
		}
	})
	return least
}

// applyData applies one entry of commands and answers the operations of its proposal. compares
// reports whether the entry makes the replicas compare their states.
func (g *group) applyData(e *pb.Entry) (compares bool, err error) {
	if err := g.w.host.mayRead(e.Data); err != nil {
		return false, err
	}
	return g.machine.apply(e)
}

// listen makes the table collect history events. It is called for every entry, because a snapshot
// may have replaced the table.
func (s *timerShard) listen() {
	if s.g.w.host.cfg.History != nil {
		s.table.KeepHistory()
	}
}

// publish passes the events of an applied entry to the history and the watcher.
func (s *timerShard) publish(index uint64) {
	if events := s.table.TakeHistory(); len(events) > 0 {
		s.g.w.host.cfg.History.Record(s.g.id, index, events)
		s.showEnds(events)
	}
}

// own removes and returns the proposal that became the entry. It returns nil if this leadership did
// not propose the entry.
func (s *timerShard) own(e *pb.Entry) (*proposal, error) {
	_, origin, number, err := table.BatchHead(e.Data)
	if err != nil || origin != s.g.w.host.origin || len(s.g.pipeline.proposals) == 0 || s.g.pipeline.proposals[0].number != number {
		return nil, err
	}
	p := s.g.pipeline.proposals[0]
	s.g.pipeline.proposals[0] = proposal{}
	s.g.pipeline.proposals = s.g.pipeline.proposals[1:]
	return &p, nil
}

// answer passes an item's result to its operation, its pull request or the scheduler.
func (s *timerShard) answer(it *item, r *timer.Result) {
	switch it.kind {
	case commandItem:
		if it.op != nil {
			s.answerOp(it.op, r)
		}
	case ofScheduler:
		s.scheduler.ItemApplied(it.scheduled, r)
	case pullItem:
		it.pull.granted(s, r)
	case takeoverItem:
		s.tookOver()
	}
	if it.closes {
		s.scheduler.ReviewDropped(it.from, r.Handle)
	} else {
		s.scheduler.Review(r.Handle)
	}
}

func (s *timerShard) answerOp(o *op, r *timer.Result) {
	if o.outcome != nil {
		s.answerLeaseUpdate(o, r)
		return
	}
	if r.Timer != nil {
		s.scheduler.Overlay(r.Timer)
	}
	if r.Code == timer.InFlight && o.cmd.Kind == timer.Add && s.scheduler.Hides(r.Handle) {
		r.Code = timer.Exists
	}
	if o.wait != nil {
		s.g.w.host.cfg.Observer.Command(o.cmd.Kind, r.Code)
		s.showChange(o.cmd, r)
	}
	if o.cmd.Kind == timer.Deliver {
		s.scheduler.DeliveryChanged(o.cmd.Topic)
	}
	o.answer(*r, nil)
}
