package timers

import (
	"errors"
	"slices"

	"carillon/timer"
	"carillon/transport/api/web"
)

// List answers with a page of a topic's timers.
func List(rq *web.Request) *web.Problem {
	return Page(rq, selected(rq))
}

// ListAll answers with a page of the timers of all topics that the token reaches.
func ListAll(rq *web.Request) *web.Problem {
	q := selected(rq)
	if id, given := rq.Query.Value("id"); given {
		switch {
		case q.IDPrefix != "":
			rq.Query.Reject(web.BadRequest, "query: give id or id_prefix, not both")
		case !web.ValidID(id):
			rq.Query.Reject(web.BadName, "query: id "+IDRule)
		}
		q.IDPrefix, q.WholeID = id, true
	}
	q.Limit = rq.Query.Limit()
	p := rq.Query.Problem()
	if p != nil {
		return p
	}
	if q.AllTopics, q.Topics, p = topicsReached(rq); p != nil {
		return p
	}
	if !q.ManyTopics() {
		return rq.JSON(200, append(rq.Out(), `{"timers":[]}`...))
	}
	slices.Sort(q.Topics)
	known := map[timer.TopicID]*timer.Topic{}
	return page(rq, q, func(id timer.TopicID) (*timer.Topic, error) {
		topic, seen := known[id]
		if !seen {
			var err error
			if topic, err = rq.Core.Topics.ByID(rq.Base, id); err != nil && !errors.Is(err, timer.ErrNoTopic) {
				return nil, err
			}
			known[id] = topic
		}
		return topic, nil
	})
}

// selected is the query that the parameters of a list make.
func selected(rq *web.Request) *timer.Query {
	q := &timer.Query{States: rq.Query.States(timer.Scheduled, 1<<timer.Scheduled|1<<timer.Leased), Labels: rq.Query.Labels()}
	q.FromMs, q.ToMs = rq.Query.Window("due_from", "due_to")
	if q.IDPrefix, _ = rq.Query.Value("id_prefix"); !web.ValidIDPrefix(q.IDPrefix) {
		rq.Query.Reject(web.BadName, "query: id_prefix is nothing that an id can start with")
	}
	q.WithoutPayload = !rq.Query.Boolean("payload", true)
	return q
}

// Page answers one page of the timers of one topic that the query selects in all shards.
func Page(rq *web.Request, q *timer.Query) *web.Problem {
	q.Limit = rq.Query.Limit()
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	topic, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	q.Topic = topic.ID
	return page(rq, q, func(timer.TopicID) (*timer.Topic, error) { return topic, nil })
}

// page answers a page of timers. topicOf finds the topic of each; nil: it is gone, and its timers
// with it.
func page(rq *web.Request, q *timer.Query, topicOf func(timer.TopicID) (*timer.Topic, error)) *web.Problem {
	listing := listingSum(q)
	rq.Query.Cursor(func(c string) bool { return parseTimerCursor(c, listing, q) })
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	q.Bytes, q.Waits = rq.Limits.ResponseBytes, !q.ByEnd
	q.Room = rq.Room(listRoom * rq.Limits.ResponseBytes)
	page, err := rq.Core.Timers.List(rq.Base, q)
	switch {
	case err != nil:
		return web.Fault(err)
	case page.More && len(page.Timers) == 0 && page.Slots.From == q.Slots.From:
		return web.Fail(503, "overloaded", "answers that have not been read yet take as much memory as they may")
	}
	o := web.Object{B: rq.Out()}
	o.Name("timers")
	list := web.Array{B: o.B}
	var last timer.SortKey
	for i, t := range page.Timers {
		if i > 0 && len(list.B) > rq.Limits.ResponseBytes {
			if page.More = true; page.Slots.From != q.Slots.From { // the range is not at its end after all
				page.Slots = timer.SlotRange{From: q.Slots.From, To: page.Slots.From}
			}
			break
		}
		last = q.SortKey(t)
		topic, err := topicOf(t.Topic)
		if err != nil {
			return web.Fault(err)
		}
		if topic == nil {
			continue
		}
		w := NewWriter(topic)
		w.payload = !q.WithoutPayload
		list.Next()
		list.B = w.Append(list.B, t)
		if page.Waits != nil {
			list.B = appendWait(list.B, page.Waits[i])
		}
		if last := lastAttempt(t); q.ByEnd && last != nil {
			list.B = appendAttemptLog(list.B, t, last)
		}
	}
	o.B = list.End()
	if page.More {
		if page.Slots.From != q.Slots.From { // the range is at its end
			last = timer.SortKey{}
		}
		o.Text("next_cursor", timerCursor(last, page.Slots, listing))
	}
	return rq.JSON(200, o.End())
}

// listRoom is how much memory a listing may take, in times of its answer.
const listRoom = 4
