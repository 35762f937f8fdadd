package timer

import (
	"slices"
	"strings"

	"carillon/secret"
)

// Header is one header of a callback, in the order the client gave them.
type Header struct{ Name, Value string }

// Callback says where and how a timer is delivered. A zero field falls back to the topic's.
type Callback struct {
	URL        string
	Method     string
	Headers    []Header // HasHeaders tells an empty list from none given
	HasHeaders bool
	TimeoutMs  int64 // 0: the topic's

	// Origin is that of the topic's URL when headers that look secret were given without a URL: they are for this one.
	// A policy's callback, and one with a URL, have none: policies are kept as JSON.
	Origin string `json:"-"`
}

// Headers belong to the origin that they were given for: scheme, host and port of a URL. Else whoever may change a URL
// could have the credentials sent anywhere.

// SameOrigin reports whether two callback URLs are of one origin. Both have passed the checks of callbacks; a missing URL has
// no origin. Where two spellings of one address are not seen to be the same, the answer is false.
func SameOrigin(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	schemeA, hostA, portA := origin(a)
	schemeB, hostB, portB := origin(b)
	return schemeA != "" && strings.EqualFold(schemeA, schemeB) && strings.EqualFold(hostA, hostB) && portA == portB
}

// origin takes a URL apart; an empty scheme says that it is none. The parts are as they were written.
func origin(url string) (scheme, host, port string) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return "", "", ""
	}
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	switch {
	case strings.EqualFold(scheme, "http"):
		port = "80"
	case strings.EqualFold(scheme, "https"):
		port = "443"
	default:
		return "", "", ""
	}
	host = rest
	if colon := strings.LastIndexByte(rest, ':'); colon > strings.LastIndexByte(rest, ']') {
		host, port = rest[:colon], rest[colon+1:]
	}
	return scheme, host, port
}

// originOf is the part of a URL that says its origin.
func originOf(url string) string {
	_, rest, ok := strings.Cut(url, "://")
	if !ok {
		return ""
	}
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		return url[:len(url)-len(rest)+end]
	}
	return url
}

// isSecret reports whether a header is taken for a credential.
func isSecret(h Header) bool { return secret.Named(h.Name) || secret.Sealed(h.Value) }

// BindTo notes for which URL the headers were given, where the callback has none: url is the topic's.
func (c *Callback) BindTo(url string) {
	c.Origin = ""
	if c.URL == "" && slices.ContainsFunc(c.Headers, isSecret) {
		c.Origin = originOf(url)
	}
}

// HeadersFor is a URL of the origin that the headers were given for; "" when that is not known.
func (c *Callback) HeadersFor() string {
	if c.URL != "" {
		return c.URL
	}
	return c.Origin
}

// Under is the timer's own callback laid over its topic's, field by field, without the headers that belong elsewhere. Its
// headers are not to be changed: they may be the topic's.
func (c *Callback) Under(topic *Callback) Callback {
	out := *topic
	if c.URL != "" {
		out.URL = c.URL
	}
	if c.Method != "" {
		out.Method = c.Method
	}
	if c.TimeoutMs > 0 {
		out.TimeoutMs = c.TimeoutMs
	}
	switch {
	case c.HasHeaders && c.URL != "":
		out.Headers = c.Headers // a change of the URL has dropped what did not belong to it
	case c.HasHeaders:
		out.Headers = c.Headers
		if slices.ContainsFunc(c.Headers, isSecret) && !SameOrigin(c.Origin, topic.URL) {
			out.Headers = withoutSecrets(c.Headers)
		}
	case c.URL != "" && len(out.Headers) > 0 && !SameOrigin(c.URL, topic.URL):
		out.Headers = nil
	}
	return out
}

func withoutSecrets(headers []Header) []Header {
	return slices.DeleteFunc(slices.Clone(headers), isSecret)
}

// Empty reports whether nothing is overridden.
func (c *Callback) Empty() bool {
	return c.URL == "" && c.Method == "" && !c.HasHeaders && c.TimeoutMs == 0
}
