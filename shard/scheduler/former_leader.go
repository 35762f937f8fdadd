package scheduler

import (
	"slices"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/shard/table"
	"carillon/timer"
)

// A former leader reports to the new one how the calls that it started ended, and which of its
// leases it never used. So a change of leaders without a crash repeats no call, and no lease that
// is over is waited out. ../lease_update.go sends the reports.

// leaseReports sends the reports of this process's leases, and judges by those of others.
type leaseReports struct {
	unsent *order.Ring[*activeLease] // to be reported, once or again
	sent   *order.Ring[*activeLease] // reported since at was set
	at     time.Duration             // when to report these again; monotonic

	*leader
	leases *activeLeases
	limits *topicLimits
	out    *outcomes
}

func newLeaseReports(s *Scheduler) leaseReports {
	return leaseReports{
		unsent: new(order.Ring[*activeLease]), sent: new(order.Ring[*activeLease]), leader: &s.leader,
		leases: &s.Leases, limits: &s.limits, out: &s.Outcomes,
	}
}

// reportGrace is how long a report is repeated after it began and after the lease's end, in case
// no node led meanwhile.
const reportGrace = time.Minute

// reportAtLeast is how long a report is repeated even if the lease seems over: the entry that
// grants it may still be on its way.
const reportAtLeast = 3 * time.Second

// reportEvery is how often a former leader repeats a report until it sees that the lease is over.
const reportEvery = 200 * time.Millisecond

// begin starts to report how a call ended.
func (lr *leaseReports) begin(f *activeLease, a delivery.Outcome) {
	lr.leases.unseen.enter(f, reporting)
	f.attempt = a
	lr.limits.uncount(f)
	f.askedAt = lr.now.Mono
	f.report.Of = f
	lr.unsent.Push(&f.report)
	lr.send()
}

// repeat goes on with the reports, and repeats those of leases that are not known to be over.
func (lr *leaseReports) repeat() {
	if lr.active {
		return
	}
	if now := lr.now.Mono; lr.unsent.Len() == 0 && now >= lr.at {
		lr.at = now + reportEvery
		lr.unsent, lr.sent = lr.sent, lr.unsent
	}
	lr.send()
}

// reportSteps is what it costs to send a report, in steps of Env.Spent.
const reportSteps = 4

// send sends reports while the turn has time. repeat goes on.
func (lr *leaseReports) send() {
	now := lr.now.Mono
	for lr.unsent.Len() > 0 && !lr.env.Spent(reportSteps) {
		f := lr.unsent.First()
		late := now >= f.askedAt+reportGrace && lr.now.Lease >= f.leaseEnd+reportGrace
		if late || now >= f.askedAt+reportAtLeast && lr.isOver(f) {
			lr.leases.over(f)
			continue
		}
		f.report.Leave()
		lr.sent.Push(&f.report)
		lr.env.SendReport(lr.reportOf(f))
	}
}

// stop ends the reports, and returns their leases.
func (lr *leaseReports) stop() (list []*activeLease) {
	for _, all := range []*order.Ring[*activeLease]{lr.unsent, lr.sent} {
		for all.Len() > 0 {
			f := all.First()
			f.report.Leave()
			list = append(list, f)
		}
	}
	return list
}

// isOver reports that the table no longer has this lease, as this replica knows it. A replica that
// is gone, or whose table is older than the lease, does not know: there the leader's answer ends
// the report. A lease that was never seen applied had no call, and counts as over after
// reportAtLeast.
func (lr *leaseReports) isOver(f *activeLease) bool {
	t := lr.table
	if !lr.env.Present() || t.LastFence() < f.fence {
		return f.fence == 0
	}
	d := t.Due(f.handle)
	return !t.Live(f.handle, f.seq) || d.State != timer.Leased || d.Holder != table.ByCall || !lr.leases.granted(f, &d)
}

