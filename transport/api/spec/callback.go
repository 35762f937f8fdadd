package spec

import (
	"strings"

	"carillon/timer"
	"carillon/transport/api/web"
	"carillon/transport/callback"
	"carillon/transport/callback/address"
)

// Bounds of a callback and of retries.
const (
	maxHeaders     = 32
	maxHeaderBytes = 4 << 10 // name and value
	minTimeoutMs   = 100
	maxTimeoutMs   = 15 * 60_000
	maxAttempts    = 1000
	maxMultiplier  = 10
	maxBackoffMs   = 30 * web.MsPerDay
)

// CallbackFieldNames are in the order of the bits.
var CallbackFieldNames = []string{"url", "method", "headers", "timeout"}

// ReadCallback reads the object of a callback. given and null collect the fields in it, for PATCH.
func ReadCallback(r *web.Reader, cb *timer.Callback, given, null *web.Fields) {
	r.Object("callback", CallbackFieldNames, func(i int) {
		f := FURL << i
		*given |= f
		if r.Null() {
			*null |= f
			return
		}
		switch f {
		case FURL:
			cb.URL = readURL(r)
		case FMethod:
			cb.Method = r.Choice("callback.method", methods)
		case FHeaders:
			cb.Headers, cb.HasHeaders = readHeaders(r), true
		case FTimeout:
			cb.TimeoutMs = r.RangedSpan("callback.timeout", minTimeoutMs, maxTimeoutMs)
		}
	})
}

var methods = []string{"POST", "PUT", "PATCH", "GET", "DELETE"}

func readURL(r *web.Reader) string {
	s := r.Text("callback.url")
	if r.Err() != nil {
		return ""
	}
	if r.URLs.Has(s) {
		return s
	}
	if err := address.ValidateURL(s); err != nil {
		r.Reject(web.Bad(web.BadURL, "callback.url: "+strings.TrimPrefix(err.Error(), address.ErrBadURL.Error()+": ")))
	}
	return s
}

func readHeaders(r *web.Reader) []timer.Header {
	n := r.Open('{', "callback.headers")
	var out []timer.Header
	for ; r.More(n, '}'); n++ {
		h := timer.Header{Name: string(r.Key())}
		h.Value = r.Text("callback.headers: a value")
		if r.Err() != nil {
			return nil
		}
		if n == maxHeaders {
			r.Reject(web.Badf(web.BadHeader, "callback.headers: more than %d", maxHeaders))
			return nil
		}
		if len(h.Name)+len(h.Value) > maxHeaderBytes {
			r.Reject(web.Badf(web.BadHeader, "callback.headers: a name and its value are over %d bytes", maxHeaderBytes))
			return nil
		}
		if err := callback.ValidateHeader(h.Name, h.Value); err != nil {
			r.Reject(web.Bad(web.BadHeader, "callback.headers: "+err.Error()))
			return nil
		}
		for i := range out {
			if strings.EqualFold(out[i].Name, h.Name) {
				r.Reject(web.Badf(web.BadHeader, "callback.headers: %s is given twice", h.Name))
				return nil
			}
		}
		out = append(out, h)
	}
	return out
}

// AppendCallback writes a callback, without what is secret.
func AppendCallback(b []byte, c *timer.Callback) []byte {
	o := web.Object{B: b}
	o.OptText("url", c.URL)
	o.OptText("method", c.Method)
	if c.HasHeaders {
		o.Nest("headers", func(o *web.Object) {
			for i := range c.Headers {
				o.Text(c.Headers[i].Name, redact(&c.Headers[i]))
			}
		})
	}
	o.OptSpan("timeout", c.TimeoutMs)
	return o.End()
}
