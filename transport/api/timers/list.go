package timers

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// List answers with a page of a topic's timers.
func List(rq *web.Request) *web.Problem {
	q := &timer.Query{}
	var p *web.Problem
	if q.States, p = rq.Query.States(); p != nil {
		return p
	}
	if q.Labels, p = rq.Query.Labels(); p != nil {
		return p
	}
	if p := rq.Window(q, "due_from", "due_to"); p != nil {
		return p
	}
	if q.IDPrefix, _ = rq.Query.Value("id_prefix"); !web.ValidIDPrefix(q.IDPrefix) {
		return web.Bad(web.BadName, "query: id_prefix is nothing that an id can start with")
	}
	payload, p := rq.Query.Boolean("payload", true)
	if p != nil {
		return p
	}
	q.WithoutPayload = !payload
	return Page(rq, q)
}

// Page answers one page of the timers that the query selects in all shards.
func Page(rq *web.Request, q *timer.Query) *web.Problem {
	limit, p := rq.Query.Limit()
	if p != nil {
		return p
	}
	topic, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	q.Topic = topic.ID
	listing := listingSum(q)
	if c, given := rq.Query.Value("cursor"); given {
		var ok bool
		if q.After, ok = parseTimerCursor(c, listing); !ok {
			return web.Bad(web.BadRequest, "query: cursor is not one of this listing")
		}
	}
	q.Limit, q.Bytes, q.Waits = limit, rq.Limits.ResponseBytes, !q.ByEnd
	q.Room = rq.Room(listRoom * rq.Limits.ResponseBytes)
	page, err := rq.Core.Timers.List(rq.Base, q)
	switch {
	case err != nil:
		return web.Fault(err)
	case page.More && len(page.Timers) == 0:
		return web.Fail(503, "overloaded", "answers that have not been read yet take as much memory as they may")
	}
	o := web.Object{B: rq.Out()}
	o.Name("timers")
	list := web.Array{B: o.B}
	w := NewWriter(rq, topic)
	w.payload = !q.WithoutPayload
	var last timer.SortKey
	for i, t := range page.Timers {
		if i > 0 && len(list.B) > rq.Limits.ResponseBytes {
			page.More = true
			break
		}
		list.Next()
		list.B = w.Append(list.B, t)
		if page.Waits != nil {
			list.B = appendWait(list.B, page.Waits[i])
		}
		if last := lastAttempt(t); q.ByEnd && last != nil {
			list.B = appendAttemptLog(list.B, t, last)
		}
		last = q.SortKey(t)
	}
	o.B = list.End()
	if page.More {
		o.Text("next_cursor", timerCursor(last, listing))
	}
	return rq.JSON(200, o.End())
}

// listRoom is how much memory a listing may take, in times of its answer.
const listRoom = 4
