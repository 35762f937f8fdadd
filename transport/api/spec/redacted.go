package spec

import (
	"slices"
	"strings"

	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/api/web"
)

// Redacted is shown in the place of a header's value that looks secret; sent back, it keeps the
// stored value.
const Redacted = "REDACTED"

// redact is what is shown of a header's value.
func redact(h *timer.Header) string {
	if h.Secret() {
		return Redacted
	}
	return h.Value
}

// AnyRedacted reports whether a header is to keep its stored value.
func AnyRedacted(headers []timer.Header) bool {
	return slices.ContainsFunc(headers, func(h timer.Header) bool { return h.Value == Redacted && secret.Named(h.Name) })
}

// Unredact fills in the stored values of headers that came as REDACTED. A stored value stays at the
// origin that it was given for: url is where the headers are to go.
func Unredact(headers []timer.Header, stored *timer.Callback, url string) ([]timer.Header, *web.Problem) {
	out := make([]timer.Header, len(headers))
	copy(out, headers)
	for i := range out {
		h := &out[i]
		if h.Value != Redacted || !secret.Named(h.Name) {
			continue
		}
		kept := false
		for _, s := range stored.Headers {
			if strings.EqualFold(s.Name, h.Name) {
				h.Value, kept = s.Value, true
			}
		}
		if !kept {
			return nil, web.Badf(web.BadHeader, "callback.headers: %s is %s, but nothing is stored for it to keep", h.Name, Redacted)
		}
		if had := stored.HeadersFor(); had != url && !timer.SameOrigin(had, url) {
			return nil, web.Badf(web.BadHeader, "callback.headers: the value of %s was given for another origin than the url's; give it anew instead of %s", h.Name, Redacted)
		}
	}
	return out, nil
}
