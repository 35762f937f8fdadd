package shard

import (
	"time"

	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/wheel"
)

// A leader that is sure of its wall clock sets the shard's own clock back where that ran ahead: an
// earlier leader's clock was wrong, and everybody who could have said so was wrong too, or there was
// nobody. Whatever was stamped by the wrong time would count as later than all that comes: it is
// stamped anew.

const (
	// clockAheadMs is by how much the shard's clock may be ahead of its leader's. Less passes by
	// itself: as far as this the clocks of two leaders may differ that both go by theirs.
	clockAheadMs = 2_000
	setClockEach = time.Second

	// restampsPerEntry is how many slots one entry goes through.
	restampsPerEntry = 4096
	// What Table.restamped says when it is no slot's number: there is nothing to do, or all slots were gone
	// through and the leader is to see to the series.
	noRestamp   timer.Handle = 1<<32 - 1
	seriesAwait timer.Handle = 1<<32 - 2
)

// seriesTimes is when series are due next, and how far a leader has come with those that were scheduled by a wrong time.
type seriesTimes struct {
	calendar  recurrence.Calendar
	realigned timer.Handle   // how far series were seen to after the clock was set back; seriesAwait: all were
	realigns  []entry        // dueMs: when they are due now
	leased    []timer.Handle // their next attempts would be as wrong
}

// entryMs is the time of the next entry. A leader that was never sure of its clock leaves the shard's as it is; one that was goes on
// from then by the boot clock. So no clock that is in doubt moves a shard's further than the time that has passed.
func (g *group) entryMs() int64 {
	if g.w.sure() || g.scheduler.knowsTime() {
		return g.w.now.WallMs
	}
	return g.table.ClockMs()
}

// proposeClock sets the shard's clock back, if need be, and sees to it that all stamps follow.
func (g *group) proposeClock() {
	ahead := g.table.ClockMs() - g.w.now.WallMs
	if ahead <= clockAheadMs || !g.w.sure() || g.w.now.Mono < g.setClockAt {
		g.scheduler.followClock(&g.batch)
		return
	}
	g.setClockAt = g.w.now.Mono + setClockEach
	g.w.host.cfg.Logger.Warn("the shard's clock is set back: an earlier leader's was wrong", "shard", uint32(g.id), "ahead_ms", ahead)
	g.batch.SetClock()
	g.scheduler.rebase()
	g.items = append(g.items, item{kind: silentItem})
}

// followClock has the next entry go on with what follows from a clock that was set back.
func (l *scheduler) followClock(b *Batch) {
	switch r := &l.series; {
	case l.table.restamped < seriesAwait:
		b.Tick()
		l.env.wakeNext()
	case l.table.restamped == seriesAwait && r.realigned == seriesAwait && len(r.realigns)+len(r.leased) == 0 && l.sure():
		b.SeriesSeen()
		r.realigned = 0
	default:
		return
	}
	l.env.proposed(silentItem, nil)
}

