package shard

import "carillon/timer"

// missedAfterMs is how late a leader finds an occurrence that counts as missed: later than any hand-over makes it.
const missedAfterMs = 10_000

// again is when the occurrence after this one is due, which ends now; 0: there is none. startedMs is the start of this attempt.
// The leader decides it, as everything that needs a clock and rules that may change: tables only check and schedule.
func (l *scheduler) again(h timer.Handle, startedMs int64) int64 {
	s, ok := l.table.series(h)
	if !ok || s.last {
		return 0
	}
	if s.startedMs == 0 {
		s.startedMs = startedMs
	}
	now := l.now.WallMs
	ahead := s.dueMs > now+clockAheadMs && l.sure() // it was called by a clock that was; one in doubt does not say so
	if ahead && s.repeat.CatchUp != timer.CatchUpAll {
		return timer.ClampMs(l.series.calendar.Nearest(&s.repeat, s.dueMs, now))
	}
	return timer.ClampMs(l.series.calendar.Next(&s.repeat, s.dueMs, min(s.startedMs, now), now))
}

// missed takes an occurrence that nobody made in time out of the way, where the series says so. It reports that it did.
func (l *scheduler) missed(e entry) bool {
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
	s, ok := t.series(e.handle)
	if !ok || s.repeat.CatchUp != timer.CatchUpSkip || s.startedMs != 0 || s.dueMs != d.NextMs {
		return false
	}
	l.out.skips = append(l.out.skips, e)
	return true
}

// proposeSkips has missed occurrences moved on to their next.
func (l *scheduler) proposeSkips(b *Batch) {
	for _, e := range l.out.skips {
		if s, ok := l.table.series(e.handle); ok && l.table.Live(e.handle, e.seq) {
			b.Skip(e.handle, e.seq, e.rev, timer.ClampMs(l.series.calendar.Next(&s.repeat, s.dueMs, 0, l.now.WallMs)))
			l.env.proposed(silentItem, nil)
		}
	}
	for _, e := range l.series.realigns {
		b.Skip(e.handle, e.seq, e.rev, e.dueMs)
		l.env.proposed(silentItem, nil)
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
func (l *scheduler) overlap(h timer.Handle, seq, fence uint64) {
	s, ok := l.table.series(h)
	if !ok || s.last || !s.repeat.Overlap {
		return
	}
	nowMs := l.now.WallMs
	if next := timer.ClampMs(l.series.calendar.Next(&s.repeat, s.dueMs, nowMs, nowMs)); next != 0 {
		l.out.overlaps = append(l.out.overlaps, overlap{h, seq, fence, next})
		l.env.wakeNext()
	}
}

// proposeOverlaps has them scheduled. One that is lost is scheduled when the attempt ends, or the next starts.
func (l *scheduler) proposeOverlaps(b *Batch) {
	for _, o := range l.out.overlaps {
		b.Overlap(o.handle, o.seq, o.fence, o.nextMs)
		l.env.proposed(silentItem, nil)
	}
	l.out.overlaps = l.out.overlaps[:0]
}
