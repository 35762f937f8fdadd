// Package bulkrun does one change to many timers, or counts what it would change, and answers with
// the counts.
package bulkrun

import (
	"context"
	"errors"
	"fmt"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/transport/api/web"
)

// AtOnce is how many bulk changes one node has under way.
const AtOnce = 4

// errBulkTime ends a bulk change that has taken as long as one may.
var errBulkTime = errors.New("the time for one bulk change is over")

// Run does a bulk change, and answers how many timers it met, changed and could not change. A
// dry run does the counting alone.
func Run(rq *web.Request, b *bulk.Update, skips *Skips) *web.Problem {
	var would *DryRun
	if rq.DryRun {
		would = &DryRun{}
		b.Plan = would.plan(b.Plan)
	}
	if p := Do(rq, b); p != nil {
		return p
	}
	return Answer(rq, b.Matched.Load(), b.Changed.Load(), b.Skipped.Load(), skips, would)
}

// Do does a bulk change, of which a node has few under way at a time. It ends with the token.
func Do(rq *web.Request, b *bulk.Update) *web.Problem {
	token, fault := rq.Bulks.Take(rq.Who)
	if fault != nil {
		return fault
	}
	defer rq.Bulks.Give(token)
	ctx, cancel := context.WithTimeoutCause(rq.Ending, rq.Limits.BulkTime, errBulkTime)
	defer cancel()
	ctx, revoke := context.WithCancelCause(ctx)
	defer revoke(nil)
	plan := b.Plan
	b.Plan = func(m *timer.Ref) (*timer.Command, bulk.Decision) {
		if p := rq.Recheck(); p != nil {
			revoke(p)
			return nil, bulk.Pass
		}
		return plan(m)
	}
	err := rq.Core.Timers.Bulk(ctx, b)
	revoked, _ := errors.AsType[*web.Problem](context.Cause(ctx))
	if err == nil && revoked == nil {
		return nil
	}
	p := web.Fault(err)
	switch {
	case revoked != nil:
		p = revoked
	case errors.Is(context.Cause(ctx), errBulkTime):
		p = web.Fail(503, web.Unavailable, errBulkTime.Error())
	case rq.Ending.Err() != nil:
		p = web.Fail(503, web.Unavailable, "the node is stopping")
	}
	return Unfinished(rq, p, b.Changed.Load())
}

// Unfinished is the answer of a change of many timers that did not come to its end.
func Unfinished(rq *web.Request, p *web.Problem, changed int64) *web.Problem {
	rq.Count = int(changed)
	p.Detail = fmt.Sprintf("%s; %d timers have been changed so far, and stay so", p.Detail, changed)
	return p
}

// Answer answers with the counts of a change, or of a dry run, with those that it would have.
func Answer(rq *web.Request, matched, changed, skipped int64, skips *Skips, would *DryRun) *web.Problem {
	if rq.Count = int(changed); would != nil {
		changed = would.Changed
	}
	o := web.Object{B: rq.Out()}
	o.Integer("matched", matched)
	o.Integer("changed", changed)
	o.Integer("skipped", skipped)
	if would != nil {
		o.Boolean("dry_run", true)
		if changed > 0 {
			o.Text("first", would.first.ID)
		}
	}
	skips.write(&o)
	return rq.JSON(200, o.End())
}
