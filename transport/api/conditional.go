package api

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

// neverVersion is a version that no timer has: asking for it never matches.
const neverVersion = math.MaxUint32

// condition reads If-Match and If-None-Match. A route that takes none refuses them: a condition
// that is ignored is a change that the client did not want.
func (rq *request) condition() (ifMatch uint32, createOnly bool, p *problem) {
	h := &rq.ctx.Request.Header
	match, none := h.PeekAll("If-Match"), h.PeekAll("If-None-Match")
	if len(match)+len(none) == 0 {
		return 0, false, nil
	}
	if !rq.route.conditional {
		return 0, false, bad(badRequest, "If-Match and If-None-Match do not go with this request")
	}
	if len(match)+len(none) > 1 {
		return 0, false, bad(badRequest, "give one of If-Match and If-None-Match, once")
	}
	if len(none) == 1 {
		if rq.route.method != "PUT" || string(bytes.TrimSpace(none[0])) != "*" {
			return 0, false, bad(badRequest, "If-None-Match: only * with PUT")
		}
		return 0, true, nil
	}
	ifMatch, ok := parseETag(bytes.TrimSpace(match[0]))
	if !ok {
		return 0, false, bad(badRequest, `If-Match: must be one version in quotes, like "3"`)
	}
	return ifMatch, false, nil
}

// parseETag reads "<version>". A number that no timer can have becomes one that never matches; 0,
// which would mean any version to the engine, is such a number.
func parseETag(b []byte) (uint32, bool) {
	if len(b) < 3 || b[0] != '"' || b[len(b)-1] != '"' {
		return 0, false
	}
	digits := string(b[1 : len(b)-1])
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	if err != nil || n == 0 {
		n = neverVersion
	}
	return uint32(n), true
}

func appendETag(b []byte, version uint32) []byte {
	return append(strconv.AppendUint(append(b, '"'), uint64(version), 10), '"')
}
