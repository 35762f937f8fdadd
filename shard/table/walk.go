package table

import "carillon/timer"

// walkSlots is the most slots that Walk visits in one step of its group, which takes about 0.2 ms.
const walkSlots = 4096

// Walk appends references of selected timers to marks and moves the cursor, which it starts if it
// is new. It visits at most budget and at most walkSlots slots, and stops at limit marks.
func (t *Table) Walk(q *timer.Query, hides Hides, at *timer.ScanCursor, budget, limit int, marks []timer.Ref) []timer.Ref {
	if !at.Begun {
		*at = timer.ScanCursor{High: t.slab.high, Seq: t.seq, Begun: true}
	}
	return t.walk(q, hides, at, min(budget, walkSlots), limit, marks)
}

// walk visits at most budget slots and appends selected timers to marks, up to limit.
func (t *Table) walk(q *timer.Query, hides Hides, at *timer.ScanCursor, budget, limit int, marks []timer.Ref) []timer.Ref {
	row, ok := t.topics.rowOf[q.Topic]
	high := min(at.High, t.slab.high)
	if !ok || at.From >= high {
		at.From = at.High
		return marks
	}
	for ; budget > 0 && at.From < high && len(marks) < limit; budget-- {
		at.From++
		s := t.slab.at(at.From)
		if s.topic != row || s.state() == 0 || s.seq() > at.Seq || !wants(q, hides, at.From, s) {
			continue
		}
		if _, ok := t.selects(q, s); ok {
			marks = append(marks, t.refOf(hides, at.From, s))
		}
	}
	if at.From >= high {
		at.From = at.High
	}
	return marks
}

func (t *Table) refOf(hides Hides, h timer.Handle, s *slot) timer.Ref {
	v := t.view(s.ref)
	m := timer.Ref{ID: string(v.id), Seq: s.seq(), Tag: v.tag, Version: v.version, DueMs: t.dueMs(s)}
	switch s.state() {
	case timer.Scheduled:
		m.NextMs = s.when()
	case timer.Leased:
		m.Leased = hides == nil || !hides(h)
		m.NextMs = t.runs.at(s.run).attemptDueMs()
	case timer.Dead:
		m.NoURL = !t.ownURL(s)
	}
	return m
}
