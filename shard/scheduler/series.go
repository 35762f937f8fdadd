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
func (st *seriesTimes) again(h timer.Handle, startedMs int64) int64 {
	p, ok := st.table.Series(h)
	if !ok || p.Last {
		return 0
	}
	if p.StartedMs == 0 {
		p.StartedMs = startedMs
	}
	now := st.now.WallMs
	// A clock that was ahead called it, unless somebody asked for it early. A clock in doubt proves
	// nothing.
	ahead := p.DueMs > now+table.ClockAheadMs && !p.Asked && st.sure()
	if ahead && p.Repeat.CatchUp != timer.CatchUpAll {
		return timer.ClampMs(st.calendar.Nearest(&p.Repeat, p.DueMs, now))
	}
	return timer.ClampMs(st.calendar.Next(&p.Repeat, p.DueMs, min(p.StartedMs, now), now))
}

// missed reports whether an occurrence is late, and its series skips such ones. One that was held
// past its time is missed however late it is.
func (st *seriesTimes) missed(e entry, held bool) bool {
	if st.now.WallMs-e.dueMs <= missedAfterMs && !held {
		return false
	}
	t := st.table
	if !t.Live(e.handle, e.seq) {
		return false
	}
	d := t.Due(e.handle)
	if d.Rev != e.rev || d.State != timer.Scheduled || d.Attempts != 0 || d.AskedMs != 0 {
		return false
	}
	p, ok := t.Series(e.handle)
	return ok && p.Repeat.CatchUp == timer.CatchUpSkip && p.StartedMs == 0 && p.DueMs == d.NextMs
}

// skip has an occurrence skipped.
func (st *seriesTimes) skip(e entry) { st.skips = append(st.skips, e) }

// proposeSkips moves missed occurrences, and series scheduled by a wrong clock, to their next time.
func (st *seriesTimes) proposeSkips(b *table.Batch) {
	skips, realigns := st.skips[:min(len(st.skips), endBudget)], st.realigns[:min(len(st.realigns), endBudget)]
	for _, e := range skips {
		if p, ok := st.table.Series(e.handle); ok && st.table.Live(e.handle, e.seq) {
			b.Skip(e.handle, e.seq, e.rev, timer.ClampMs(st.calendar.Next(&p.Repeat, p.DueMs, 0, st.now.WallMs)))
			st.env.Proposed(Item{})
		}
	}
	for _, e := range realigns {
		b.Skip(e.handle, e.seq, e.rev, e.dueMs)
		st.env.Proposed(Item{})
	}
	st.skips, st.realigns = rest(st.env, st.skips, len(skips)), rest(st.env, st.realigns, len(realigns))
}

// overlap is an occurrence whose successor does not wait for its end.
type overlap struct {
	handle     timer.Handle
	seq, fence uint64
	nextMs     int64
}

// overlap schedules the next occurrence when one starts, if the series allows both to run.
func (st *seriesTimes) overlap(h timer.Handle, seq, fence uint64) {
	p, ok := st.table.Series(h)
	if !ok || p.Last || !p.Repeat.Overlap {
		return
	}
	nowMs := st.now.WallMs
	if next := timer.ClampMs(st.calendar.Next(&p.Repeat, p.DueMs, nowMs, nowMs)); next != 0 {
		st.overlaps = append(st.overlaps, overlap{h, seq, fence, next})
		st.env.WakeNext()
	}
}

// proposeOverlaps proposes these occurrences. A lost one is scheduled when the attempt ends, or the
// next attempt starts.
func (st *seriesTimes) proposeOverlaps(b *table.Batch) {
	overlaps := st.overlaps[:min(len(st.overlaps), endBudget)]
	for _, o := range overlaps {
		b.Overlap(o.handle, o.seq, o.fence, o.nextMs)
		st.env.Proposed(Item{})
	}
	st.overlaps = rest(st.env, st.overlaps, len(overlaps))
}

