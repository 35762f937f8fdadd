package api

import (
	"bytes"

	"carillon/transport/api/web"
)

// condition reads If-Match and If-None-Match. A route that takes none refuses them: a condition
// that is ignored is a change that the client did not want.
func (rq *request) condition() *web.Problem {
	match, none := rq.Optional("If-Match"), rq.Optional("If-None-Match")
	switch {
	case len(match)+len(none) == 0:
		return nil
	case !rq.route.conditional && !rq.route.versioned:
		return web.Bad(web.BadRequest, "If-Match and If-None-Match do not go with this request")
	case len(match)+len(none) > 1:
		return web.Bad(web.BadRequest, "give one of If-Match and If-None-Match, once")
	case len(none) == 1:
		if rq.CreateOnly = rq.route.method == "PUT" && string(bytes.TrimSpace(none[0])) == "*"; !rq.CreateOnly {
			return web.Bad(web.BadRequest, "If-None-Match: only * with PUT of a timer or topic")
		}
		return nil
	}
	text := bytes.TrimSpace(match[0])
	if rq.route.versioned {
		if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
			return web.Bad(web.BadRequest, "If-Match: must be one ETag, as a read of the topic shows it")
		}
		rq.TopicID, rq.IfMatch = web.ParseTopicETag(text)
		return nil
	}
	var ok bool
	if rq.IfMatch, ok = web.ParseETag(text); !ok {
		return web.Bad(web.BadRequest, `If-Match: must be one version in quotes, like "3"`)
	}
	return nil
}