// rebase has what this leader decided by a wrong time, and has not proposed yet, count from now.
func (l *scheduler) rebase() {
	now := l.now.WallMs
	for i := range l.out.outcomes {
		if o := &l.out.outcomes[i]; o.EndedMs > now+clockAheadMs {
			late := o.EndedMs - now
			o.RetainUntilMs -= late
			if o.Kind == RetryLater {
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

// endBy has an attempt have ended by now, whatever the clock showed when it began; just now, if the end comes from its call itself.
func (a *Attempt) endBy(nowMs int64, justNow bool) {
	if late := a.EndedMs - nowMs; late > clockAheadMs || justNow && late < -endSlackMs {
		a.StartedMs, a.EndedMs = a.StartedMs-late, nowMs
	}
}

// realign walks the table once, in slices, after the clock was set back and the stamps were seen to: a series that was scheduled by the
// wrong time goes on with its next occurrence from now. One that was changed since it was made may have been put off by its owner, and
// one that catches up with all has had those before.
func (l *scheduler) realign() {
	t, now := l.table, l.now.WallMs
	if t.restamped != seriesAwait || l.series.realigned == seriesAwait || !l.sure() {
		return
	}
	for budget := scanBudget; l.series.realigned < t.slab.high; budget-- {
		if budget == 0 {
			l.env.wakeNext()
			return
		}
		l.series.realigned++
		l.realignOne(l.series.realigned, now)
	}
	l.series.realigned = seriesAwait
}

// realignOpen looks at those again whose calls were open.
func (l *scheduler) realignOpen() {
	if len(l.series.leased) == 0 || !l.sure() {
		return
	}
	list := l.series.leased
	l.series.leased = nil
	for _, h := range list {
		l.realignOne(h, l.now.WallMs)
	}
	l.env.wake()
}

func (l *scheduler) realignOne(h timer.Handle, now int64) {
	next := l.realignedTo(h, now)
	if next == 0 {
		return
	}
	if s := l.table.slab.at(h); s.state() == timer.Leased {
		l.series.leased = append(l.series.leased, h)
	} else {
		l.series.realigns = append(l.series.realigns, entry{seq: s.seq(), handle: h, rev: s.rev, dueMs: next})
	}
}

// realignedTo is when a timer's occurrence is due that was scheduled by a wrong time; 0: it was not.
func (l *scheduler) realignedTo(h timer.Handle, now int64) int64 {
	t := l.table
	s := t.slab.at(h)
	if s.state() != timer.Scheduled && s.state() != timer.Leased {
		return 0
	}
	if v := t.view(s.ref); v.flags&blobSeries == 0 || v.occurrence < 2 || v.version != 1 {
		return 0
	}
	p, ok := t.series(h)
	if !ok || p.repeat.CatchUp == timer.CatchUpAll {
		return 0
	}
	if next := l.series.calendar.Nearest(&p.repeat, p.dueMs, now); next < p.dueMs {
		return next
	}
	return 0
}

// setClock sets the table's clock back. A leader may propose it twice: the second finds the clock right.
func (t *Table) setClock(ms int64) {
	if t.clockMs <= ms {
		return
	}
	t.clockMs, t.restamped = ms, 0
	if int64(t.wheel.Now())-ms > clockAheadMs { // this replica went by the wrong time too
		t.wheel = wheel.New(wheel.Tick(ms))
	}
	for i := range t.closedTopics {
		t.closedSum -= t.closedTopics[i].hash()
		t.closedTopics[i].atMs = min(t.closedTopics[i].atMs, ms)
		t.closedSum += t.closedTopics[i].hash()
	}
}

// restamp goes through some more slots after the clock was set back: no stamp is to be later than now, and
// each timer is in the wheel again.
func (t *Table) restamp(budget int) {
	for ; t.restamped < seriesAwait && budget > 0; budget-- {
		if t.restamped >= t.slab.high {
			t.restamped = seriesAwait
			return
		}
		t.restamped++
		t.restampTimer(t.restamped)
		t.restore(t.restamped, t.slab.at(t.restamped))
	}
}

// restampTimer has nothing of a timer be later than now that has happened, and counts from now on what
// was counted from it: how long a dead letter stays, and how long the next attempt waits.
func (t *Table) restampTimer(h timer.Handle) {
	s := t.slab.at(h)
	if s.state() == 0 {
		return
	}
	now, v := t.clockMs, t.view(s.ref)
	made, ran, lent := max(v.createdMs, v.updatedMs, v.firstMs) > now, false, false
	if s.run != 0 {
		r := t.runs.at(s.run)
		ran = r.firedMs > now || s.state() != timer.Leased && r.nextEnd > now
		lent = s.state() == timer.Leased && (s.when() > now+int64(r.durMs) || r.nextEnd > max(r.dueMs, now))
		made = made || r.successor != 0 && t.view(r.successor).createdMs > now
	}
	if !made && !ran && !lent {
		return
	}
	s = t.beginUpdate(h)
	if made {
		s.ref = t.restampBlob(h, s.ref)
	}
	if s.run != 0 {
		t.restampRun(h, s)
	}
	t.endUpdate(h, s)
}

// restampBlob writes a blob of a touched timer anew.
func (t *Table) restampBlob(h timer.Handle, ref uint32) uint32 {
	v := t.view(ref)
	v.createdMs, v.updatedMs, v.firstMs = min(v.createdMs, t.clockMs), min(v.updatedMs, t.clockMs), min(v.firstMs, t.clockMs)
	t.targets.retain(v.target)
	next := t.putBlob(h, &v)
	t.dropBlob(h, ref)
	return next
}

func (t *Table) restampRun(h timer.Handle, s *slot) {
	now, r := t.clockMs, t.run(s)
	if r.successor != 0 {
		r.successor = t.restampBlob(h, r.successor)
	}
	fired := r.firedMs
	r.firedMs = min(fired, now)
	if due := max(r.dueMs, t.view(s.ref).createdMs); r.lateness > 0 && due+r.lateness > now {
		r.lateness = max(now-due, 0)
	}
	switch s.state() {
	case timer.Done, timer.Cancelled:
		r.nextEnd = min(r.nextEnd, now)
		s.setWhen(min(s.when(), now))
	case timer.Dead:
		if late := r.nextEnd - now; late > 0 {
			r.nextEnd = now
			t.transition(h, s, timer.Dead, s.when()-late)
		}
	case timer.Leased:
		r.nextEnd = min(r.nextEnd, max(r.dueMs, now)) // where a release takes it back to
		t.transition(h, s, timer.Leased, min(s.when(), now+int64(r.durMs)))
	case timer.Scheduled:
		if late := max(fired, r.nextEnd) - now; late > 0 && s.when() > r.dueMs {
			next := s.when() - late
			if next < r.dueMs {
				next = r.dueMs + 1 // see notBeforeDue
			}
			t.transition(h, s, timer.Scheduled, next)
		}
		r.nextEnd = min(r.nextEnd, now)
	}
}

// seriesSeen says that the leader has seen to all series.
func (t *Table) seriesSeen() {
	if t.restamped == seriesAwait {
		t.restamped = noRestamp
	}
}
