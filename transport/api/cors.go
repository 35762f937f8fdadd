package api

import (
	"fmt"
	"net/netip"
	"strings"

	"carillon/transport/api/web"
)

// Origins of others whose pages may ask: all that their token allows, as if they were the node's
// own. See docs/adr/0023. Nothing of it goes by cookies, which the API has none of.

// corsHeaders are the headers that such a page may send, and corsExposed those that it may read
// besides the body.
const (
	corsHeaders = "Authorization, Content-Type, If-Match, If-None-Match, Idempotency-Key, Prefer, Traceparent, Tracestate"
	corsExposed = "Carillon-Leader, ETag, Location, Preference-Applied, Retry-After"
	corsSeconds = "600" // for which a browser remembers a preflight's answer
)

// CheckOrigin is the reason why an origin is not one for Config.Origins.
func CheckOrigin(text string) error {
	scheme, authority, found := strings.Cut(text, "://")
	name, address, _, ok := splitHost(authority)
	if !found || scheme != "http" && scheme != "https" || !ok || strings.HasSuffix(authority, ".") ||
		text != strings.ToLower(text) || address == (netip.Addr{}) && !strings.ContainsAny(name, "abcdefghijklmnopqrstuvwxyz0123456789") {
		return fmt.Errorf("%q is not an origin as a browser sends it: https://host or https://host:port, in lower case, without a path", text)
	}
	return nil
}

func parseOrigins(list []string) (map[string]bool, error) {
	origins := map[string]bool{}
	for _, text := range list {
		if err := CheckOrigin(text); err != nil {
			return nil, err
		}
		origins[text] = true
	}
	return origins, nil
}

// invited reports whether the one Origin of a request is one of these, and if so answers its
// browser that the page may read the answer.
func (rq *request) invited(origins [][]byte) bool {
	if len(origins) != 1 || !rq.s.origins[string(origins[0])] {
		return false
	}
	h := &rq.Ctx.Response.Header
	h.Set("Access-Control-Allow-Origin", string(origins[0]))
	h.Set("Access-Control-Expose-Headers", corsExposed)
	h.Set("Vary", "Origin")
	return true
}

// preflightRoute answers the question that a browser asks before a request that is not a simple
// one.
var preflightRoute = route{method: "OPTIONS", scope: web.ScopeOpen, handle: (*request).preflight}

// asksLeave reports whether the request is that question, of a page that may ask.
func (rq *request) asksLeave(pat *pattern) bool {
	h := &rq.Ctx.Request.Header
	return pat != nil && rq.Ctx.IsOptions() && len(h.Peek("Access-Control-Request-Method")) > 0 &&
		len(rq.Ctx.Response.Header.Peek("Access-Control-Allow-Origin")) > 0
}

func (rq *request) preflight() *web.Problem {
	h := &rq.Ctx.Response.Header
	h.Set("Access-Control-Allow-Methods", rq.s.router.find(rq.segments).allow)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsSeconds)
	rq.Ctx.SetStatusCode(204)
	return nil
}