// seriesTimes computes occurrences, and is the leader's progress in correcting series that a wrong
// clock scheduled.
type seriesTimes struct {
	calendar  recurrence.Calendar
	realigned timer.Handle   // series up to this slot were checked after the clock was set back
	realigns  []entry        // to be moved; dueMs is the new time
	leased    []timer.Handle // to be checked again when their attempt, or their fired occurrence, has ended
	skips     []entry        // missed occurrences, to be proposed
	overlaps  []overlap      // to be proposed

	*leader
}

func newSeriesTimes(s *Scheduler) seriesTimes {
	return seriesTimes{calendar: recurrence.Calendar{Zones: s.cfg.Zones}, leader: &s.leader}
}

// followClock proposes the next step after the clock was set back: a tick, or that all series are
// corrected.
func (st *seriesTimes) followClock(b *table.Batch) {
	switch {
	case st.table.Restamping():
		b.Tick()
		st.env.WakeNext()
	case st.table.AwaitsSeries() && st.realigned == allRealigned && len(st.realigns)+len(st.leased) == 0 && st.sure():
		b.SeriesSeen()
		st.realigned = 0
	default:
		return
	}
	st.env.Proposed(Item{})
}

// rebase begins again after the clock was corrected: what a wrong clock decided is not proposed.
func (st *seriesTimes) rebase() { st.overlaps, st.realigned, st.leased = nil, 0, nil }

// realign walks the table once, in slices, after the clock was set back and the slots were
// restamped. A series that the wrong clock scheduled continues with its next occurrence from now.
// Left alone are timers that a client has changed since, perhaps to postpone them, and series that
// catch up with all: their skipped occurrences have run. An occurrence that is leased, or was fired
// by hand, ends first.
func (st *seriesTimes) realign() {
	t, now := st.table, st.now.WallMs
	if !t.AwaitsSeries() || st.realigned == allRealigned || !st.sure() {
		return
	}
	var done bool
	if st.realigned, done = st.inSlices(st.realigned, func(h timer.Handle, slots int) (timer.Handle, bool) {
		for last := min(h+timer.Handle(slots), t.LastHandle()); h < last; {
			h++
			st.realignOne(h, now)
		}
		return h, h >= t.LastHandle()
	}); done {
		st.realigned = allRealigned
	}
}

// realignOpen checks the series again that were leased during realign.
func (st *seriesTimes) realignOpen() {
	if len(st.leased) == 0 || !st.sure() {
		return
	}
	list := st.leased
	st.leased = nil
	for _, h := range list {
		st.realignOne(h, st.now.WallMs)
	}
	st.env.Wake()
}

func (st *seriesTimes) realignOne(h timer.Handle, now int64) {
	next := st.realignedTo(h, now)
	if next == 0 {
		return
	}
	if d := st.table.Due(h); d.State == timer.Leased || d.AskedMs != 0 {
		st.leased = append(st.leased, h)
	} else {
		st.realigns = append(st.realigns, entry{seq: d.Seq, handle: h, rev: d.Rev, dueMs: next})
	}
}

// realignedTo returns the corrected due time of an occurrence that a wrong clock scheduled; 0 if it
// needs none. It comes after the occurrence before it, if that has not ended: its time may be that
// of a client, and to come. A redriven one runs beside the series, and does not move it.
func (st *seriesTimes) realignedTo(h timer.Handle, now int64) int64 {
	p, ok := st.table.SeriesByRule(h)
	if !ok || p.Repeat.CatchUp == timer.CatchUpAll {
		return 0
	}
	from := now
	before := st.table.NextLive(h)
	for before != 0 && st.table.Redriven(before) {
		before = st.table.NextLive(before)
	}
	if before != 0 {
		from = max(from, st.table.Due(before).FirstMs)
	}
	if next := st.calendar.Nearest(&p.Repeat, p.DueMs, from); next < p.DueMs {
		return next
	}
	return 0
}
