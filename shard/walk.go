package shard

import (
	"carillon/timer"
)

// Walk takes the next step of a walk through all timers of one shard that a query selects. It
// returns at most q.Limit of them, in no particular order. It ignores the query's order and After.
//
// A walk returns each timer at most once, however its due time changes, and it ends, however many
// timers are added: it goes by slot, up to the last slot and the last number at its beginning. It
// returns every selected timer that exists from its beginning until it reaches the slot. A whole
// walk visits each slot once, whereas a listing visits all slots for each page.
func (c clients) Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	w := c.newWalk(id, q, at)
	err = c.read(id, true, w.step)
	return w.refs, w.at, err
}

// walk is one step of a walk, which may take several turns.
type walk struct {
	shard *timerShard
	query timer.Query
	at    timer.ScanCursor
	refs  []timer.Ref
}

func (c clients) newWalk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) *walk {
	w := &walk{shard: c.h.shard(id), query: *q, at: at}
	w.query.After = nil
	w.query.Limit = min(max(q.Limit, 1), timer.MaxScan)
	return w
}

func (w *walk) step(budget int) (done bool) {
	w.refs = w.shard.table.Walk(&w.query, w.shard.scheduler.Hides, &w.at, budget, w.query.Limit, w.refs)
	return len(w.refs) >= w.query.Limit || w.at.Done()
}
