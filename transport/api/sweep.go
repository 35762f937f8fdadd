package api

import (
	"context"
	"errors"
	"fmt"

	"carillon/timer/bulk"
)

// sweepsAtOnce is how many bulk changes one node has under way.
const sweepsAtOnce = 4

// errSweepTime ends a bulk change that has taken as long as one may.
var errSweepTime = errors.New("the time for one sweep is over")

// bulkRun does a bulk change, and answers how many timers it met, changed and could not change. A
// dry run does the counting alone.
func (rq *request) bulkRun(b *bulk.Update, dry bool, skips *skipList) *problem {
	trial := &dryRun{}
	if dry {
		b.Plan = trial.plan(b.Plan)
	}
	if p := rq.bulkDone(b); p != nil {
		return p
	}
	if dry {
		trial.answer(rq, b.Matched.Load(), b.Skipped.Load(), skips)
		return nil
	}
	rq.swept(b.Matched.Load(), b.Changed.Load(), b.Skipped.Load(), skips)
	return nil
}

// bulkDone does a bulk change, of which a node has few under way at a time.
func (rq *request) bulkDone(b *bulk.Update) *problem {
	s := rq.s
	token, fault := s.sweeps.take(rq.who)
	if fault != nil {
		return fault
	}
	defer s.sweeps.give(token)
	ctx, cancel := context.WithTimeoutCause(s.ending, s.cfg.Limits.SweepTime, errSweepTime)
	defer cancel()
	if err := rq.core.Timers.Bulk(ctx, b); err != nil {
		rq.count = int(b.Changed.Load())
		return s.unfinished(ctx, err, b)
	}
	return nil
}

func (rq *request) swept(matched, changed, skipped int64, skips *skipList) {
	o := object{b: rq.out()}
	o.integer("matched", matched)
	rq.count = int(changed)
	o.integer("changed", changed)
	o.integer("skipped", skipped)
	skips.write(&o)
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
