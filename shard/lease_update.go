package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// proposeLeaseUpdate decides an update (ack, nack, extension or return) of a lease and proposes its
// outcome. If the lease is over the update is answered at once: the table holds committed entries
// only, so that cannot change. But the lease may be one that this replica has not seen yet. A
// leader that was suspended may not know that another leads and has given the lease. Then the
// leadership is confirmed first.
func (s *timerShard) proposeLeaseUpdate(o *op) {
	c := o.cmd.Claim
	d := s.table.Due(c.Handle)
	early := d.Holder == table.ByCall
	if !s.scheduler.Updatable(o.cmd, &d) {
		if c.Fence > s.table.LastFence() {
			s.confirmLeaseUpdate(o)
			return
		}
		o.answer(s.scheduler.LeaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		return
	}
	if early && o.cmd.Kind != timer.AckLease && s.scheduler.AwaitAnswer(o, c.Handle, &d) {
		return
	}
	if !s.scheduler.HasZone(c.Handle, &d) {
		// The update is valid, and a node that knows the zone can decide it.
		o.answer(timer.Result{}, timer.ErrOverloaded)
		return
	}
	out := s.scheduler.DecideLeaseUpdate(o.cmd, &d)
	o.outcome = &out
	s.batch.Outcome(&out)
	s.items = append(s.items, item{kind: commandItem, op: o})
}

// confirmLeaseUpdate decides a lease update once a majority has confirmed that this node leads, and
// all entries committed before are applied.
func (s *timerShard) confirmLeaseUpdate(o *op) {
	s.g.confirm(o.deadline, func(err error) {
		d := s.table.Due(o.cmd.Claim.Handle)
		switch {
		case err != nil:
			o.answer(timer.Result{}, err)
		case s.scheduler.Updatable(o.cmd, &d):
			s.waiting = append(s.waiting, o)
			s.g.w.touchNext(s.g)
		default:
			o.answer(s.scheduler.LeaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		}
	})
	s.g.w.touch(s.g)
}

// settleLeaseUpdate answers a lease update whose outcome was applied.
func (s *timerShard) settleLeaseUpdate(o *op, r *timer.Result) {
	if r.Code == timer.OK {
		s.scheduler.Updated(o.cmd)
		s.g.w.fired(o.cmd.Topic, o.outcome)
	}
	o.answer(s.scheduler.LeaseOver(o.cmd, *r), nil)
}
