package timers

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// overStates are the states that a history has.
const overStates = 1<<timer.Done | 1<<timer.Dead | 1<<timer.Cancelled

// History answers with a topic's ended timers, by their end.
func History(rq *web.Request) *web.Problem {
	q := &timer.HistoryQuery{}
	if id, given := rq.Query.Value("id"); given {
		if !web.ValidID(id) {
			rq.Query.Reject(web.BadName, "query: id "+IDRule)
		}
		q.ID = id
	}
	q.FromMs, q.ToMs = rq.Query.Window("from", "to")
	q.States, q.Limit = rq.Query.States(timer.Done, overStates), rq.Query.Limit()
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	topic, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	if full, keyed := topic.Policy.FullID(q.ID); keyed && q.ID != "" {
		e, err := lastEnded(rq, topic, full)
		if err != nil {
			return web.Fault(err)
		}
		if e != nil {
			q.ID = full
		}
	}
	q.Topic = topic.ID
	listing := historySum(q)
	rq.Query.Cursor(func(c string) (ok bool) {
		q.After, ok = parseHistoryCursor(c, listing)
		return ok
	})
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	if confine(rq, q, topic) {
		return rq.JSON(200, append(rq.Out(), `{"entries":[]}`...))
	}
	list, more, err := rq.Core.Timers.History(rq.Base, q)
	if err != nil {
		return web.Fault(err)
	}
	return answerHistory(rq, topic, list, more, listing)
}

// confine limits a query to the time that the topic keeps, and to the shard that a timer has. none
// reports that there can be nothing.
func confine(rq *web.Request, q *timer.HistoryQuery, topic *timer.Topic) (none bool) {
	q.FromMs = max(q.FromMs, rq.NowMs()-topic.Policy.HistoryMs)
	if q.ID != "" {
		q.Shards = []timer.ShardID{timer.ShardOf(topic, q.ID, rq.Engine.Shards())}
	}
	return topic.Policy.HistoryMs == 0 || q.ToMs != 0 && q.ToMs <= q.FromMs
}

func answerHistory(rq *web.Request, topic *timer.Topic, list []*timer.HistoryEntry, more bool, listing uint64) *web.Problem {
	o := web.Object{B: rq.Out()}
	w := NewWriter(topic)
	n := o.Page("entries", len(list), rq.Limits.ResponseBytes, func(b []byte, i int) []byte { return w.appendEntry(b, list[i]) })
	if n < len(list) || more && n > 0 {
		o.Text("next_cursor", historyCursor(list[n-1].Key, listing))
	}
	return rq.JSON(200, o.End())
}

// appendEntry writes a timer that has ended, and its attempts.
func (w *Writer) appendEntry(b []byte, e *timer.HistoryEntry) []byte {
	return appendAttemptLog(w.Append(b, e.Timer), e.Timer, e.Attempts)
}
