package shard

import "context"

// Waypoint is how far a walk has come. The zero value is the beginning. It is good on every replica: a timer keeps its
// slot for life, and all replicas give a timer the same one.
type Waypoint struct {
	From  Handle // slots up to this one are behind
	High  Handle // and these are all that there were at the first step
	Seq   uint64 // timers with a higher number came after the first step
	Begun bool
}

// Mark is what a walk says of a timer: enough to judge it, and to change just what was seen.
type Mark struct {
	ID      string
	Version uint32
	Leased  bool  // a call has started; one that is leased ahead of its time is not
	DueMs   int64 // as clients see it
	NextMs  int64 // when its next attempt is, if it is scheduled
}

// walkSlots is how many slots a walk looks at in one turn of its group: about a fifth of a millisecond.
const walkSlots = 4096

// Walk takes the next step of a walk through all timers of one shard that a query selects: at most q.Limit of them, in no
// order that means anything. The query's order and After do not count.
//
// A walk meets each timer at most once, whatever becomes of its due time meanwhile, and ends, however many are added: it goes by
// slot, up to the slot and the number that were the last when it began. It meets every timer that is there, and selected, from
// before the walk until its step. The whole walk looks at each slot once, where a listing looks at all of them for each page.
func (h *Host) Walk(_ context.Context, id ID, q *Query, at Waypoint) (marks []Mark, next Waypoint, err error) {
	w := h.newWalk(id, q, at)
	err = h.read(id, true, w.step)
	return w.marks, w.at, err
}

// walk is one step, which takes as many turns as it needs.
type walk struct {
	query Query
	at    Waypoint
	marks []Mark
}

func (h *Host) newWalk(id ID, q *Query, at Waypoint) *walk {
	w := &walk{query: *q, at: at}
	w.query.After, w.query.hides = nil, h.groups[id].hides
	w.query.Limit = min(max(q.Limit, 1), maxScan)
	return w
}

func (w *walk) step(g *group, budget int) (done bool) {
	w.marks = g.table.step(&w.query, &w.at, budget, w.query.Limit, w.marks)
	return len(w.marks) >= w.query.Limit || w.at.Done()
}

// Done reports that nothing is ahead.
func (w *Waypoint) Done() bool { return w.Begun && w.From >= w.High }

// step is walk for one that may begin here, and for no longer than suits a walk.
func (t *Table) step(q *Query, at *Waypoint, budget, limit int, marks []Mark) []Mark {
	if !at.Begun {
		*at = Waypoint{High: t.slab.high, Seq: t.seq, Begun: true}
	}
	return t.walk(q, at, min(budget, walkSlots), limit, marks)
}

// walk looks at no more than budget slots and adds what is selected to marks, up to limit.
func (t *Table) walk(q *Query, at *Waypoint, budget, limit int, marks []Mark) []Mark {
	row, ok := t.topics.rowOf[q.Topic]
	high := min(at.High, t.slab.high)
	if !ok || at.From >= high {
		at.From = at.High
		return marks
	}
	for ; budget > 0 && at.From < high && len(marks) < limit; budget-- {
		at.From++
		s := t.slab.at(at.From)
		if s.topic != row || s.state() == 0 || s.seq() > at.Seq || !q.wants(at.From, s) {
			continue
		}
		if _, ok := t.selects(q, s); ok {
			marks = append(marks, t.markOf(q, at.From, s))
		}
	}
	if at.From >= high {
		at.From = at.High
	}
	return marks
}

func (t *Table) markOf(q *Query, h Handle, s *slot) Mark {
	v := t.view(s.ref)
	m := Mark{ID: string(v.id), Version: v.version, DueMs: t.dueMs(s)}
	switch s.state() {
	case Scheduled:
		m.NextMs = s.when()
	case Leased:
		m.Leased = q.hides == nil || !q.hides(h)
		// A lease ahead of its time hides when the attempt is: the first is due, a later one within moments.
		if m.NextMs = m.DueMs; s.attempts() > 1 {
			m.NextMs = max(m.DueMs, t.clockMs)
		}
	}
	return m
}
