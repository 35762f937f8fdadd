package callback

import (
	"strconv"
	"time"
)

// prepare fills in the request. The header order and the spelling are ours: nothing
// is normalised on the way out.
func (x *roundTripper) prepare(req *Request, userAgent string, now time.Time) {
	r := &x.request
	r.Reset()
	h := &r.Header
	h.DisableNormalizing()
	h.DisableSpecialHeader() // all headers are plain lines, none is rewritten
	h.SetNoDefaultContentType(true)
	method := methodOf(req)
	h.SetMethod(method)
	h.Add("Host", x.target.Authority)
	h.Add("User-Agent", userAgent)
	if bodyless(method) {
		r.SetBodyRaw(nil)
	} else {
		r.SetBodyRaw(req.Body)
		if req.ContentType != "" {
			h.Add("Content-Type", req.ContentType)
		}
		x.addInt("Content-Length", int64(len(req.Body)))
	}
	for i := range req.Headers {
		h.Add(req.Headers[i].Name, req.Headers[i].Value)
	}
	x.addIdentity(req)
	if req.CloudEvent {
		x.addEvent(req)
	}
	if req.TraceParent != "" && !has(req.Headers, "traceparent") {
		h.Add("traceparent", req.TraceParent)
		if req.TraceState != "" {
			x.addOwn(req, "tracestate", req.TraceState)
		}
	}
	if len(req.Secrets)+len(req.SigningKeys) > 0 {
		x.sign(req, now)
	}
}

// setTarget writes the user's own path and query; the path may be missing.
func (x *roundTripper) setTarget() {
	target := x.target.Target
	if target == "" {
		target = "/"
	} else if target[0] == '?' {
		x.scratch = append(append(x.scratch[:0], '/'), target...)
		x.request.SetRequestURIBytes(x.scratch)
		return
	}
	x.request.SetRequestURI(target)
}

func (x *roundTripper) addIdentity(req *Request) {
	h := &x.request.Header
	h.Add("webhook-id", req.WebhookID)
	h.Add("Carillon-Topic", req.Topic)
	if req.Timer == "" {
		return
	}
	h.Add("Carillon-Timer", req.Timer)
	x.addInt("Carillon-Due", req.DueMs)
	if req.AskedMs != 0 {
		x.addInt("Carillon-Asked", req.AskedMs)
	}
	x.addInt("Carillon-Attempt", int64(req.Attempt))
	x.scratch = strconv.AppendUint(x.scratch[:0], req.Fence, 10)
	h.AddBytesV("Carillon-Fence", x.scratch)
	if req.Receipt != "" {
		h.Add("Carillon-Receipt", req.Receipt)
	}
}

func (x *roundTripper) addInt(name string, v int64) {
	x.scratch = strconv.AppendInt(x.scratch[:0], v, 10)
	x.request.Header.AddBytesV(name, x.scratch)
}

// sign covers the body as it goes out, none with GET and DELETE, and the headers that
// name the call.
func (x *roundTripper) sign(req *Request, now time.Time) {
	body := req.Body
	if bodyless(methodOf(req)) {
		body = nil
	}
	unixSeconds := now.Unix()
	x.signer.sign(req, body, unixSeconds)
	x.addInt("webhook-timestamp", unixSeconds)
	x.request.Header.AddBytesV("webhook-signature", x.signer.ofMessage)
	x.request.Header.AddBytesV("Carillon-Signature", x.signer.ofValues)
}
