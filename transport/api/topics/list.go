package topics

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// List answers the topics that the token sees, in order of name. A page ends early where it
// has become large, or where much has been looked at that the token does not see.
func List(rq *web.Request) *web.Problem {
	limit, counted, after := rq.Query.Limit(), rq.Query.Boolean("counts", false), ""
	prefix, _ := rq.Query.Value("prefix")
	if len(prefix) > web.MaxTopicBytes || !web.Only(prefix, web.TopicRest) {
		rq.Query.Reject(web.BadName, "query: prefix is nothing that a topic's name can start with")
	}
	rq.Query.Cursor(func(c string) (ok bool) {
		after, ok = rq.ParseTopicCursor(c, prefix)
		return ok
	})
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	page, after, more := rq.TopicsSeen(after, prefix, limit)
	var counts []timer.Counts
	if counted && len(page) > 0 {
		ids := make([]timer.TopicID, len(page))
		for i, t := range page {
			ids[i] = t.ID
		}
		var err error
		if counts, err = rq.Core.Timers.Counts(rq.Base, ids); err != nil {
			return web.Fault(err)
		}
	}
	o := web.Object{B: rq.Out()}
	n := o.Page("topics", len(page), rq.Limits.ResponseBytes, func(b []byte, i int) []byte {
		if counted {
			return appendTopic(b, page[i], &counts[i])
		}
		return appendTopic(b, page[i], nil)
	})
	if n < len(page) {
		after, more = page[n-1].Name, true
	}
	if more {
		cursor, err := rq.TopicCursor(after, prefix)
		if err != nil {
			return web.Fault(err)
		}
		o.Text("next_cursor", cursor)
	}
	return rq.JSON(200, o.End())
}
