package scheduler

import (
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// allRealigned is a handle beyond all slots: the leader has corrected all series after the clock
// was set back.
const allRealigned timer.Handle = 1<<32 - 1

const missedAfterMs = recurrence.MissedAfterMs

// again returns when the occurrence after the one that ends now is due; 0 if there is none.
// startedMs is the start of this attempt. Only the leader computes this, since it needs a clock and
// rules that may change; tables check the result and schedule it.
func (l *Scheduler) again(h timer.Handle, startedMs int64) int64 {
	s, ok := l.table.Series(h)
	if !ok || s.Last {
		return 0
	}
	if s.StartedMs == 0 {
		s.StartedMs = startedMs
	}
	now := l.now.WallMs
	// A clock that was ahead called it, unless somebody asked for it early. A clock in doubt proves
	// nothing.
	ahead := s.DueMs > now+table.ClockAheadMs && !s.Asked && l.sure()
	if ahead && s.Repeat.CatchUp != timer.CatchUpAll {
		return timer.ClampMs(l.series.calendar.Nearest(&s.Repeat, s.DueMs, now))
	}
	return timer.ClampMs(l.series.calendar.Next(&s.Repeat, s.DueMs, min(s.StartedMs, now), now))
}

// missed has a missed occurrence skipped, if its series says so, and reports whether it did.
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
	if d.Rev != e.rev || d.State != timer.Scheduled || d.Attempts != 0 || d.AskedMs != 0 {
		return false
	}
	s, ok := t.Series(e.handle)
	if !ok || s.Repeat.CatchUp != timer.CatchUpSkip || s.StartedMs != 0 || s.DueMs != d.NextMs {
		return false
	}
	l.out.skips = append(l.out.skips, e)
	return true
}

// proposeSkips moves missed occurrences, and series scheduled by a wrong clock, to their next time.
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

// overlap is an occurrence whose successor does not wait for its end.
type overlap struct {
	handle     timer.Handle
	seq, fence uint64
	nextMs     int64
}

// overlap schedules the next occurrence when one starts, if the series allows both to run.
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

// proposeOverlaps proposes these occurrences. A lost one is scheduled when the attempt ends, or the
// next attempt starts.
func (l *Scheduler) proposeOverlaps(b *table.Batch) {
	for _, o := range l.out.overlaps {
		b.Overlap(o.handle, o.seq, o.fence, o.nextMs)
		l.env.Proposed(Item{})
	}
	l.out.overlaps = l.out.overlaps[:0]
}

// seriesTimes computes occurrences, and is the leader's progress in correcting series that a wrong
// clock scheduled.
type seriesTimes struct {
	calendar  recurrence.Calendar
	realigned timer.Handle   // series up to this slot were checked after the clock was set back
	realigns  []entry        // to be moved; dueMs is the new time
	leased    []timer.Handle // to be checked again when their attempt, or their fired occurrence, has ended
}

// FollowClock proposes the next step after the clock was set back: a tick, or that all series are
// corrected.
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

// Rebase corrects outcomes that a wrong clock decided and that are not proposed yet: their times
// count from now. A series may also have been given its next time by that clock, or none, if its
// call ended by the right clock of a former leader.
func (l *Scheduler) Rebase() {
	now := l.now.WallMs
	for i := range l.out.outcomes {
		o := &l.out.outcomes[i]
		if late := o.EndedMs - now; late > table.ClockAheadMs {
			o.RetainUntilMs -= late
			if o.Kind == table.RetryLater {
				o.NextMs = l.notBeforeDue(o.Handle, o.NextMs-late)
			}
			o.StartedMs, o.EndedMs = min(o.StartedMs, now), now
		}
		if o.Kind == table.Ack || o.Kind == table.Kill {
			o.AgainMs = l.again(o.Handle, o.StartedMs)
		}
	}
	l.out.overlaps, l.series.realigned, l.series.leased = nil, 0, nil
}

// realign walks the table once, in slices, after the clock was set back and the slots were
// restamped. A series that the wrong clock scheduled goes on with its next occurrence from now.
// Left alone are timers that a client has changed since, perhaps to postpone them, and series that
// catch up with all: their skipped occurrences have run. An occurrence that is leased, or was fired
// by hand, ends first.
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

// realignOpen checks the series again that were leased during realign.
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
	if d := l.table.Due(h); d.State == timer.Leased || d.AskedMs != 0 {
		l.series.leased = append(l.series.leased, h)
	} else {
		l.series.realigns = append(l.series.realigns, entry{seq: d.Seq, handle: h, rev: d.Rev, dueMs: next})
	}
}

// realignedTo returns the corrected due time of an occurrence that a wrong clock scheduled; 0 if it
// needs none.
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
