package shard

import (
	"carillon/internal/delivery"
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

// SendReport reports the end of a lease to the group's leader.
func (e schedulerEnv) SendReport(p *scheduler.Report) {
	r := e.g
	to := r.leaderNode()
	// A removed replica, or one that was cut off when it was removed, learns of no leader. Its
	// reports go to the members in turn.
	if to == 0 && len(r.membership.row.Members) > 0 {
		e.reported++
		to = r.membership.row.Members[e.reported%len(r.membership.row.Members)].Node
	}
	if to == 0 || to == r.w.host.cfg.Node {
		return
	}
	o := r.w.open(to, reportMessage, r.shard, 0)
	body := len(o.frame)
	o.frame = appendReport(o.frame, p)
	o.close(r.w, body)
}

// leaderNode returns the node that leads the group, by what this node knows; 0: none.
func (r *replica) leaderNode() uint64 {
	if r.raft == nil {
		return 0
	}
	return nodeOf(r.raft.BasicStatus().Lead)
}

// Flags of a report.
const (
	reportNotSent = 1 << iota
	reportRefused

	reportBits = 1<<iota - 1
)

func appendReport(b []byte, p *scheduler.Report) []byte {
	a := &p.Attempt
	bits := encoding.Flag(a.NotSent, reportNotSent) | encoding.Flag(a.Refused, reportRefused)
	b = append(b, bits)
	b = encoding.AppendUvarints(b, uint64(p.Owner), uint64(p.Handle), p.Seq, p.Fence, uint64(p.Rev), uint64(a.Status))
	b = encoding.AppendVarints(b, a.RetryAfterMs, a.StartedMs, a.EndedMs)
	return encoding.AppendError(b, a.Err, a.Answer)
}

// receiveReport passes a former leader's report to the scheduler. If the lease is already over, it
// informs the sender, which then stops reporting.
func (s *timerShard) receiveReport(from uint64, body []byte) {
	if !s.g.serving || len(body) == 0 || body[0]&^reportBits != 0 {
		return
	}
	r := encoding.Reader{Rest: body[1:]}
	p := scheduler.Report{Owner: table.Incarnation(r.Uvarint()), Handle: timer.Handle(r.Number(1<<32-1, "handle")), Seq: r.Uvarint(), Fence: r.Uvarint(), Rev: uint32(r.Uvarint())}
	p.Attempt = delivery.Outcome{NotSent: body[0]&reportNotSent != 0, Refused: body[0]&reportRefused != 0, Status: int(r.Number(1<<16-1, "status"))}
	p.Attempt.RetryAfterMs, p.Attempt.StartedMs, p.Attempt.EndedMs = r.Varint(), r.Varint(), r.Varint()
	p.Attempt.Err, p.Attempt.Answer = r.Failure()
	if r.Err() == nil && s.scheduler.Reports.Judge(&p) {
		s.sendLeaseOver(from, p.Owner, p.Handle, p.Fence)
	}
}

// sendLeaseOver answers a report: the lease is over. Leases never come back, so the answer is true even
// if another replica leads by now.
func (s *timerShard) sendLeaseOver(to uint64, owner table.Incarnation, h timer.Handle, fence uint64) {
	o := s.g.w.open(to, overMessage, s.g.shard, 0)
	body := len(o.frame)
	o.frame = encoding.AppendUvarints(o.frame, uint64(owner), uint64(h), fence)
	o.close(s.g.w, body)
}

// receiveLeaseOver ends a report of this process. After its replica was removed, this process has no table
// to see the end of the lease in.
func (s *timerShard) receiveLeaseOver(body []byte) {
	r := encoding.Reader{Rest: body}
	owner, h, fence := table.Incarnation(r.Uvarint()), timer.Handle(r.Number(1<<32-1, "handle")), r.Uvarint()
	if r.Close() != nil || owner != s.g.w.host.cfg.Incarnation {
		return
	}
	s.scheduler.Reports.End(h, fence)
}
