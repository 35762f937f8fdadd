package topics

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

var BatchFieldNames = []string{"max", "wait", "by"}

var batchBys = []string{"topic", "key"}

const (
	maxBatch       = 1000
	maxBatchWaitMs = 60_000
)

// readBatch reads the object of calls of many timers over one that there may be.
func readBatch(r *web.Reader, base *timer.Batch) *timer.Batch {
	b := timer.Batch{}
	if base != nil {
		b = *base
	}
	r.Object("batch", BatchFieldNames, func(i int) {
		switch {
		case i == 0 && !reset(r, &b.Max, 0):
			b.Max = int(r.Ranged("batch.max", 2, maxBatch))
		case i == 1 && !reset(r, &b.WaitMs, 0):
			b.WaitMs = r.RangedSpan("batch.wait", 0, maxBatchWaitMs)
		case i == 2 && !reset(r, &b.ByKey, false):
			b.ByKey = r.Choice("batch.by", batchBys) == "key"
		}
	})
	if r.Err() == nil && b.Max == 0 {
		r.Reject(web.Bad(web.BadRequest, "batch.max: is required"))
	}
	return &b
}

// batchProblem is why calls of many timers do not go with the rest of a policy; nil if they do.
func batchProblem(p *timer.Policy) *web.Problem {
	switch {
	case p.Batch == nil:
		return nil
	case p.Pull:
		return web.RefuseInPolicy("batch: the topic is pulled, it calls nobody")
	case p.Report:
		return web.RefuseInPolicy("batch: not with ack report, a call of many timers has no receipts")
	case p.Serial:
		return web.RefuseInPolicy("batch: not with serial, where one timer goes after the other")
	case !p.Callback.SendsBody():
		return web.RefuseInPolicy("batch: not with callback.method " + p.Callback.Method + ", which sends no body")
	}
	return nil
}

func batchMembers(o *web.Object, p *timer.Batch) {
	o.Integer("max", int64(p.Max))
	o.Span("wait", p.WaitMs)
	o.Text("by", batchBys[index(p.ByKey)])
}
