package api

import (
	"strings"

	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/callback"
)

// Bounds of a callback and of retries.
const (
	maxHeaders     = 32
	maxHeaderBytes = 4 << 10 // name and value
	minTimeoutMs   = 100
	maxTimeoutMs   = 15 * 60_000
	maxAttempts    = 1000
	maxMultiplier  = 10
	maxBackoffMs   = 30 * msPerDay
)

var callbackFieldNames = []string{"url", "method", "headers", "timeout"}

// callback reads the object of a callback. given and null collect the fields in it, for PATCH.
func (r *reader) callback(cb *timer.Callback, given, null *field) {
	n := r.Open('{', "callback")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			return
		}
		var f field
		switch string(name) {
		case "url":
			f = fURL
		case "method":
			f = fMethod
		case "headers":
			f = fHeaders
		case "timeout":
			f = fTimeout
		default:
			r.fail(unknown(name, callbackFieldNames))
			return
		}
		if !r.first(given, f, "callback.", name) {
			return
		}
		if r.Null() {
			*null |= f
			continue
		}
		switch f {
		case fURL:
			cb.URL = r.url()
		case fMethod:
			cb.Method = r.choice("callback.method", methods)
		case fHeaders:
			cb.Headers, cb.HasHeaders = r.headers(), true
		case fTimeout:
			cb.TimeoutMs = r.span("callback.timeout")
			if cb.TimeoutMs < minTimeoutMs || cb.TimeoutMs > maxTimeoutMs {
				r.fail(r.refuse("callback.timeout: must be 100ms to 15m"))
			}
		}
	}
}

var methods = []string{"POST", "PUT", "PATCH", "GET", "DELETE"}

func (r *reader) url() string {
	s := r.Text("callback.url")
	if r.Err() != nil {
		return ""
	}
	if r.urls.has(s) {
		return s
	}
	if err := callback.ValidateURL(s); err != nil {
		r.fail(bad(badURL, "callback.url: "+err.Error()))
	}
	return s
}

func (r *reader) headers() []timer.Header {
	n := r.Open('{', "callback.headers")
	var out []timer.Header
	for ; r.More(n, '}'); n++ {
		h := timer.Header{Name: string(r.Key())}
		h.Value = r.Text("callback.headers: a value")
		if r.Err() != nil {
			return nil
		}
		if n == maxHeaders {
			r.fail(badf(badHeader, "callback.headers: more than %d", maxHeaders))
			return nil
		}
		if len(h.Name)+len(h.Value) > maxHeaderBytes {
			r.fail(badf(badHeader, "callback.headers: a name and its value are over %d bytes", maxHeaderBytes))
			return nil
		}
		if err := callback.ValidateHeader(h.Name, h.Value); err != nil {
			r.fail(bad(badHeader, "callback.headers: "+err.Error()))
			return nil
		}
		for i := range out {
			if strings.EqualFold(out[i].Name, h.Name) {
				r.fail(badf(badHeader, "callback.headers: %s is given twice", h.Name))
				return nil
			}
		}
		out = append(out, h)
	}
	return out
}

var retryFieldNames = []string{"max_attempts", "min_backoff", "max_backoff", "multiplier", "jitter"}

// retry reads the object of a retry policy.
func (r *reader) retry(p *timer.Retry, given, null *field) {
	n := r.Open('{', "retry")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			return
		}
		var f field
		switch string(name) {
		case "max_attempts":
			f = fMaxAttempts
		case "min_backoff":
			f = fMinBackoff
		case "max_backoff":
			f = fMaxBackoff
		case "multiplier":
			f = fMultiplier
		case "jitter":
			f = fJitter
		default:
			r.fail(unknown(name, retryFieldNames))
			return
		}
		if !r.first(given, f, "retry.", name) {
			return
		}
		if r.Null() {
			*null |= f
			continue
		}
		r.retryField(p, f)
	}
	if p.MinBackoffMs != 0 && p.MaxBackoffMs != 0 && p.MinBackoffMs > p.MaxBackoffMs {
		r.fail(r.refuse("retry: min_backoff is longer than max_backoff"))
	}
}

func (r *reader) retryField(p *timer.Retry, f field) {
	switch f {
	case fMaxAttempts:
		v := r.Integer("retry.max_attempts")
		if v < 1 || v > maxAttempts {
			r.fail(r.refuse("retry.max_attempts: must be 1 to 1000"))
		}
		p.MaxAttempts = int(v)
	case fMinBackoff:
		p.MinBackoffMs = r.backoff("retry.min_backoff")
	case fMaxBackoff:
		p.MaxBackoffMs = r.backoff("retry.max_backoff")
	case fMultiplier:
		p.Multiplier = r.Float("retry.multiplier")
		if !(p.Multiplier >= 1 && p.Multiplier <= maxMultiplier) {
			r.fail(r.refuse("retry.multiplier: must be 1 to 10"))
		}
	case fJitter:
		p.Jitter, p.HasJitter = r.Float("retry.jitter"), true
		if !(p.Jitter >= 0 && p.Jitter <= 1) {
			r.fail(r.refuse("retry.jitter: must be 0 to 1"))
		}
	}
}

func (r *reader) backoff(name string) int64 {
	ms := r.span(name)
	if ms < 1 || ms > maxBackoffMs {
		r.fail(r.refuse(name + ": must be 1ms to 720h"))
	}
	return ms
}

// redacted is shown in the place of a header's value that looks secret; sent back, it keeps the
// stored value.
const redacted = "REDACTED"

func looksSecret(name string) bool { return secret.Named(name) }

// anyRedacted reports whether a header is to keep its stored value.
func anyRedacted(headers []timer.Header) bool {
	for i := range headers {
		if headers[i].Value == redacted && looksSecret(headers[i].Name) {
			return true
		}
	}
	return false
}

// unredact fills in the stored values of headers that came as REDACTED. A stored value stays at the
// origin that it was given for: url is where the headers are to go.
func unredact(headers []timer.Header, stored *timer.Callback, url string) ([]timer.Header, *problem) {
	out := make([]timer.Header, len(headers))
	copy(out, headers)
	for i := range out {
		h := &out[i]
		if h.Value != redacted || !looksSecret(h.Name) {
			continue
		}
		kept := false
		for _, s := range stored.Headers {
			if strings.EqualFold(s.Name, h.Name) {
				h.Value, kept = s.Value, true
			}
		}
		if !kept {
			return nil, badf(badHeader, "callback.headers: %s is %s, but nothing is stored for it to keep", h.Name, redacted)
		}
		if had := stored.HeadersFor(); had != url && !timer.SameOrigin(had, url) {
			return nil, badf(badHeader, "callback.headers: the value of %s was given for another origin than the url's; give it anew instead of %s", h.Name, redacted)
		}
	}
	return out, nil
}
