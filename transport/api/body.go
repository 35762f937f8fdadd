package api

import (
	"errors"
	"io"

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

// announcesTooMuch refuses a body by the length that its header says.
func (rq *request) announcesTooMuch() *web.Problem {
	n, most := rq.Ctx.Request.Header.ContentLength(), rq.bodyLimit()
	switch {
	case n <= most:
		return nil
	case rq.route.body == noBody:
		return web.Badf(web.BadRequest, "%s takes no body here", rq.route.method)
	}
	return web.Failf(413, web.TooLarge, "the request body is larger than %d bytes", most)
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
	if p := rq.announcesTooMuch(); p != nil {
		return p
	}
	body := rq.Ctx.RequestBodyStream()
	if body == nil {
		return nil // none can come
	}
	size := n
	if n > web.SmallBody || n == chunked {
		size = web.SmallBody
	}
	rq.Body = make([]byte, 0, size)
	for {
		if len(rq.Body) == cap(rq.Body) && len(rq.Body) != n {
			if p := rq.growBody(n); p != nil {
				return p
			}
		}
		k, err := body.Read(rq.Body[len(rq.Body):cap(rq.Body)])
		rq.Body = rq.Body[:len(rq.Body)+k]
		switch {
		case len(rq.Body) == n || errors.Is(err, io.EOF):
			rq.received = true
			return nil
		case err != nil:
			return rq.broken(err)
		}
	}
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
		if !rq.s.bodyBudget.Take(rq.Address(), more) {
			return web.Fail(503, "overloaded", "the requests that are being received take as much memory as they may")
		}
		rq.bodyTaken += more
	}
	grown := make([]byte, len(rq.Body), size)
	copy(grown, rq.Body)
	rq.Body = grown
	return nil
}

// broken says how a body failed to arrive.
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

// expect decides whether the client, which has sent its header and waits, is to send the body.
func (s *Server) expect(ctx *fasthttp.RequestCtx) (status int) {
	status = fasthttp.StatusContinue
	s.handle(ctx, func(rq *request) *web.Problem {
		p := rq.admit()
		if p == nil {
			p = rq.announcesTooMuch()
		}
		if p != nil {
			status = p.Status
			rq.audit(p)
		}
		return p
	})
	return status
}
