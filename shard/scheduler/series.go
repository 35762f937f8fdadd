package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// allRealigned is no slot's number: after the clock was set back the leader has seen to all series.
const allRealigned timer.Handle = 1<<32 - 1

// missedAfterMs is how late a leader finds an occurrence that counts as missed: later than any
// hand-over makes it.
const missedAfterMs = 10_000

// again is when the occurrence after this one is due, which ends now; 0: there is none. StartedMs
// is the start of this attempt. The leader decides it, as everything that needs a clock and rules
// that may change: tables only check and schedule.
func (l *Scheduler) again(h timer.Handle, startedMs int64) int64 {
	s, ok := l.table.Series(h)
	if !ok || s.Last {
		return 0
	}
	if s.StartedMs == 0 {
		s.StartedMs = startedMs
	}
	now := l.now.WallMs
	ahead := s.DueMs > now+table.ClockAheadMs && l.sure() // it was called by a clock that was; one in doubt does not say so
	if ahead && s.Repeat.CatchUp != timer.CatchUpAll {
		return timer.ClampMs(l.series.calendar.Nearest(&s.Repeat, s.DueMs, now))
	}
	return timer.ClampMs(l.series.calendar.Next(&s.Repeat, s.DueMs, min(s.StartedMs, now), now))
}

// missed takes an occurrence that nobody made in time out of the way, where the series says so. It
// reports that it did.
func (l *Scheduler) missed(e entry) bool {
	nowMs := l.now.WallMs
	if nowMs-e.dueMs <= missedAfterMs {
		return false
	}
	t := l.table
	if !t.Live(e.handle, e.seq) {
		return false
	}
	d := t.Due(e.handle)
	if d.Rev != e.rev || d.State != timer.Scheduled || d.Attempts != 0 {
		return false
	}
	s, ok := t.Series(e.handle)
	if !ok || s.Repeat.CatchUp != timer.CatchUpSkip || s.StartedMs != 0 || s.DueMs != d.NextMs {
		return false
	}
	l.out.skips = append(l.out.skips, e)
	return true
}

// proposeSkips has missed occurrences moved on to their next.
func (l *Scheduler) proposeSkips(b *table.Batch) {
	for _, e := range l.out.skips {
		if s, ok := l.table.Series(e.handle); ok && l.table.Live(e.handle, e.seq) {
			b.Skip(e.handle, e.seq, e.rev, timer.ClampMs(l.series.calendar.Next(&s.Repeat, s.DueMs, 0, l.now.WallMs)))
			l.env.Proposed(Item{})
		}
	}
	for _, e := range l.series.realigns {
		b.Skip(e.handle, e.seq, e.rev, e.dueMs)
		l.env.Proposed(Item{})
	}
	l.out.skips, l.series.realigns = l.out.skips[:0], l.series.realigns[:0]
}

// overlap is an occurrence whose next does not wait for its end.
type overlap struct {
	handle     timer.Handle
	seq, fence uint64
	nextMs     int64
}

// overlap has the next occurrence scheduled beside one that starts, where the series says so.
func (l *Scheduler) overlap(h timer.Handle, seq, fence uint64) {
	s, ok := l.table.Series(h)
	if !ok || s.Last || !s.Repeat.Overlap {
		return
	}
	nowMs := l.now.WallMs
	if next := timer.ClampMs(l.series.calendar.Next(&s.Repeat, s.DueMs, nowMs, nowMs)); next != 0 {
		l.out.overlaps = append(l.out.overlaps, overlap{h, seq, fence, next})
		l.env.WakeNext()
	}
}

// proposeOverlaps has them scheduled. One that is lost is scheduled when the attempt ends, or the
// next starts.
func (l *Scheduler) proposeOverlaps(b *table.Batch) {
	for _, o := range l.out.overlaps {
		b.Overlap(o.handle, o.seq, o.fence, o.nextMs)
		l.env.Proposed(Item{})
	}
	l.out.overlaps = l.out.overlaps[:0]
}

// seriesTimes is when series are due next, and how far a leader has come with those that were
// scheduled by a wrong time.
type seriesTimes struct {
	calendar  recurrence.Calendar
	realigned timer.Handle   // how far series were seen to after the clock was set back; allRealigned: all were
	realigns  []entry        // DueMs: when they are due now
	leased    []timer.Handle // their next attempts would be as wrong
}

// FollowClock has the next entry go on with what follows from a clock that was set back.
func (l *Scheduler) FollowClock(b *table.Batch) {
	switch r := &l.series; {
	case l.table.Restamping():
		b.Tick()
		l.env.WakeNext()
	case l.table.AwaitsSeries() && r.realigned == allRealigned && len(r.realigns)+len(r.leased) == 0 && l.sure():
		b.SeriesSeen()
		r.realigned = 0
	default:
		return
	}
	l.env.Proposed(Item{})
}

// Rebase has what this leader decided by a wrong time, and has not proposed yet, count from now.
func (l *Scheduler) Rebase() {
	now := l.now.WallMs
	for i := range l.out.outcomes {
		if o := &l.out.outcomes[i]; o.EndedMs > now+table.ClockAheadMs {
			late := o.EndedMs - now
			o.RetainUntilMs -= late
			if o.Kind == table.RetryLater {
				o.NextMs = l.notBeforeDue(o.Handle, o.NextMs-late)
			}
			o.StartedMs, o.EndedMs = min(o.StartedMs, now), now
			if o.AgainMs != 0 {
				o.AgainMs = l.again(o.Handle, o.StartedMs)
			}
		}
	}
	l.out.overlaps, l.series.realigned, l.series.leased = nil, 0, nil
}

// realign walks the table once, in slices, after the clock was set back and the stamps were seen
// to: a series that was scheduled by the wrong time goes on with its next occurrence from now. One
// that was changed since it was made may have been put off by its owner, and one that catches up
// with all has had those before.
func (l *Scheduler) realign() {
	t, now := l.table, l.now.WallMs
	if !t.AwaitsSeries() || l.series.realigned == allRealigned || !l.sure() {
		return
	}
	for budget := scanBudget; l.series.realigned < t.LastHandle(); budget-- {
		if budget == 0 {
			l.env.WakeNext()
			return
		}
		l.series.realigned++
		l.realignOne(l.series.realigned, now)
	}
	l.series.realigned = allRealigned
}

// realignOpen looks at those again whose calls were open.
func (l *Scheduler) realignOpen() {
	if len(l.series.leased) == 0 || !l.sure() {
		return
	}
	list := l.series.leased
	l.series.leased = nil
	for _, h := range list {
		l.realignOne(h, l.now.WallMs)
	}
	l.env.Wake()
}

func (l *Scheduler) realignOne(h timer.Handle, now int64) {
	next := l.realignedTo(h, now)
	if next == 0 {
		return
	}
	if d := l.table.Due(h); d.State == timer.Leased {
		l.series.leased = append(l.series.leased, h)
	} else {
		l.series.realigns = append(l.series.realigns, entry{seq: d.Seq, handle: h, rev: d.Rev, dueMs: next})
	}
}

// realignedTo is when a timer's occurrence is due that was scheduled by a wrong time; 0: it was
// not.
func (l *Scheduler) realignedTo(h timer.Handle, now int64) int64 {
	p, ok := l.table.SeriesByRule(h)
	if !ok || p.Repeat.CatchUp == timer.CatchUpAll {
		return 0
	}
	if next := l.series.calendar.Nearest(&p.Repeat, p.DueMs, now); next < p.DueMs {
		return next
	}
	return 0
}
