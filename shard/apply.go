package shard

import (
	"fmt"
	"slices"

	"carillon/shard/events"
	"carillon/shard/table"
	"carillon/timer"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// apply applies committed entries. An entry that this build cannot apply stops the group.
func (r *replica) apply(ents []*pb.Entry) {
	for _, e := range ents {
		r.w.effort.Entries++
		r.w.effort.Bytes += uint64(len(e.Data))
		var compares bool
		var err error
		switch {
		case e.GetType() != pb.EntryNormal:
			err = r.membership.apply(r, e)
		case len(e.Data) > 0:
			if err = r.w.host.mayRead(e.Data); err == nil {
				compares, err = r.machine.apply(e)
			}
		default:
			r.membership.known.applied(e)
		}
		if err != nil {
			r.stop(fmt.Errorf("shard %d: entry %d cannot be applied: %w", r.shard, e.GetIndex(), err))
			return
		}
		r.applied, r.appliedTerm = e.GetIndex(), e.GetTerm()
		r.notifyApplied(r.applied)
		if compares {
			r.compare.report(r)
		}
	}
	r.machine.afterApply()
	r.compact()
}

// notifyApplied passes the applied index and the state hash to Config.Applied.
func (r *replica) notifyApplied(index uint64) {
	if watch := r.w.host.cfg.Applied; watch != nil {
		watch(r.shard, index, r.machine.hash())
	}
}

// compact drops applied entries from memory once no follower waits for them. Unless memory is over
// its limit, a group with other members keeps some in any case, see worker.kept.
func (r *replica) compact() {
	keep := min(r.applied, r.store.Last())
	least, most := r.w.kept()
	if !r.soleVoter() || len(r.store.Conf.Learners) > 0 {
		keep = min(keep, r.store.Retained(least))
		if r.leader && keep > r.store.Offset && r.store.Bytes() < most {
			keep = min(keep, r.behind())
		}
	}
	r.store.Compact(keep)
}

// behind returns the last entry that no member needs from memory: all active members have it, or
// the snapshot that is being written or sent covers it. When memory is tight, only members that are
// being sent a snapshot count.
func (r *replica) behind() uint64 {
	least := r.applied
	if run := r.w.snapshot; run != nil && run.group == r && run.child == nil {
		least = min(least, run.mark.Index)
	}
	r.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		switch {
		case id == r.id:
		case pr.State == tracker.StateSnapshot:
			least = min(least, pr.PendingSnapshot)
		case pr.RecentActive && r.w.held.pressure == roomy:
			least = min(least, pr.Match)
		}
	})
	return least
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
	if list := s.table.TakeHistory(); len(list) > 0 {
		s.g.w.host.cfg.History.Record(s.g.shard, index, list)
		events.Ended(s.table, list, s.watched)
	}
}

// watched returns the watcher, or nil if this node does not report the topic's events or has no
// observer of them.
func (s *timerShard) watched(topic timer.TopicID) events.Watcher {
	w := s.g.w.host.cfg.Watcher
	if w == nil || !s.g.serving || topic == table.CanaryTopic || !w.Watches(topic) {
		return nil
	}
	return w
}

// showOutcomes reports the outcomes that an applied entry has made.
func (s *timerShard) showOutcomes() {
	if n := s.table.Outcomes(); len(n.Made)+n.Lost > 0 && s.g.serving {
		s.g.w.host.cfg.Observer.Outcomes(len(n.Made), n.Lost)
		events.Made(s.table, n.Made, s.watched)
	}
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
		s.scheduler.Keys.ReviewDropped(it.from, r.Handle)
	} else {
		s.scheduler.Keys.Review(r.Handle)
	}
}

func (s *timerShard) answerOp(o *op, r *timer.Result) {
	if o.outcome != nil {
		s.answerLeaseUpdate(o, r)
		return
	}
	if r.Code == timer.Partly {
		o.begun = true
		s.waiting = slices.Insert(s.waiting, 0, o)
		s.g.w.touchNext(s.g)
		return
	}
	if r.Timer != nil {
		s.scheduler.View.Overlay(r.Timer)
	}
	if r.Code == timer.InFlight && o.cmd.Kind == timer.Add && s.scheduler.View.Hides(r.Handle) {
		r.Code = timer.Exists
	}
	if o.wait != nil {
		s.g.w.host.cfg.Observer.Command(o.cmd.Kind, r.Code)
		events.Changed(s.table, o.cmd, r, s.watched)
	}
	switch {
	case o.cmd.Kind == timer.Deliver:
		s.scheduler.DeliveryChanged(o.cmd.Topic)
	case o.cmd.Kind == timer.Resume && r.Code == timer.OK:
		s.scheduler.Keys.Resumed(r.Handle)
	}
	o.answer(*r, nil)
}
