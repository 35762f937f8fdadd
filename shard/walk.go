package shard

import (
	"carillon/shard/table"
	"carillon/timer"
)

// Walk takes the next step of a walk through all timers of one shard that a query selects: at most
// q.Limit of them, in no order that means anything. The query's order and After do not count.
//
// A walk meets each timer at most once, whatever becomes of its due time meanwhile, and ends,
// however many are added: it goes by slot, up to the slot and the number that were the last when it
// began. It meets every timer that is there, and selected, from before the walk until its step. The
// whole walk looks at each slot once, where a listing looks at all of them for each page.
func (h *Host) Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	w := h.newWalk(id, q, at)
	err = h.read(id, true, w.step)
	return w.refs, w.at, err
}

// walk is one step, which takes as many turns as it needs.
type walk struct {
	query timer.Query
	hides table.Hides
	at    timer.ScanCursor
	refs  []timer.Ref
}

func (h *Host) newWalk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) *walk {
	w := &walk{query: *q, at: at}
	w.query.After, w.hides = nil, h.groups[id].scheduler.Hides
	w.query.Limit = min(max(q.Limit, 1), timer.MaxScan)
	return w
}

func (w *walk) step(g *group, budget int) (done bool) {
	w.refs = g.table.Walk(&w.query, w.hides, &w.at, budget, w.query.Limit, w.refs)
	return len(w.refs) >= w.query.Limit || w.at.Done()
}