// Report is a former leader's report of how one of its leases ended.
type Report struct {
	Owner      table.Incarnation
	Handle     timer.Handle
	Seq, Fence uint64
	Rev        uint32
	Attempt    delivery.Outcome

	// The sender's alone: where it has no replica any more, they show which shard has the timer.
	Topic *timer.Topic // nil: that is not known
	ID    string       // "": that is not known
}

func (lr *leaseReports) reportOf(f *activeLease) *Report {
	if f.id == "" && lr.table.Live(f.handle, f.seq) {
		f.id = lr.table.ID(f.handle)
	}
	return &Report{Owner: lr.cfg.Owner, Handle: f.handle, Seq: f.seq, Fence: f.fence, Rev: f.rev, Attempt: f.attempt, Topic: f.queue.queue.topic, ID: f.id}
}

// Judge proposes the outcome in a report if the table has its lease. over: the lease is
// over, so the sender need not repeat the report.
func (lr *leaseReports) Judge(r *Report) (over bool) {
	if lr.left(r.Handle, r.Seq) {
		return false // the child's leader knows
	}
	h, a := r.Handle, &r.Attempt
	endBy(a, lr.now.WallMs, false)
	d := lr.table.Due(h)
	live := lr.table.Live(h, r.Seq) && d.State == timer.Leased && d.Holder == table.ByCall
	if r.Fence != 0 && r.Fence <= lr.table.LastFence() && !(live && d.Fence == r.Fence) {
		return true
	}
	if !live || !lr.out.CanJudge(h, &d) || lr.leases.calling(h, &d) != nil || lr.table.LeaseOwner(d.Fence) != r.Owner ||
		r.Fence != d.Fence && !(r.Fence == 0 && a.NotSent && d.Rev == r.Rev+1) {
		return false
	}
	out := lr.out.judge(h, &d, a, lr.random.Float64())
	lr.out.add(out, nil)
	if d.Topic != table.CanaryTopic && !a.NotSent {
		lr.env.Fired(d.Topic, &out)
	}
	lr.env.Wake()
	return false
}

// End ends this process's report of a lease that is over by the leader's word.
func (lr *leaseReports) End(h timer.Handle, fence uint64) {
	if f := lr.leases.byTimer[h]; f != nil && f.phase == reporting && f.fence == fence {
		lr.leases.over(f)
	}
}

// A shard's timers have left for its child (../division.go). To the child this process is a former
// leader: the child's scheduler on this node takes over what is known of their leases, and reports.
// No call is made again, and no limit forgets what it has lent.

// departure is what a scheduler hands over to the child's.
type departure struct {
	leases  []*activeLease
	carried []*carriedLease // consumers' leases that count at limits
	acked   acked
}

// Owner is the scheduler of the shard that has a timer now; nil: that is not known. topic and id
// are those that its lease has: nil and "" if that does not know them.
type Owner func(h timer.Handle, seq uint64, topic *timer.Topic, id string) *Scheduler

// Leave hands the leases of timers that have left over to the schedulers of their owners, or of the
// child where the owner is not known. A replica that was behind by several divisions gets their
// table at once, and so has several owners. Changes that wait for one of the leases continue. Cost:
// O(leases), and that of ReviewDropped.
func (s *Scheduler) Leave(child *Scheduler, owner Owner) {
	departures, order := map[*Scheduler]*departure{}, []*Scheduler{}
	to := func(next *Scheduler) *departure {
		if departures[next] == nil {
			departures[next] = &departure{acked: s.Consumers.acked.clone()}
			order = append(order, next)
		}
		return departures[next]
	}
	to(child)
	s.child = child
	where := func(h timer.Handle, seq uint64, topic *timer.Topic, id string) *Scheduler { // nil: it stays
		next := owner(h, seq, topic, id)
		if next == nil && s.left(h, seq) {
			next = child
		}
		if next == s {
			return nil
		}
		return next
	}
	for _, f := range inPhase(s.Leases.byTimer, proposed, held, started, ended, returned, reporting) {
		next := where(f.handle, f.seq, f.queue.queue.topic, f.id)
		if next == nil {
			continue
		}
		s.Leases.forget(f)
		s.Leases.releaseOps(f)
		switch f.phase {
		case proposed, held:
			f.permit.Cancel()
			f.phase, f.attempt = reporting, delivery.Outcome{NotSent: true}
		case returned:
			f.phase, f.attempt = reporting, delivery.Outcome{NotSent: true}
		case ended:
			f.phase = reporting
		}
		s.topics.landed(f.queue)
		f.queue = f.queue.ofAnother()
		s.Keys.freed(f)
		d := to(next)
		d.leases = append(d.leases, f)
		s.Leases.move(f, next)
	}
	s.limits.depart(where, func(next *Scheduler, c *carriedLease) { to(next).carried = append(to(next).carried, c) })
	s.Outcomes.leave()
	if s.active {
		s.Keys.ReviewDropped(0, 0)
	}
	for _, next := range order {
		departures[next].goTo(next)
	}
}

