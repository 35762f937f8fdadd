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
func (g *group) proposeLeaseUpdate(o *op) {
	c := o.cmd.Claim
	d := g.table.Due(c.Handle)
	early := d.Holder == table.ByCall
	if !g.scheduler.Updatable(o.cmd, &d) {
		if c.Fence > g.table.LastFence() {
			g.confirmLeaseUpdate(o)
			return
		}
		o.answer(g.scheduler.LeaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		return
	}
	if early && o.cmd.Kind != timer.AckLease && g.scheduler.AwaitAnswer(o, c.Handle, &d) {
		return
	}
	if !g.scheduler.HasZone(c.Handle, &d) {
		// The update is valid, and a node that knows the zone can decide it.
		o.answer(timer.Result{}, timer.ErrOverloaded)
		return
	}
	out := g.scheduler.DecideLeaseUpdate(o.cmd, &d)
	o.outcome = &out
	g.batch.Outcome(&out)
	g.items = append(g.items, item{kind: commandItem, op: o})
}

// confirmLeaseUpdate decides a lease update once a majority has confirmed that this node leads, and
// all entries committed before are applied.
func (g *group) confirmLeaseUpdate(o *op) {
	g.confirm(o.deadline, func(err error) {
		d := g.table.Due(o.cmd.Claim.Handle)
		switch {
		case err != nil:
			o.answer(timer.Result{}, err)
		case g.scheduler.Updatable(o.cmd, &d):
			g.waiting = append(g.waiting, o)
			g.w.touchNext(g)
		default:
			o.answer(g.scheduler.LeaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		}
	})
	g.w.touch(g)
}

// settleLeaseUpdate answers a lease update whose outcome was applied.
func (g *group) settleLeaseUpdate(o *op, r *timer.Result) {
	if r.Code == timer.OK {
		g.scheduler.Updated(o.cmd)
		g.w.fired(o.cmd.Topic, o.outcome)
	}
	o.answer(g.scheduler.LeaseOver(o.cmd, *r), nil)
}
