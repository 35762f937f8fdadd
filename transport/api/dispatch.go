package api

import (
	"runtime/debug"
	"time"

	"carillon/transport/api/internal/http1"

	"github.com/valyala/fasthttp"
)

// serve answers one request.
func (s *Server) serve(ctx *fasthttp.RequestCtx) { s.handle(ctx, (*request).dispatch) }

// handle has a request answered by do. A panic in a handler costs that request only.
func (s *Server) handle(ctx *fasthttp.RequestCtx, do func(*request) *problem) {
	rq := requests.Get().(*request)
	rq.s, rq.ctx = s, ctx
	var begun time.Time
	if s.cfg.Observe != nil {
		begun = time.Now()
	}
	if c, ok := ctx.Conn().(*framedConn); ok {
		c.written() // several requests may come with one Read
	}
	defer func() {
		defer noSniff(ctx)
		if rq.bodyTaken > 0 {
			s.bodyBudget.give(rq.address(), rq.bodyTaken)
		}
		if rq.unread() {
			rq.closeAfter()
		}
		if v := recover(); v != nil {
			s.answers.give(rq.address(), rq.answer.end())
			s.cfg.Logger.Error("panic in a handler", "method", string(ctx.Method()), "panic", v, "stack", string(debug.Stack()))
			ctx.Response.Reset()
			failed := fail(500, internalError, "this request could not be answered; it may have taken effect")
			rq.audit(failed)
			writeProblem(ctx, failed)
			ctx.SetConnectionClose()
			s.observe(rq.route, 500, begun)
			return // the request object may be in any state: not used again
		}
		s.observe(rq.route, ctx.Response.StatusCode(), begun)
		*rq = request{segments: rq.segments[:0], pathBuf: rq.pathBuf[:0], scratch: rq.scratch[:0], topicBefore: rq.topicBefore}
		requests.Put(rq)
	}()
	if p := do(rq); p != nil {
		s.logCause(p)
		writeProblem(ctx, p)
	}
	rq.keepAnswer()
}

var sniffHeader, sniffNot = []byte("X-Content-Type-Options"), []byte("nosniff")

// noSniff keeps a browser from guessing another type than an answer's Content-Type.
func noSniff(ctx *fasthttp.RequestCtx) { ctx.Response.Header.SetCanonical(sniffHeader, sniffNot) }

// observe tells of a request that was answered; r is nil where it was for none of the routes.
func (s *Server) observe(r *route, status int, begun time.Time) {
	if s.cfg.Observe == nil {
		return
	}
	number, took := 0, time.Duration(0)
	if r != nil {
		number = r.number
	}
	if !begun.IsZero() {
		took = time.Since(begun)
	}
	s.cfg.Observe(number, status, took)
}

// closeAfter ends the connection with the answer, which the client is given a moment to read
// although it is still sending.
func (rq *request) closeAfter() {
	rq.ctx.SetConnectionClose()
	if c, ok := rq.ctx.Conn().(*framedConn); ok {
		c.lingering.Store(true)
	}
}

// logCause keeps an error that has no place in the contract from being lost.
func (s *Server) logCause(p *problem) {
	if p.cause != nil {
		s.cfg.Logger.Error("the engine failed", "error", p.cause)
	}
}

// dispatch goes from the outside in: all that the header says, then the body.
func (rq *request) dispatch() *problem {
	p := rq.admit()
	if p == nil {
		p = rq.checkBody()
	}
	if p == nil && !rq.route.alone && rq.route.scope != scopeOpen {
		p = rq.findCore()
	}
	if p == nil {
		p = rq.route.handle(rq)
	}
	rq.audit(p)
	return p
}

// findCore asks the node for what it does in its cluster, once for the whole request.
func (rq *request) findCore() *problem {
	core, err := rq.s.cfg.Engine.Core()
	if err != nil {
		return engineFault(err)
	}
	rq.core = core
	return nil
}

