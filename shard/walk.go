package shard

import "carillon/timer"

// walkSlots is how many slots a walk looks at in one turn of its group: about a fifth of a millisecond.
const walkSlots = 4096

// Walk takes the next step of a walk through all timers of one shard that a query selects: at most q.Limit of them, in no
// order that means anything. The query's order and After do not count.
//
// A walk meets each timer at most once, whatever becomes of its due time meanwhile, and ends, however many are added: it goes by
// slot, up to the slot and the number that were the last when it began. It meets every timer that is there, and selected, from
// before the walk until its step. The whole walk looks at each slot once, where a listing looks at all of them for each page.
func (h *Host) Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	w := h.newWalk(id, q, at)
	err = h.read(id, true, w.step)
	return w.refs, w.at, err
}

// walk is one step, which takes as many turns as it needs.
type walk struct {
	query timer.Query
	hides hides
	at    timer.ScanCursor
	refs  []timer.Ref
}

func (h *Host) newWalk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) *walk {
	w := &walk{query: *q, at: at}
	w.query.After, w.hides = nil, h.groups[id].scheduler.hides
	w.query.Limit = min(max(q.Limit, 1), timer.MaxScan)
	return w
}

func (w *walk) step(g *group, budget int) (done bool) {
	w.refs = g.table.step(&w.query, w.hides, &w.at, budget, w.query.Limit, w.refs)
	return len(w.refs) >= w.query.Limit || w.at.Done()
}

// step is walk for one that may begin here, and for no longer than suits a walk.
func (t *Table) step(q *timer.Query, hides hides, at *timer.ScanCursor, budget, limit int, marks []timer.Ref) []timer.Ref {
	if !at.Begun {
		*at = timer.ScanCursor{High: t.slab.high, Seq: t.seq, Begun: true}
	}
	return t.walk(q, hides, at, min(budget, walkSlots), limit, marks)
}

// walk looks at no more than budget slots and adds what is selected to marks, up to limit.
func (t *Table) walk(q *timer.Query, hides hides, at *timer.ScanCursor, budget, limit int, marks []timer.Ref) []timer.Ref {
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

func (t *Table) refOf(hides hides, h timer.Handle, s *slot) timer.Ref {
	v := t.view(s.ref)
	m := timer.Ref{ID: string(v.id), Version: v.version, DueMs: t.dueMs(s)}
	switch s.state() {
	case timer.Scheduled:
		m.NextMs = s.when()
	case timer.Leased:
		m.Leased = hides == nil || !hides(h)
		// A lease ahead of its time hides when the attempt is: the first is due, a later one within moments.
		if m.NextMs = m.DueMs; s.attempts() > 1 {
			m.NextMs = max(m.DueMs, t.clockMs)
		}
	}
	return m
}
