package scheduler

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// A leader that is not one any more tells the new one how the calls ended that it had started, and
// which of its leases were never used. So a change of leaders without a crash makes no call twice,
// and nobody waits for leases that are over. See report.go for how that is sent.

// reportGrace is how long a report goes on beyond the lease, in case that nobody led meanwhile.
const reportGrace = time.Minute

// reportAtLeast is how long a report is repeated even if the lease seems to be over: the entry that
// took it may still be on its way.
const reportAtLeast = 3 * time.Second

// reportEach is how often a former leader repeats how a call ended, until it sees that the lease is
// over.
const reportEach = 200 * time.Millisecond

// report begins to tell how a call ended.
func (l *Scheduler) report(f *activeLease, a Attempt) {
	f.phase, f.attempt = reporting, a
	l.uncount(f)
	f.until = l.now.Mono + max(f.leaseEnd-l.now.Lease, 0) + reportGrace
	f.askedAt = l.now.Mono
	l.env.SendReport(l.reportOf(f))
}

// reportAll repeats what has not been heard.
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

// over reports that the lease is not the active lease's any more, as far as this replica knows. One
// that is gone, or was made anew and is not as far as the lease, knows nothing: then a leader says
// so. A lease that was never seen applied had no call, and has been given back often enough.
func (l *Scheduler) over(f *activeLease) bool {
	t := l.table
	if !l.env.Present() || t.LastFence() < f.fence {
		return f.fence == 0
	}
	d := t.Due(f.handle)
	return !t.Live(f.handle, f.seq) || d.State != timer.Leased || d.Holder != table.ByCall || !l.granted(f, &d)
}

// Report is a former leader's word on how a lease of its ended.
type Report struct {
	Owner      table.Incarnation
	Handle     timer.Handle
	Seq, Fence uint64
	Rev        uint32
	Attempt    Attempt
}

func (l *Scheduler) reportOf(f *activeLease) *Report {
	return &Report{Owner: l.cfg.Owner, Handle: f.handle, Seq: f.seq, Fence: f.fence, Rev: f.rev, Attempt: f.attempt}
}

// HearReport takes it over, if the lease is the one that the table has. It says whether that lease
// is over, as the sender is to know.
func (l *Scheduler) HearReport(r *Report) (over bool) {
	h, a := r.Handle, &r.Attempt
	a.endBy(l.now.WallMs, false)
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

// HearOver ends this process's own report on a lease.
func (l *Scheduler) HearOver(h timer.Handle, fence uint64) {
	if f := l.leases.byTimer[h]; f != nil && f.phase == reporting && f.fence == fence {
		l.settled(f)
	}
}
