package callback

import (
	"bufio"
	"io"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	readBufferBytes  = 16 << 10 // also the bound of an answer's headers
	writeBufferBytes = 4 << 10
)

// exchange is one worker's use of fasthttp: request and answer buffers that are
// filled again for every call. fasthttp's own client is not used. It rewrites the
// URL, offers no place between dial and write for the dispatch guard, cannot tell
// what was sent, and leaves a goroutine per host; its retry loop would be off anyway.
type exchange struct {
	request fasthttp.Request
	answer  fasthttp.Response
	reader  *bufio.Reader
	writer  *bufio.Writer
	scratch []byte
	signer  signer

	url    string // the last one taken apart
	target callURL
}

// reply is what an exchange learnt.
type reply struct {
	status     int // 0: no answer was understood
	retryAfter string
	sent       bool // some of the request left this machine
	keep       bool // the connection may be used again
}

// roundTrip writes the request that prepare filled in and reads the answer, until
// end at most, which is the connection's deadline already. Once the headers have been read, the status
// counts whatever becomes of the body.
func (x *exchange) roundTrip(c *conn, end time.Time) (reply, error) {
	if x.reader == nil {
		x.reader = bufio.NewReaderSize(nil, readBufferBytes)
		x.writer = bufio.NewWriterSize(nil, writeBufferBytes)
	}
	x.writer.Reset(c)
	x.reader.Reset(c)
	defer x.reader.Reset(nil) // keep no connection alive
	defer x.writer.Reset(nil)
	defer x.request.SetBodyRaw(nil)
	before := c.wire.written
	writeErr := x.request.Write(x.writer)
	if writeErr == nil {
		writeErr = x.writer.Flush()
	}
	r := reply{sent: c.wire.written > before}
	if writeErr != nil && (!r.sent || isTimeout(writeErr)) {
		return r, writeErr
	}
	// After a write that broke off, an answer may be waiting all the same: a
	// receiver that refuses a long body. The socket is dead, so this does not wait.
	if err := x.readHeaders(); err != nil {
		switch {
		case writeErr != nil:
			err = writeErr
		case err == errPeerClosed && c.wire.readErr != nil && c.wire.readErr != io.EOF:
			err = c.wire.readErr
		}
		return r, err
	}
	r.status = x.answer.StatusCode()
	if r.status == fasthttp.StatusTooManyRequests || r.status == fasthttp.StatusServiceUnavailable {
		r.retryAfter = string(x.answer.Header.Peek(fasthttp.HeaderRetryAfter))
	}
	r.keep = writeErr == nil && x.reusable() && x.drain(c, end) && x.reader.Buffered() == 0 && c.quiet()
	return r, nil
}

// prepare fills in the request. The header order and the spelling are ours: nothing
// is normalised on the way out.
func (x *exchange) prepare(req *Request, userAgent string, now time.Time) {
	r := &x.request
	r.Reset()
	h := &r.Header
	h.DisableNormalizing()
	h.DisableSpecialHeader() // all headers are plain lines, none is rewritten
	h.SetNoDefaultContentType(true)
	method := methodOf(req)
	h.SetMethod(method)
	x.setTarget()
	h.Add("Host", x.target.authority)
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
	if len(req.Secrets) > 0 {
		x.sign(req, now)
	}
}

// setTarget writes the user's own path and query; the path may be missing.
func (x *exchange) setTarget() {
	target := x.target.target
	if target == "" {
		target = "/"
	} else if target[0] == '?' {
		x.scratch = append(append(x.scratch[:0], '/'), target...)
		x.request.Header.SetRequestURIBytes(x.scratch)
		return
	}
	x.request.Header.SetRequestURI(target)
}

func (x *exchange) addIdentity(req *Request) {
	h := &x.request.Header
	h.Add("webhook-id", req.WebhookID)
	h.Add("Carillon-Topic", req.Topic)
	h.Add("Carillon-Timer", req.Timer)
	x.addInt("Carillon-Due", req.DueMs)
	x.addInt("Carillon-Attempt", int64(req.Attempt))
	x.scratch = strconv.AppendUint(x.scratch[:0], req.Fence, 10)
	h.AddBytesV("Carillon-Fence", x.scratch)
	if req.Receipt != "" {
		h.Add("Carillon-Receipt", req.Receipt)
	}
}

func (x *exchange) addInt(name string, v int64) {
	x.scratch = strconv.AppendInt(x.scratch[:0], v, 10)
	x.request.Header.AddBytesV(name, x.scratch)
}

// sign covers the body as it goes out, none with GET and DELETE, and the headers that
// say which call this is.
func (x *exchange) sign(req *Request, now time.Time) {
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
