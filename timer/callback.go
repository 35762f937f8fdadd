package timer

import (
	"cmp"
	"slices"
	"strings"

	"carillon/internal/secret"
)

// Header is one header of a callback. Headers keep the client's order.
type Header struct{ Name, Value string }

// Secret reports whether a header is treated as a credential.
func (h Header) Secret() bool { return secret.Named(h.Name) || secret.Sealed(h.Value) }

// Callback is where and how a timer is delivered. A zero field falls back to the topic's.
type Callback struct {
	URL        string
	Method     string
	Headers    []Header // HasHeaders distinguishes an empty list from none given
	HasHeaders bool
	TimeoutMs  int64 // 0: the topic's

	// Origin is the origin of the topic's URL if the client gave secret headers without a URL: they
	// belong to that origin. It is empty in a policy's callback, because policies are kept as JSON,
	// and in a callback with its own URL.
	Origin string `json:"-"`
}

// Headers belong to the origin that they were given for: scheme, host and port of a URL. Otherwise
// a client that may change a URL could redirect the credentials.

// SameOrigin reports whether two callback URLs have the same origin. Both must have passed the
// checks of callbacks; a missing URL has no origin. If two spellings of one address cannot be
// recognised as equal, it returns false.
func SameOrigin(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	schemeA, hostA, portA := origin(a)
	schemeB, hostB, portB := origin(b)
	return schemeA != "" && strings.EqualFold(schemeA, schemeB) && strings.EqualFold(hostA, hostB) && portA == portB
}

// origin splits a URL without changing its parts; an empty scheme means that it is no URL.
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

// BindTo records the URL that the headers were given for, if the callback has none of its own: url
// is the topic's.
func (c *Callback) BindTo(url string) {
	c.Origin = ""
	if c.URL == "" && slices.ContainsFunc(c.Headers, Header.Secret) {
		c.Origin = originOf(url)
	}
}

// HeadersFor is a URL of the origin that the headers were given for; "" if it is not known.
func (c *Callback) HeadersFor() string {
	return cmp.Or(c.URL, c.Origin)
}

// dropForeignSecrets drops secret headers that were given for another origin: had is a URL of it.
func (c *Callback) dropForeignSecrets(had string) {
	if slices.ContainsFunc(c.Headers, Header.Secret) && !SameOrigin(had, c.HeadersFor()) {
		c.Headers, c.Origin = withoutSecrets(c.Headers), ""
	}
}

// Under lays the timer's own callback over its topic's, field by field, without headers of another
// origin. The caller must not change the returned headers: they may be the topic's.
func (c *Callback) Under(topic *Callback) Callback {
	out := *topic
	out.URL, out.Method = cmp.Or(c.URL, topic.URL), cmp.Or(c.Method, topic.Method)
	out.TimeoutMs = cmp.Or(c.TimeoutMs, topic.TimeoutMs)
	switch {
	case c.HasHeaders && c.URL != "":
		out.Headers = c.Headers // a change of the URL has dropped headers of another origin
	case c.HasHeaders:
		out.Headers = c.Headers
		if slices.ContainsFunc(c.Headers, Header.Secret) && !SameOrigin(c.Origin, topic.URL) {
			out.Headers = withoutSecrets(c.Headers)
		}
	case c.URL != "" && len(out.Headers) > 0 && !SameOrigin(c.URL, topic.URL):
		out.Headers = nil
	}
	return out
}

func withoutSecrets(headers []Header) []Header {
	return slices.DeleteFunc(slices.Clone(headers), Header.Secret)
}

// SendsBody reports whether a call by this method has a body.
func (c *Callback) SendsBody() bool { return c.Method != "GET" && c.Method != "DELETE" }

func (c *Callback) Empty() bool {
	return c.URL == "" && c.Method == "" && !c.HasHeaders && c.TimeoutMs == 0
}