// admit finds out whether the request may be made: target, host, path, origin, token, method,
// topic, query, conditions.
func (rq *request) admit() *problem {
	target := rq.ctx.Request.Header.RequestURI()
	if len(target) > rq.s.cfg.Limits.TargetBytes {
		return fail(414, tooLarge, "the request target is too long")
	}
	if p := rq.checkHost(target); p != nil {
		return p
	}
	path, rawQuery, ok := http1.SplitTarget(target)
	if !ok {
		if string(target) == "*" {
			return &problem{status: 405, code: "method_not_allowed", detail: "no method goes with *", allow: "GET, HEAD, POST, PUT, PATCH, DELETE"}
		}
		return bad(badRequest, "the request target is not a path")
	}
	var fault *http1.Fault
	if rq.segments, rq.pathBuf, fault = http1.SplitPath(path, rq.pathBuf, rq.segments, maxSegments); fault != nil {
		return framingFault(fault)
	}
	pat := rq.s.router.find(rq.segments)
	if pat == nil {
		pat = rq.console()
	}
	if p := rq.checkOrigin(pat); p != nil {
		return p
	}
	if rq.asksLeave(pat) {
		rq.route = &preflightRoute
		return nil
	}
	if p := rq.authenticate(pat); p != nil {
		return p
	}
	if pat == nil {
		return fail(404, notFound, "there is nothing at this path")
	}
	if rq.route = pat.method(rq.ctx.Method()); rq.route == nil {
		return &problem{status: 405, code: "method_not_allowed", detail: "this path takes " + pat.allow, allow: pat.allow}
	}
	if c, ok := rq.ctx.Conn().(*framedConn); ok && c.probing() {
		rq.ctx.SetConnectionClose()
		if rq.route.scope != scopeOpen {
			return fail(503, "overloaded", "too many connections; this one may only ask for /healthz and /readyz")
		}
	}
	if p := rq.pathParams(pat); p != nil {
		return p
	}
	if p := rq.authorise(); p != nil {
		return p
	}
	var p *problem
	if rq.query, p = parseQuery(rawQuery, rq.route.query); p != nil {
		return p
	}
	if rq.route.method != "GET" {
		if rq.ifMatch, rq.createOnly, p = rq.condition(); p != nil {
			return p
		}
		rq.trace = rq.readTrace()
		if rq.route.method == "POST" || rq.route.method == "PATCH" {
			if rq.named, p = rq.idempotencyKey(); p != nil {
				return p
			}
		}
	}
	if p := rq.mayAnswer(); p != nil {
		return p
	}
	switch {
	case rq.route.change:
		return rq.charge(quotaChanges)
	case rq.route.method == "GET" && rq.route.scope != scopeOpen:
		return rq.charge(quotaReads)
	}
	return nil
}

func (rq *request) pathParams(pat *pattern) *problem {
	if topic := pat.param("{topic}", rq.segments); topic != nil {
		if string(topic) != rq.topicBefore {
			rq.topicBefore = string(topic)
		}
		rq.topic = rq.topicBefore
		if !validTopic(rq.topic) {
			return bad(badName, "topic: must be 1–128 of A-Z a-z 0-9 _ . -, starting with a letter or digit")
		}
	}
	if id := pat.param("{id}", rq.segments); id != nil {
		rq.id = string(id)
		if !validID(rq.id) {
			return bad(badName, "id: "+idRule)
		}
	}
	if node := pat.param("{name}", rq.segments); node != nil {
		rq.node = string(node)
		if !validNode(rq.node) {
			return bad(badName, "name: must be 1–63 of A-Z a-z 0-9 _ . -, starting with a letter or digit")
		}
	}
	if n := pat.param("{n}", rq.segments); n != nil {
		var ok bool
		if rq.shard, ok = parseShard(n); !ok {
			return bad(badRequest, "shard: must be a number, in digits only")
		}
	}
	return nil
}
