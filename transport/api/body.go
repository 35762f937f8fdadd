package api

import (
	"errors"
	"io"
	"math/bits"
	"sync"

	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// prefetched is how much of a body fasthttp reads before the handler is called.
const prefetched = 8 << 10

// keptBody is the largest buffer, of a request's body and of an answer's, that a connection keeps
// for its next request. It holds the body of a batch of a hundred common timers; larger ones are
// made for each request, and dropped with the answer.
const keptBody = 64 << 10

// bodyLimit is the most that the route takes.
func (rq *request) bodyLimit() int {
	switch rq.route.body {
	case noBody:
		return 0
	case batchBody:
		return rq.Limits.BatchBytes
	}
	return rq.Limits.BodyBytes
}

// announced refuses a body by what the header says of it.
func (rq *request) announced() *web.Problem {
	n, most := rq.Ctx.Request.Header.ContentLength(), rq.bodyLimit()
	switch {
	case n > 0 && rq.route.body == noBody:
		return web.Badf(web.BadRequest, "%s takes no body here", rq.route.method)
	case n > most:
		return web.Failf(413, web.TooLarge, "the request body is larger than %d bytes", most)
	case n == 0 || n == bodyless:
		return nil
	}
	_, p := rq.MediaType(rq.route.body == batchBody)
	return p
}

// receive reads the body, which fasthttp has left where it is but for its beginning: not before it
// is known that the client may send it, and sends it to where it belongs. The body lives as long as
// anything points into it: commands carry strings and payloads out of it into the engine, which may
// keep them longer than this request lasts.
func (rq *request) receive() *web.Problem {
	n := rq.Ctx.Request.Header.ContentLength()
	if n == 0 || n == bodyless {
		rq.received = true
		return nil
	}
	if p := rq.announced(); p != nil {
		return p
	}
	body := rq.Ctx.RequestBodyStream()
	if body == nil {
		return nil // none can come
	}
	switch {
	case n > web.SmallBody:
		rq.part = partOf(web.SmallBody)
		rq.Body = rq.part.room[:0]
	case n == chunked:
		rq.Body = make([]byte, 0, web.SmallBody)
	default:
		rq.Body = make([]byte, 0, n)
	}
	for {
		if len(rq.Body) == cap(rq.Body) && len(rq.Body) != n {
			if p := rq.growBody(n); p != nil {
				return p
			}
		}
		k, err := body.Read(rq.Body[len(rq.Body):cap(rq.Body)])
		rq.Body = rq.Body[:len(rq.Body)+k]
		switch {
		case len(rq.Body) == n || n == chunked && errors.Is(err, io.EOF) && !rq.cutOff():
			rq.received = true
			return nil
		case err != nil:
			return rq.broken(err)
		}
	}
}

// cutOff reports whether the client's side of the connection has ended. No body ends by that. The
// reader of one in chunks gives the same error for its last chunk and for the end between two.
func (rq *request) cutOff() bool {
	c, ok := rq.Ctx.Conn().(*framedConn)
	return ok && c.ended
}

// Lengths that fasthttp gives for a body without one.
const (
	chunked  = -1
	bodyless = -2
)

// growBody makes room for more, in proportion to the bytes that have arrived, and no more than a
// body of n bytes needs it.
func (rq *request) growBody(n int) *web.Problem {
	most := rq.bodyLimit()
	if len(rq.Body) > most {
		return web.Failf(413, web.TooLarge, "the request body is larger than %d bytes", most)
	}
	size := min(2*max(cap(rq.Body), 2*web.SmallBody), most+1)
	if n > 0 {
		size = min(size, n)
	}
	if size > web.SmallBody {
		more := int64(size) - rq.bodyTaken
		if !rq.s.bodyBudget.Take(rq.Sender(), more) {
			return web.Fail(503, "overloaded", "the requests that are being received take as much memory as they may")
		}
		rq.bodyTaken += more
	}
	var in *part
	var grown []byte
	if size < n { // it will move once more, before anything points into it
		in = partOf(size)
	}
	if in != nil {
		grown = in.room[:len(rq.Body):size]
	} else {
		grown = make([]byte, len(rq.Body), size)
	}
	copy(grown, rq.Body)
	rq.dropPart()
	rq.Body, rq.part = grown, in
	return nil
}

// part is an array for bodies that arrive. It is used again for other bodies, and is as large as it
// is counted, so that the budget bounds the parts in use.
type part struct {
	room []byte
	pool *sync.Pool // that it is of
}

// parts are pools of arrays of web.SmallBody bytes, of twice as many, and so on.
var parts [10]sync.Pool

// partOf is an array of so many bytes; nil for a size of which there are none.
func partOf(size int) *part {
	k := bits.Len(uint(size/web.SmallBody)) - 1
	if k < 0 || k >= len(parts) || size != web.SmallBody<<k {
		return nil
	}
	if in, ok := parts[k].Get().(*part); ok {
		return in
	}
	return &part{room: make([]byte, size), pool: &parts[k]}
}

// dropPart gives the array back in which the body has arrived so far.
func (rq *request) dropPart() {
	if rq.part != nil {
		rq.part.pool.Put(rq.part)
		rq.part = nil
	}
}

// broken is the problem of a body that failed to arrive.
func (rq *request) broken(err error) *web.Problem {
	if c, ok := rq.Ctx.Conn().(*framedConn); ok {
		switch {
		case c.fault != nil:
			return framingFault(c.fault)
		case c.timedOut:
			return tooSlow()
		}
	}
	return faultOf(err)
}

func tooSlow() *web.Problem {
	return web.Fail(408, web.BadRequest, "the request did not arrive in time")
}

// unread reports whether bytes of the body are still to come: then the connection cannot take
// another request.
func (rq *request) unread() bool {
	n := rq.Ctx.Request.Header.ContentLength()
	return !rq.received && (n == chunked || n > prefetched)
}

// expect decides whether the client, which has sent its header and waits, is to send the body. If
// so, the request is dispatched when that has come, and counts from then on.
func (s *Server) expect(ctx *fasthttp.RequestCtx) (status int) {
	status = fasthttp.StatusContinue
	s.handle(ctx, func(rq *request) *web.Problem {
		rq.expected = true
		p := rq.admit()
		if p == nil {
			p = rq.announced()
		}
		if p != nil {
			status, rq.expected = p.Status, false
			rq.audit(p)
		}
		return p
	})
	return status
}
