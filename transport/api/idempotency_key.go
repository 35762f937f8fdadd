package api

import "carillon/transport/api/web"

const maxIdempotencyKey = 255 // bytes

// idempotencyKey reads the header of that name (draft-ietf-httpapi-idempotency-key-header): a
// string in quotes, or, as many send it, the bare text. "" when there is none.
func (rq *request) idempotencyKey() (string, *web.Problem) {
	list := rq.Optional("Idempotency-Key")
	if len(list) == 0 {
		return "", nil
	}
	if !rq.route.named {
		return "", web.Bad(web.BadRequest, "Idempotency-Key goes with the add of one timer; other calls are safe to repeat by themselves, or by If-Match")
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
		return "", web.Badf(web.BadRequest, "Idempotency-Key: must be one string of 1–%d visible characters, like %q", maxIdempotencyKey, "8e03978e-40d5-43dd-bc93")
	}
	return text, nil
}
