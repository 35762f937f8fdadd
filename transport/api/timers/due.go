package timers

import (
	"time"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Bounds of a histogram of due times.
const (
	dueBuckets    = 60
	maxDueBuckets = 1000
	dueSpan       = time.Hour
)

// topicsMost bounds the topics of one question, unless the token sees all.
const topicsMost = 10_000

// CountDue answers how many timers come due from now until a time, in equal parts of it.
func CountDue(rq *web.Request) *web.Problem {
	q := &backend.DueQuery{FromMs: rq.NowMs()}
	until, given := rq.Query.Instant("until")
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	if !given {
		if p := rq.KnowsNow(); p != nil {
			return p
		}
		until = q.FromMs + dueSpan.Milliseconds()
	}
	if until <= q.FromMs {
		return web.Bad(web.BadTime, "query: until must lie ahead")
	}
	if until > timer.MaxMs {
		return web.Bad(web.BadTime, "query: until is beyond all times that timers can have")
	}
	q.Buckets = rq.Query.Integer("buckets", maxDueBuckets, dueBuckets)
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	q.BucketMs = (until - q.FromMs + int64(q.Buckets) - 1) / int64(q.Buckets)
	if p := dueTopics(rq, q); p != nil {
		return p
	}
	d, err := rq.Core.Live.Due(rq.Base, q)
	if err != nil {
		return web.Fault(err)
	}
	o := web.Object{B: rq.Out()}
	o.Integers("counts", d.Buckets)
	o.B = web.AppendTime(o.B, "from", q.FromMs)
	o.B = web.AppendTime(o.B, "until", q.FromMs+q.BucketMs*int64(q.Buckets))
	o.Integer("bucket_ms", q.BucketMs)
	o.Integer("overdue", d.Overdue)
	o.Integer("later", d.Later)
	o.Integer("shards", int64(d.Shards))
	o.Integer("shards_counted", int64(d.Counted))
	return rq.JSON(200, o.End())
}

// dueTopics are the topic that was asked for, or all that the token sees.
func dueTopics(rq *web.Request, q *backend.DueQuery) *web.Problem {
	if name, given := rq.Query.Value("topic"); given {
		topic, p := rq.QueryTopic(name)
		if p != nil {
			return p
		}
		q.Topics = []timer.TopicID{topic.ID}
		return nil
	}
	var p *web.Problem
	q.All, q.Topics, p = topicsReached(rq)
	return p
}

// topicsReached are all topics, or those that the token sees.
func topicsReached(rq *web.Request) (all bool, topics []timer.TopicID, p *web.Problem) {
	if rq.Who.SeesAll() {
		return true, nil, nil
	}
	page, _, more := rq.TopicsSeen("", "", topicsMost)
	if more {
		return false, nil, web.Bad(web.BadRequest, "this token reaches too many topics to look into all: ask for one topic")
	}
	for _, t := range page {
		topics = append(topics, t.ID)
	}
	return false, topics, nil
}
