package table

import "carillon/timer"

// walkSlots is how many slots a walk looks at in one turn of its group: about a fifth of a
// millisecond.
const walkSlots = 4096

// Walk is walk for one that may begin here, and for no longer than suits a walk.
func (t *Table) Walk(q *timer.Query, hides Hides, at *timer.ScanCursor, budget, limit int, marks []timer.Ref) []timer.Ref {
	if !at.Begun {
		*at = timer.ScanCursor{High: t.slab.high, Seq: t.seq, Begun: true}
	}
	return t.walk(q, hides, at, min(budget, walkSlots), limit, marks)
}

// walk looks at no more than budget slots and adds what is selected to marks, up to limit.
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
	m := timer.Ref{ID: string(v.id), Version: v.version, DueMs: t.dueMs(s)}
	switch s.state() {
	case timer.Scheduled:
		m.NextMs = s.when()
	case timer.Leased:
		m.Leased = hides == nil || !hides(h)
		// A lease ahead of its time hides when the attempt is: the first is due, a later one within
		// moments.
		if m.NextMs = m.DueMs; s.attempts() > 1 {
			m.NextMs = max(m.DueMs, t.clockMs)
		}
	}
	return m
}
