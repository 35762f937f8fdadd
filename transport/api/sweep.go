package api

import (
	"context"
	"errors"
	"fmt"

	"carillon/timer"
	"carillon/timer/bulk"
)

// sweepsAtOnce is how many bulk changes one node has under way.
const sweepsAtOnce = 4

// errSweepTime ends a bulk change that has taken as long as one may.
var errSweepTime = errors.New("the time for one sweep is over")

// bulkRun does one change to all timers that a query selects, and answers how many it met, changed
// and could not change. A dry run does the counting alone.
func (rq *request) bulkRun(q *timer.Query, p bulk.Plan) *problem {
	s := rq.s
	dry, fault := rq.dry()
	if fault != nil {
		return fault
	}
	trial := &dryRun{}
	if dry {
		p = trial.plan(p)
	}
	token, fault := s.sweeps.take(rq.who)
	if fault != nil {
		return fault
	}
	defer s.sweeps.give(token)
	bulk := bulk.Update{Query: *q, Plan: p}
	ctx, cancel := context.WithTimeoutCause(s.ending, s.cfg.Limits.SweepTime, errSweepTime)
	defer cancel()
	if err := s.cfg.Engine.Bulk(ctx, &bulk); err != nil {
		rq.count = int(bulk.Changed.Load())
		return s.unfinished(ctx, err, &bulk)
	}
	if dry {
		trial.answer(rq, bulk.Matched.Load(), bulk.Skipped.Load())
		return nil
	}
	rq.swept(bulk.Matched.Load(), bulk.Changed.Load(), bulk.Skipped.Load())
	return nil
}

func (rq *request) swept(matched, changed, skipped int64) {
	o := object{b: rq.out()}
	o.integer("matched", matched)
	rq.count = int(changed)
	o.integer("changed", changed)
	o.integer("skipped", skipped)
	rq.json(200, o.end())
}

// unfinished is the answer of a bulk change that did not come to its end.
func (s *Server) unfinished(ctx context.Context, err error, bulk *bulk.Update) *problem {
	p := engineFault(err)
	switch {
	case errors.Is(context.Cause(ctx), errSweepTime):
		p = fail(503, unavailable, errSweepTime.Error())
	case s.ending.Err() != nil:
		p = fail(503, unavailable, "the node is stopping")
	}
	p.detail = fmt.Sprintf("%s; %d timers have been changed so far, and stay so", p.detail, bulk.Changed.Load())
	return p
}
