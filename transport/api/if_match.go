package api

import (
	"bytes"

	"carillon/transport/api/web"
)

// condition reads If-Match and If-None-Match. A route that takes none refuses them: a condition
// that is ignored is a change that the client did not want.
func (rq *request) condition() (ifMatch uint32, createOnly bool, p *web.Problem) {
	match, none := rq.Optional("If-Match"), rq.Optional("If-None-Match")
	if len(match)+len(none) == 0 {
		return 0, false, nil
	}
	if !rq.route.conditional && !rq.route.versioned {
		return 0, false, web.Bad(web.BadRequest, "If-Match and If-None-Match do not go with this request")
	}
	if len(match)+len(none) > 1 {
		return 0, false, web.Bad(web.BadRequest, "give one of If-Match and If-None-Match, once")
	}
	if len(none) == 1 {
		if rq.route.method != "PUT" || string(bytes.TrimSpace(none[0])) != "*" {
			return 0, false, web.Bad(web.BadRequest, "If-None-Match: only * with PUT of a timer or topic")
		}
		return 0, true, nil
	}
	text := bytes.TrimSpace(match[0])
	if rq.route.versioned {
		if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
			return 0, false, web.Bad(web.BadRequest, "If-Match: must be one ETag, as a read of the topic shows it")
		}
		rq.TopicID, ifMatch = web.ParseTopicETag(text)
		return ifMatch, false, nil
	}
	ifMatch, ok := web.ParseETag(text)
	if !ok {
		return 0, false, web.Bad(web.BadRequest, `If-Match: must be one version in quotes, like "3"`)
	}
	return ifMatch, false, nil
}
