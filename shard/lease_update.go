package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// proposeLeaseUpdate decides what a claim comes to, and has it logged. A claim on a lease that is
// over is answered at once: what is applied is committed, so that can change no more. But one on a
// lease that this replica has not seen yet may be good: who was stopped for a while may not know
// that another leads, and has given it.
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
		o.answer(timer.Result{}, timer.ErrOverloaded) // it is good, and can be decided in a moment
		return
	}
	out := g.scheduler.DecideLeaseUpdate(o.cmd, &d)
	o.proposed, o.outcome = true, &out
	g.batch.Outcome(&out)
	g.items = append(g.items, item{kind: commandItem, op: o})
}

// confirmLeaseUpdate answers a claim once a majority has said that this node leads, and it has all
// that was committed until then.
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

// settleLeaseUpdate answers a claim whose outcome was applied.
func (g *group) settleLeaseUpdate(o *op, r *timer.Result) {
	if r.Code == timer.OK {
		g.scheduler.Updated(o.cmd)
		g.w.fired(o.cmd.Topic, o.outcome)
	}
	o.answer(g.scheduler.LeaseOver(o.cmd, *r), nil)
}
