package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

const maxIdempotencyKey = 255 // bytes

// idempotencyKey reads the header of that name (draft-ietf-httpapi-idempotency-key-header): a
// string in quotes, or, as many send it, the bare text. "" when there is none.
func (rq *request) idempotencyKey() (string, *problem) {
	list := rq.ctx.Request.Header.PeekAll("Idempotency-Key")
	if len(list) == 0 {
		return "", nil
	}
	if !rq.route.named {
		return "", bad(badRequest, "Idempotency-Key goes with the add of one timer; other calls are safe to repeat by themselves, or by If-Match")
	}
	text := string(list[0])
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	good := len(list) == 1 && text != "" && len(text) <= maxIdempotencyKey
	for i := range len(text) {
		good = good && text[i] > ' ' && text[i] < 0x7f && text[i] != '"' && text[i] != '\\'
	}
	if !good {
		return "", badf(badRequest, "Idempotency-Key: must be one string of 1–%d visible characters, like %q", maxIdempotencyKey, "8e03978e-40d5-43dd-bc93")
	}
	return text, nil
}

// nameByRequest gives an add the id that its Idempotency-Key makes: the key itself behind a prefix,
// or, where it is no id, a hash of it. So a repetition, at any node, meets the same timer.
func (in *timerRequest) nameByRequest(key string) *problem {
	if in.given&fID != 0 {
		return bad(badRequest, "give an id or an Idempotency-Key, not both: an add with an id may be repeated as it is")
	}
	if in.given&fMerge != 0 && in.merge != "reject" {
		return badf(badRequest, "merge: %s does not go with an Idempotency-Key", in.merge)
	}
	name := "idem-" + key
	if !validID(name) {
		sum := sha256.Sum256([]byte(key))
		name = "idem.sha256-" + hex.EncodeToString(sum[:16])
	}
	if in.key != "" {
		name = "{" + in.key + "}" + name
	}
	in.id, in.merge, in.repeated = name, "reject", true
	in.given |= fMerge
	return nil
}

// keyInUse makes of the refusal of an id that is in use that of another add under a key that has
// been used: as the draft has it, 422 and not 409.
func keyInUse(p *problem) {
	p.status, p.detail = 422, "the Idempotency-Key has been used for an add with other content"
}

// minimal reports whether the client prefers an answer without a body (RFC 7240).
func (rq *request) minimal() bool {
	for _, line := range rq.ctx.Request.Header.PeekAll("Prefer") {
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
func (rq *request) answerMinimal(status int, version uint32) {
	h := &rq.ctx.Response.Header
	var etag [16]byte
	h.SetCanonical(etagName, appendETag(etag[:0], version))
	h.Set("Location", "/v1/topics/"+url.PathEscape(rq.topic)+"/timers/"+url.PathEscape(rq.id))
	h.Set("Preference-Applied", "return=minimal")
	rq.ctx.SetStatusCode(status)
}
