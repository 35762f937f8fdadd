package timers

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// nameByRequest gives an add the id that its Idempotency-Key makes: the key itself behind a prefix,
// or, where it is no id, a hash of it. So a repetition, at any node, meets the same timer.
func (in *timerRequest) nameByRequest(key string) *web.Problem {
	if in.given&spec.FID != 0 {
		return web.Bad(web.BadRequest, "give an id or an Idempotency-Key, not both: an add with an id may be repeated as it is")
	}
	if in.given&spec.FMerge != 0 && in.merge != "reject" {
		return web.Badf(web.BadRequest, "merge: %s does not go with an Idempotency-Key", in.merge)
	}
	name := "idem-" + key
	if !web.ValidID(name) {
		sum := sha256.Sum256([]byte(key))
		name = "idem.sha256-" + hex.EncodeToString(sum[:16])
	}
	if in.key != "" {
		name = "{" + in.key + "}" + name
	}
	in.id, in.merge, in.repeated = name, "reject", true
	in.given |= spec.FMerge
	return nil
}

// keyInUse makes of the refusal of an id that is in use that of another add under a key that has
// been used: as the draft has it, 422 and not 409.
func keyInUse(p *web.Problem) {
	p.Status, p.Detail = 422, "the Idempotency-Key has been used for an add with other content"
}

// minimal reports whether the client prefers an answer without a body (RFC 7240).
func minimal(rq *web.Request) bool {
	for _, line := range rq.Ctx.Request.Header.PeekAll("Prefer") {
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

// answerMinimal says that it was done, and to which version of which timer.
func answerMinimal(rq *web.Request, status int, version uint32) {
	h := &rq.Ctx.Response.Header
	var etag [16]byte
	h.SetCanonical(web.ETagName, web.AppendETag(etag[:0], version))
	h.Set("Location", "/v1/topics/"+url.PathEscape(rq.Topic)+"/timers/"+url.PathEscape(rq.ID))
	h.Set("Preference-Applied", "return=minimal")
	rq.Ctx.SetStatusCode(status)
}
