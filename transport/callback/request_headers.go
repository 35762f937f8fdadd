package callback

import (
	"strconv"
	"time"
)

// prepare fills in the request. The header order and the spelling are ours: nothing is normalised on
// the way out. unfit has refused what would break a line.
func (x *roundTripper) prepare(req *Request, userAgent string, now time.Time) {
	method := methodOf(req)
	x.head = append(append(x.head[:0], method...), ' ')
	if target := x.target.Target; target == "" || target[0] == '?' { // the user's own path and query; the path may be missing
		x.head = append(x.head, '/')
	}
	x.head = append(append(x.head, x.target.Target...), " HTTP/1.1\r\n"...)
	x.add("Host", x.target.Authority)
	x.add("User-Agent", userAgent)
	if x.body = nil; !bodyless(method) {
		x.body = req.Body
		if req.ContentType != "" {
			x.add("Content-Type", req.ContentType)
		}
		x.addInt("Content-Length", int64(len(req.Body)))
	}
	for i := range req.Headers {
		x.add(req.Headers[i].Name, req.Headers[i].Value)
	}
	x.addIdentity(req)
	if req.CloudEvent {
		x.addEvent(req)
	}
	if req.TraceParent != "" && !has(req.Headers, "traceparent") {
		x.add("traceparent", req.TraceParent)
		if req.TraceState != "" {
			x.addOwn(req, "tracestate", req.TraceState)
		}
	}
	if len(req.Secrets)+len(req.SigningKeys) > 0 {
		x.sign(req, now)
	}
}

func (x *roundTripper) addIdentity(req *Request) {
	x.add("webhook-id", req.WebhookID)
	x.add("Carillon-Topic", req.Topic)
	if req.Timer == "" {
		return
	}
	x.add("Carillon-Timer", req.Timer)
	x.addInt("Carillon-Due", req.DueMs)
	if req.AskedMs != 0 {
		x.addInt("Carillon-Asked", req.AskedMs)
	}
	x.addInt("Carillon-Attempt", int64(req.Attempt))
	x.begin("Carillon-Fence")
	x.head = strconv.AppendUint(x.head, req.Fence, 10)
	x.end()
	if req.Receipt != "" {
		x.add("Carillon-Receipt", req.Receipt)
	}
}

func (x *roundTripper) addInt(name string, v int64) {
	x.begin(name)
	x.head = strconv.AppendInt(x.head, v, 10)
	x.end()
}

func (x *roundTripper) add(name, value string) {
	x.begin(name)
	x.head = append(x.head, value...)
	x.end()
}

func (x *roundTripper) begin(name string) { x.head = append(append(x.head, name...), ": "...) }
func (x *roundTripper) end()              { x.head = append(x.head, "\r\n"...) }

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
	x.begin("webhook-signature")
	x.head = append(x.head, x.signer.ofMessage...)
	x.end()
	x.begin("Carillon-Signature")
	x.head = append(x.head, x.signer.ofValues...)
	x.end()
}
