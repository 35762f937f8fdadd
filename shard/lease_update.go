package shard

import (
	"math"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/encoding"
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
	if !s.scheduler.Consumers.Updatable(o.cmd, &d) {
		if c.Fence > s.table.LastFence() {
			s.confirmLeaseUpdate(o)
			return
		}
		o.answer(s.scheduler.Consumers.LeaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		return
	}
	if early && o.cmd.Kind != timer.AckLease && s.scheduler.Consumers.AwaitAnswer(o, c.Handle, &d) {
		return
	}
	if !s.scheduler.Outcomes.CanJudge(c.Handle, &d) {
		// The update is valid, and a node that knows the topic and the zone can decide it.
		o.answer(timer.Result{}, timer.ErrOverloaded)
		return
	}
	out := s.scheduler.Consumers.Decide(o.cmd, &d)
	o.outcome = &out
	s.scheduler.Outcomes.ProposeOutcome(&s.batch, &out)
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
		case s.scheduler.Consumers.Updatable(o.cmd, &d):
			s.waiting = append(s.waiting, o)
			s.g.w.touchNext(s.g)
		default:
			o.answer(s.scheduler.Consumers.LeaseOver(o.cmd, timer.Result{Code: timer.Skipped}), nil)
		}
	})
	s.g.w.touch(s.g)
}

func (s *timerShard) answerLeaseUpdate(o *op, r *timer.Result) {
	if r.Code == timer.OK {
		s.scheduler.Consumers.Updated(o.cmd)
		s.g.w.fired(o.cmd.Topic, o.outcome)
	}
	o.answer(s.scheduler.Consumers.LeaseOver(o.cmd, *r), nil)
}

// A former leader reports to its successor how its leases ended: see scheduler/report.go.

// SendReport reports the end of a lease to the leader of the group that has the timer. Where the
// group's replica was removed, the timer may have left it unseen: then that is a child's.
func (e schedulerEnv) SendReport(p *scheduler.Report) {
	h := e.g.w.host
	if of := int(h.known.Load()); e.g.raft == nil && p.Topic != nil && p.ID != "" && of > 0 {
		if id := timer.ShardOf(p.Topic, p.ID, of); id != e.g.shard {
			h.group(id).w.box.post(&strayReport{h.shard(id), p})
			return
		}
	}
	sendReport(e.timerShard, p)
}

// strayReport is a report for the leader of another group than that of the lease.
type strayReport struct {
	to *timerShard
	*scheduler.Report
}

func (s *strayReport) handle(w *worker) {
	r, founded := s.to.g, timer.ShardID(w.host.founded.Load())
	switch {
	case s.to.g.serving:
		s.to.scheduler.Reports.Judge(s.Report)
	case r.membership.row.Group == 0 && founded != 0 && r.shard > founded:
		// It is not placed yet: its parent has the timer.
		parent := w.host.shard(r.shard - founded)
		parent.g.w.box.post(&strayReport{parent, s.Report})
	default:
		sendReport(s.to, s.Report)
	}
}

func sendReport(s *timerShard, p *scheduler.Report) {
	r := s.g
	to := r.leaderNode()
	// A removed replica, or one that was cut off when it was removed, learns of no leader. Its
	// reports go to the members in turn.
	if to == 0 && len(r.membership.row.Members) > 0 {
		s.reported++
		to = r.membership.row.Members[s.reported%len(r.membership.row.Members)].Node
	}
	if to == 0 || to == r.w.host.cfg.Node {
		return
	}
	r.w.addMessage(to, reportMessage, r.shard, 0, func(frame []byte) []byte { return appendReport(frame, p) })
}

// leaderNode returns the node that leads the group, by what this node knows; 0: none.
func (r *replica) leaderNode() uint64 {
	if r.raft == nil {
		return 0
	}
	return nodeOf(r.raft.BasicStatus().Lead)
}

func appendReport(b []byte, p *scheduler.Report) []byte {
	c := encoding.Codec{Out: b}
	reportFields(&c, p)
	return c.Out
}

func reportFields(c *encoding.Codec, p *scheduler.Report) {
	a := &p.Attempt
	c.Flags("a report", &a.NotSent, &a.Refused)
	encoding.Number(c, &p.Owner, math.MaxUint64, "owner")
	encoding.Uint32(c, &p.Handle, "handle")
	c.Uvarints(&p.Seq, &p.Fence)
	encoding.Uint32(c, &p.Rev, "revision")
	encoding.Number(c, &a.Status, 1<<16-1, "status")
	encoding.Signed(c, &a.RetryAfterMs, &a.StartedMs, &a.EndedMs)
	c.Failure(&a.Err, &a.Answer)
}

// receiveReport passes a former leader's report to the scheduler. If the lease is already over, it
// informs the sender, which then stops reporting.
func (s *timerShard) receiveReport(from uint64, body []byte) {
	if !s.g.serving {
		return
	}
	c, p := encoding.Reading(body), new(scheduler.Report)
	if reportFields(&c, p); c.Err() == nil && s.scheduler.Reports.Judge(p) {
		s.sendLeaseOver(from, p.Owner, p.Handle, p.Fence)
	}
}

// sendLeaseOver answers a report: the lease is over. Leases never come back, so the answer is true
// even if another replica leads by now.
func (s *timerShard) sendLeaseOver(to uint64, owner table.Incarnation, h timer.Handle, fence uint64) {
	s.g.w.addMessage(to, overMessage, s.g.shard, 0, func(frame []byte) []byte {
		return encoding.AppendUvarints(frame, uint64(owner), uint64(h), fence)
	})
}

// receiveLeaseOver ends a report of this process. After its replica was removed, this process has
// no table to see the end of the lease in.
func (s *timerShard) receiveLeaseOver(body []byte) {
	r := encoding.Reader{Rest: body}
	owner, h, fence := table.Incarnation(r.Uvarint()), timer.Handle(r.Number(1<<32-1, "handle")), r.Uvarint()
	if r.Close() != nil || owner != s.g.w.host.cfg.Incarnation {
		return
	}
	s.scheduler.Reports.End(h, fence)
}
