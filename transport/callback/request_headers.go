package callback

import (
	"strconv"
	"time"
)

// prepare fills in the request. The header order and the spelling are ours: nothing is normalised on
// the way out. unfit has refused what would break a line.
func (rt *roundTripper) prepare(req *Request, userAgent string, now time.Time) {
	method := methodOf(req)
	rt.head = append(append(rt.head[:0], method...), ' ')
	if target := rt.target.Target; target == "" || target[0] == '?' { // the user's own path and query; the path may be missing
		rt.head = append(rt.head, '/')
	}
	rt.head = append(append(rt.head, rt.target.Target...), " HTTP/1.1\r\n"...)
	rt.add("Host", rt.target.Authority)
	rt.add("User-Agent", userAgent)
	if rt.body = nil; !bodyless(method) {
		rt.body = req.Body
		if req.ContentType != "" {
			rt.add("Content-Type", req.ContentType)
		}
		rt.addInt("Content-Length", int64(len(req.Body)))
	}
	for i := range req.Headers {
		rt.add(req.Headers[i].Name, req.Headers[i].Value)
	}
	rt.addIdentity(req)
	if req.CloudEvent {
		rt.addEvent(req)
	}
	if req.TraceParent != "" && !has(req.Headers, "traceparent") {
		rt.add("traceparent", req.TraceParent)
		if req.TraceState != "" {
			rt.addOwn(req, "tracestate", req.TraceState)
		}
	}
	if len(req.Secrets)+len(req.SigningKeys) > 0 {
		rt.sign(req, now)
	}
}

func (rt *roundTripper) addIdentity(req *Request) {
	rt.add("webhook-id", req.WebhookID)
	rt.add("Carillon-Topic", req.Topic)
	if req.Timer == "" {
		return
	}
	rt.add("Carillon-Timer", req.Timer)
	rt.addInt("Carillon-Due", req.DueMs)
	if req.AskedMs != 0 {
		rt.addInt("Carillon-Asked", req.AskedMs)
	}
	rt.addInt("Carillon-Attempt", int64(req.Attempt))
	rt.begin("Carillon-Fence")
	rt.head = strconv.AppendUint(rt.head, req.Fence, 10)
	rt.end()
	if req.Receipt != "" {
		rt.add("Carillon-Receipt", req.Receipt)
	}
}

func (rt *roundTripper) addInt(name string, v int64) {
	rt.begin(name)
	rt.head = strconv.AppendInt(rt.head, v, 10)
	rt.end()
}

func (rt *roundTripper) add(name, value string) {
	rt.begin(name)
	rt.head = append(rt.head, value...)
	rt.end()
}

func (rt *roundTripper) begin(name string) { rt.head = append(append(rt.head, name...), ": "...) }
func (rt *roundTripper) end()              { rt.head = append(rt.head, "\r\n"...) }

// sign covers the body as it goes out, none with GET and DELETE, and the headers that
// name the call.
func (rt *roundTripper) sign(req *Request, now time.Time) {
	body := req.Body
	if bodyless(methodOf(req)) {
		body = nil
	}
	unixSeconds := now.Unix()
	rt.signer.sign(req, body, unixSeconds)
	rt.addInt("webhook-timestamp", unixSeconds)
	rt.begin("webhook-signature")
	rt.head = append(rt.head, rt.signer.ofMessage...)
	rt.end()
	rt.begin("Carillon-Signature")
	rt.head = append(rt.head, rt.signer.ofValues...)
	rt.end()
}
