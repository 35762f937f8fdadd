package api

import (
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"carillon/timer"
	"carillon/transport/api/internal/strictjson"
)

// request is one request on its way through a handler. It is used again for the next; nothing may
// keep it.
type request struct {
	s     *Server
	ctx   *fasthttp.RequestCtx
	route *route
	who   *principal // nil when the API is open
	core  *Core      // nil where the route is for a node alone
	query query

	topic string // from the path, valid; its own copy
	id    string
	node  string
	shard timer.ShardID

	body      []byte // as far as it has arrived; see receive
	received  bool   // all of it
	bodyTaken int64  // of the budget of bodies

	dryRun  bool // of a change of one timer: nothing is changed
	count   int  // how many the change was about, for the audit log
	audited bool // it has been recorded otherwise

	answer *answerRoom // of an answer that is bounded while it is made

	named      string        // by an Idempotency-Key; "": not
	trace      *timer.Trace  // that it is part of; nil: none
	topicID    timer.TopicID // of the life of the topic that ifMatch is a version of
	ifMatch    uint32        // 0: any version
	createOnly bool

	segments [][]byte
	pathBuf  []byte
	scratch  []byte

	// Of the request that this object served last: the next is often for the same.
	topicBefore string

	one reader // of a change of one timer
	// Room for the answer to an add or put, filled in when the engine has answered.
	created timer.Timer
}

var requests = sync.Pool{New: func() any { return &request{segments: make([][]byte, 0, maxSegments)} }}

// out is the response's own buffer, empty, to append the body to; json gives it back.
func (rq *request) out() []byte { return rq.ctx.Response.SwapBody(nil)[:0] }

func (rq *request) json(status int, body []byte) {
	rq.ctx.SetStatusCode(status)
	rq.ctx.Response.Header.SetContentType("application/json")
	rq.ctx.Response.SwapBody(body)
}

// mediaType checks Content-Type and Content-Encoding of a request that has a body.
func (rq *request) mediaType() (ndjson bool, p *problem) {
	h := &rq.ctx.Request.Header
	if enc := h.Peek("Content-Encoding"); len(enc) > 0 {
		return false, fail(415, "unsupported_media_type", "Content-Encoding is not supported: send the body as it is")
	}
	if string(h.ContentType()) == "application/json" || len(h.ContentType()) == 0 && len(rq.body) == 0 {
		return false, nil // an empty body needs no type; the scanner says that it is missing
	}
	kind, params, _ := strings.Cut(strings.ToLower(string(h.ContentType())), ";")
	kind, params = strings.TrimSpace(kind), strings.TrimSpace(params)
	utf8Only := params == "" || params == "charset=utf-8" || params == `charset="utf-8"`
	switch {
	case kind == "application/json" && utf8Only:
		return false, nil
	case kind == "application/x-ndjson" && utf8Only && rq.route.body == batchBody:
		return true, nil
	}
	want := "application/json"
	if rq.route.body == batchBody {
		want += " or application/x-ndjson"
	}
	return false, fail(415, "unsupported_media_type", "send the body with Content-Type: "+want+" (charset utf-8)")
}

// checkBody holds the request's body against the route's rule.
func (rq *request) checkBody() *problem {
	if p := rq.receive(); p != nil {
		return p
	}
	n := len(rq.body)
	switch rq.route.body {
	case noBody:
		if n > 0 {
			return badf(badRequest, "%s takes no body here", rq.route.method)
		}
	case emptyBody:
		if n == 0 {
			return nil
		}
		if _, p := rq.mediaType(); p != nil {
			return p
		}
		r := rq.reader()
		if r.Open('{', "body"); r.More(0, '}') {
			r.fail(unknown(r.Key(), nil))
		}
		r.End()
		return r.problem()
	}
	return nil
}

// reader makes a scanner of the body.
func (rq *request) reader() *reader { return rq.readerOf(rq.body) }

// readerOf takes over buf.
func (rq *request) readerOf(buf []byte) *reader {
	r := &reader{}
	rq.readInto(r, buf)
	return r
}

func (rq *request) readInto(r *reader, buf []byte) {
	r.begin(buf, &rq.s.cfg.Limits)
	r.urls = &rq.s.urls
}

func (r *reader) begin(buf []byte, limits *Limits) {
	*r = reader{Scanner: strictjson.Of(buf), limits: limits, refuse: refuseInTimer}
}
