package api

import (
	"sync"

	"carillon/internal/tracing"
	"carillon/transport/api/web"
)

// request is one request on its way through the server. It is used again for the next; nothing may
// keep it.
type request struct {
	web.Request
	s     *Server
	route *route
	span  *tracing.Span // nil: the request is not traced

	expected  bool  // the client waits with the body for leave, which it gets: see Server.expect
	received  bool  // the whole body
	bodyTaken int64 // of the budget of bodies
	part      *part // Body lies in it while it arrives; nil: in an array of its own

	segments [][]byte
	pathBuf  []byte

	// Of the request that this object served last: the next is often for the same.
	topicBefore string
}

var requests = sync.Pool{New: func() any { return &request{segments: make([][]byte, 0, maxSegments)} }}

// checkBody holds the request's body against the route's rule.
func (rq *request) checkBody() *web.Problem {
	if p := rq.receive(); p != nil {
		return p
	}
	n := len(rq.Body)
	switch rq.route.body {
	case noBody:
		if n > 0 {
			return web.Badf(web.BadRequest, "%s takes no body here", rq.route.method)
		}
	case emptyBody:
		if n == 0 {
			return nil
		}
		r := rq.Reader()
		r.Body(nil, nil)
		return r.Problem()
	}
	return nil
}