func (d *departure) goTo(next *Scheduler) {
	next.env.Post(func(stopped bool) {
		if !stopped {
			next.take(d)
		}
	})
}

// take takes over the leases that Leave hands over.
func (s *Scheduler) take(d *departure) {
	s.passOn(d)
	for _, f := range d.leases {
		if s.Leases.byTimer[f.handle] != nil { // a leader of the child, this one, has another
			s.limits.uncount(f)
			continue
		}
		s.Leases.keep(f)
		switch {
		case f.phase != reporting: // its call runs
		case s.active:
			s.Leases.ended(f, &f.attempt)
		default:
			s.Reports.begin(f, f.attempt)
		}
	}
	for _, c := range d.carried {
		s.limits.carryOver(c)
	}
	if s.Consumers.acked.set == nil {
		s.Consumers.acked = d.acked
	}
	s.env.Wake()
}

// passOn passes leases on to this shard's own child, if it has been divided since.
func (s *Scheduler) passOn(d *departure) {
	if s.child == nil {
		return
	}
	on := &departure{}
	d.leases = slices.DeleteFunc(d.leases, func(f *activeLease) bool {
		left := s.left(f.handle, f.seq)
		if left {
			on.leases = append(on.leases, f)
			s.Leases.move(f, s.child)
		}
		return left
	})
	d.carried = slices.DeleteFunc(d.carried, func(c *carriedLease) bool {
		left := s.left(c.handle, c.seq)
		if left {
			on.carried = append(on.carried, c)
		}
		return left
	})
	on.goTo(s.child)
}

// move notes where the end of a call goes that runs: it follows its lease.
func (al *activeLeases) move(f *activeLease, to *Scheduler) {
	if f.phase == started {
		al.moved[f] = to
	}
}

// endedElsewhere passes the end of a call on to the scheduler to which its lease has gone.
func (l *activeLease) endedElsewhere(next *Scheduler, a *delivery.Outcome) {
	end := *a
	next.env.Post(func(stopped bool) {
		if !stopped {
			next.Leases.ended(l, &end)
			next.env.Wake()
		}
	})
}

// leave drops the outcomes of foreign timers. Those of leases have left with these.
func (o *outcomes) leave() {
	o.outcomes = slices.DeleteFunc(o.outcomes, func(i outcomeItem) bool { return o.left(i.Handle, i.Seq) })
}

// depart stops counting the leases of timers that have left, and passes on those of consumers,
// which count where their timers are.
func (tl *topicLimits) depart(where Owner, pass func(*Scheduler, *carriedLease)) {
	for _, all := range []*carriedLeases{tl.carried, tl.carriedOver} {
		for range all.ring.Len() {
			c := all.ring.Rotate()
			next := where(c.handle, c.seq, nil, "")
			if next == nil {
				continue
			}
			all.drop(c)
			if c.until == 0 {
				c.limits.end(tl.now.Mono, 0, true)
				continue
			}
			pass(next, c)
		}
	}
}

// left reports whether a timer may have left for a child: it is foreign or, after any division,
// gone.
func (l *leader) left(h timer.Handle, seq uint64) bool {
	t := l.table
	return t.Foreign(h) || t.DividedOf() != 0 && !t.Live(h, seq)
}
