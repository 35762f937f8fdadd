// Package web is what a handler of the API needs from a request: its body, read strictly; its
// query, topic and conditions; what its token may do; and the answer, in JSON or as a Problem. It
// knows nothing of sockets and routes (package api) and of no resource.
package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/netip"
	"strings"

	"carillon/timer"
	"carillon/transport/api/backend"

	"github.com/valyala/fasthttp"
)

// Request is one request, and its answer, as a handler sees it. Nothing may keep it.
type Request struct {
	*Node
	Ctx   *fasthttp.RequestCtx
	Who   *Principal    // nil when the API is open
	Scope Scope         // that its route needs
	Core  *backend.Core // nil where the route is for a node alone
	Query Query

	Topic    string // from the path, valid; its own copy
	ID       string
	NodeName string // the node of the path
	Shard    timer.ShardID

	Body []byte
	// Bare: it has no header besides those that nearly every client sends; see Optional.
	Bare bool

	DryRun   bool      // only what would be is asked for: nothing is changed
	Count    int       // how many the change was about, for the audit log
	Unlogged bool      // it changes nothing, for the audit log
	Outcomes []Outcome // of a batch, for the audit log, which has each by itself

	Answer *Room // of an answer that is bounded while it is made

	OnceKey    string        // an Idempotency-Key; "": none
	Trace      *timer.Trace  // that it is part of; nil: none
	TopicID    timer.TopicID // of the life of the topic that IfMatch is a version of
	IfMatch    uint32        // 0: any version
	CreateOnly bool

	Scratch []byte
	reader  Reader // of its body
	// Room for the answer to an add or put, filled in when the engine has answered.
	Created timer.Timer
}

// Outcome is that of one operation of a batch.
type Outcome struct {
	Verb, ID string // "" where it could not be read
	Status   int
	Refused  bool
}

// Conn is the client's connection; nil in a test without one.
func (rq *Request) Conn() Conn {
	c, _ := rq.Ctx.Conn().(Conn)
	return c
}

// Address is the key by which the client's shares are counted.
func (rq *Request) Address() netip.Addr {
	if c := rq.Conn(); c != nil {
		return c.ClientAddress()
	}
	return netip.Addr{}
}

// Sender owns what a client has the server hold: a token, from whatever addresses it comes; or an
// address, if the API asks for no token.
type Sender struct {
	token   [sha256.Size]byte
	address netip.Addr
}

func (rq *Request) Sender() Sender {
	if rq.Who != nil {
		return Sender{token: rq.Who.Sum}
	}
	return Sender{address: rq.Address()}
}

// Optional are the values of a header that few requests have. A header is searched for by its name,
// so one that has none of these is spared all searches.
func (rq *Request) Optional(name string) [][]byte {
	if rq.Bare {
		return nil
	}
	return rq.Ctx.Request.Header.PeekAll(name)
}

// Out is the response's own buffer, empty, to append the body to; JSON gives it back.
func (rq *Request) Out() []byte { return rq.Ctx.Response.SwapBody(nil)[:0] }

// JSON answers with a body. It returns nil, so that a handler can end with it.
func (rq *Request) JSON(status int, body []byte) *Problem {
	rq.Ctx.SetStatusCode(status)
	rq.Ctx.Response.Header.SetContentType("application/json")
	rq.Ctx.Response.SwapBody(body)
	return nil
}

// Value is JSON of a value, for answers that are not asked for often.
func (rq *Request) Value(status int, v any) *Problem {
	out := bytes.NewBuffer(rq.Out())
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return Fault(err)
	}
	return rq.JSON(status, bytes.TrimSuffix(out.Bytes(), []byte{'\n'}))
}

// MediaType checks Content-Type and Content-Encoding of a request that has a body. lines: it may be
// one JSON document a line.
func (rq *Request) MediaType(lines bool) (ndjson bool, p *Problem) {
	h := &rq.Ctx.Request.Header
	if enc := rq.Optional("Content-Encoding"); len(enc) > 0 && len(enc[0]) > 0 {
		return false, Fail(415, "unsupported_media_type", "Content-Encoding is not supported: send the body as it is")
	}
	if string(h.ContentType()) == "application/json" || len(h.ContentType()) == 0 && len(rq.Body) == 0 {
		return false, nil // an empty body needs no type; the scanner reports that it is missing
	}
	kind, params, _ := strings.Cut(strings.ToLower(string(h.ContentType())), ";")
	kind, params = strings.TrimSpace(kind), strings.TrimSpace(params)
	utf8Only := params == "" || params == "charset=utf-8" || params == `charset="utf-8"`
	switch {
	case kind == "application/json" && utf8Only:
		return false, nil
	case kind == "application/x-ndjson" && utf8Only && lines:
		return true, nil
	}
	want := "application/json"
	if lines {
		want += " or application/x-ndjson"
	}
	return false, Fail(415, "unsupported_media_type", "send the body with Content-Type: "+want+" (charset utf-8)")
}

// Reader reads the body, which must be JSON. That it is not is the reader's first fault.
func (rq *Request) Reader() *Reader {
	r := rq.ReaderOf(rq.Body)
	if _, p := rq.MediaType(false); p != nil {
		r.Restate(p)
	}
	return r
}

// ReaderOf takes over buf, and the reader before.
func (rq *Request) ReaderOf(buf []byte) *Reader {
	rq.reader.begin(buf, &rq.Limits)
	rq.reader.URLs = &rq.URLs
	return &rq.reader
}
