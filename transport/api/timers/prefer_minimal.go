package timers

import (
	"net/url"
	"strings"

	"carillon/transport/api/web"
)

// minimal reports whether the client prefers an answer without a body (RFC 7240).
func minimal(rq *web.Request) bool {
	for _, line := range rq.Optional("Prefer") {
		for part := range strings.SplitSeq(string(line), ",") {
			part, _, _ = strings.Cut(part, ";")
			name, value, _ := strings.Cut(part, "=")
			if strings.EqualFold(strings.TrimSpace(name), "return") && strings.Trim(strings.TrimSpace(value), `"`) == "minimal" {
				return true
			}
		}
	}
	return false
}

// answerMinimal answers with headers alone: the version of the timer, and where it is.
func answerMinimal(rq *web.Request, status int, version uint32) {
	h := &rq.Ctx.Response.Header
	var etag [16]byte
	h.SetCanonical(web.ETagName, web.AppendETag(etag[:0], version))
	h.Set("Location", "/v1/topics/"+url.PathEscape(rq.Topic)+"/timers/"+url.PathEscape(rq.ID))
	h.Set("Preference-Applied", "return=minimal")
	rq.Ctx.SetStatusCode(status)
}
