package scheduler

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// A former leader reports to the new one how the calls that it started ended, and which of its
// leases it never used. So a change of leaders without a crash repeats no call, and no lease that
// is over is waited out. ../lease_report.go sends the reports.

// reportGrace is how long a report is repeated after the lease's end, in case no node led
// meanwhile.
const reportGrace = time.Minute

// reportAtLeast is how long a report is repeated even if the lease seems over: the entry that
// grants it may still be on its way.
const reportAtLeast = 3 * time.Second

// reportEach is how often a former leader repeats a report until it sees that the lease is over.
const reportEach = 200 * time.Millisecond

// report starts to report how a call ended.
func (l *Scheduler) report(f *activeLease, a delivery.Outcome) {
	f.phase, f.attempt = reporting, a
	l.uncount(f)
	f.until = l.now.Mono + max(f.leaseEnd-l.now.Lease, 0) + reportGrace
	f.askedAt = l.now.Mono
	l.env.SendReport(l.reportOf(f))
}

// reportAll repeats the reports of leases that are not known to be over.
func (l *Scheduler) reportAll() {
	now := l.now.Mono
	if l.active || len(l.leases.byTimer) == 0 || now < l.leases.reportAt {
		return
	}
	l.leases.reportAt = now + reportEach
	for _, h := range l.activeHandles() {
		f := l.leases.byTimer[h]
		if f.phase != reporting {
			continue
		}
		if now >= f.until || now >= f.askedAt+reportAtLeast && l.over(f) {
			l.settled(f)
			continue
		}
		l.env.SendReport(l.reportOf(f))
	}
}

// over reports that the table no longer has this lease, as far as this replica knows. A replica
// that is gone, or whose table is older than the lease, cannot tell: then the leader does
// (HearOver). A lease that was never seen applied had no call, and counts as over after
// reportAtLeast.
func (l *Scheduler) over(f *activeLease) bool {
	t := l.table
	if !l.env.Present() || t.LastFence() < f.fence {
		return f.fence == 0
	}
	d := t.Due(f.handle)
	return !t.Live(f.handle, f.seq) || d.State != timer.Leased || d.Holder != table.ByCall || !l.granted(f, &d)
}

// Report is a former leader's report of how one of its leases ended.
type Report struct {
	Owner      table.Incarnation
	Handle     timer.Handle
	Seq, Fence uint64
	Rev        uint32
	Attempt    delivery.Outcome
}

func (l *Scheduler) reportOf(f *activeLease) *Report {
	return &Report{Owner: l.cfg.Owner, Handle: f.handle, Seq: f.seq, Fence: f.fence, Rev: f.rev, Attempt: f.attempt}
}

// HearReport proposes the outcome in a report if the table has its lease. over tells the sender
// that the lease is over.
func (l *Scheduler) HearReport(r *Report) (over bool) {
	h, a := r.Handle, &r.Attempt
	endBy(a, l.now.WallMs, false)
	d := l.table.Due(h)
	live := l.table.Live(h, r.Seq) && d.State == timer.Leased && d.Holder == table.ByCall
	if r.Fence != 0 && r.Fence <= l.table.LastFence() && !(live && d.Fence == r.Fence) {
		return true
	}
	if !live || !l.canJudge(h, &d) || l.isActive(h, &d) || l.table.LeaseOwner(d.Fence) != r.Owner ||
		r.Fence != d.Fence && !(r.Fence == 0 && a.NotSent && d.Rev == r.Rev+1) {
		return false
	}
	out := l.judge(h, &d, a, l.random.Float64())
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, nil})
	if d.Topic != table.CanaryTopic && !a.NotSent {
		l.env.Fired(d.Topic, &out)
	}
	l.env.Wake()
	return false
}

// HearOver ends this process's report of a lease that the leader says is over.
func (l *Scheduler) HearOver(h timer.Handle, fence uint64) {
	if f := l.leases.byTimer[h]; f != nil && f.phase == reporting && f.fence == fence {
		l.settled(f)
	}
}
