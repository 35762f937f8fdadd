package api

import (
	"runtime/debug"
	"strings"
	"time"

	"carillon/internal/tracing"
	"carillon/timer"
	"carillon/transport/api/internal/http1"
	"carillon/transport/api/internal/strictjson"
	"carillon/transport/api/timers"
	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// serve answers one request.
func (s *Server) serve(ctx *fasthttp.RequestCtx) { s.handle(ctx, (*request).dispatch) }

// handle has a request answered by do. A panic in a handler costs that request only.
func (s *Server) handle(ctx *fasthttp.RequestCtx, do func(*request) *web.Problem) {
	rq := requests.Get().(*request)
	rq.s, rq.Node, rq.Ctx = s, &s.node, ctx
	var begun time.Time
	if s.cfg.Observe != nil || s.cfg.Tracer != nil {
		begun = time.Now()
	}
	if c, ok := ctx.Conn().(*framedConn); ok {
		c.written() // several requests may come with one Read
		rq.Bare = !c.framer.Extra()
	}
	defer func() {
		defer noSniff(ctx)
		if rq.bodyTaken > 0 {
			s.bodyBudget.Give(rq.Sender(), rq.bodyTaken)
		}
		rq.dropPart() // it has not arrived whole
		if rq.unread() && !rq.expected {
			rq.closeAfter()
		}
		if v := recover(); v != nil {
			s.answers.Give(rq.Sender(), rq.Answer.End())
			s.cfg.Logger.Error("panic in a handler", "method", string(ctx.Method()), "panic", v, "stack", string(debug.Stack()))
			ctx.Response.Reset()
			failed := web.Fail(500, web.InternalError, "this request could not be answered; it may have taken effect")
			rq.audit(failed)
			web.WriteProblem(ctx, failed)
			ctx.SetConnectionClose()
			s.observe(rq.route, 500, begun)
			rq.endSpan(500, begun)
			return // the request object may be in any state: not used again
		}
		if !rq.expected { // it is not answered yet
			s.observe(rq.route, ctx.Response.StatusCode(), begun)
			rq.endSpan(ctx.Response.StatusCode(), begun)
		}
		*rq = request{Request: web.Request{Scratch: rq.Scratch[:0]}, segments: rq.segments[:0], pathBuf: rq.pathBuf[:0], topicBefore: rq.topicBefore}
		requests.Put(rq)
	}()
	if p := do(rq); p != nil {
		rq.LogCause(p)
		web.WriteProblem(ctx, p)
	}
	rq.keepAnswer()
}

var sniffHeader, sniffNot = []byte("X-Content-Type-Options"), []byte("nosniff")

// noSniff keeps a browser from guessing another type than an answer's Content-Type.
func noSniff(ctx *fasthttp.RequestCtx) { ctx.Response.Header.SetCanonical(sniffHeader, sniffNot) }

// observe reports a request that was answered; r is nil where it was for none of the routes.
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

// beginSpan decides whether a change is traced. What it makes continues its span then.
func (rq *request) beginSpan() {
	if rq.route.audit == "" {
		return
	}
	if rq.span = rq.s.cfg.Tracer.Begin(rq.Trace); rq.span != nil {
		rq.Trace = rq.span.Trace
	}
}

func (rq *request) endSpan(status int, begun time.Time) {
	if rq.span != nil {
		rq.s.cfg.Tracer.End(rq.span, &tracing.Change{
			Method: rq.route.method, Path: rq.route.path, Topic: rq.Topic, Timer: rq.ID, Status: status, Begun: begun, Took: time.Since(begun),
		})
	}
}

// closeAfter ends the connection with the answer, which the client is given a moment to read
// although it is still sending.
func (rq *request) closeAfter() {
	rq.Ctx.SetConnectionClose()
	if c, ok := rq.Ctx.Conn().(*framedConn); ok {
		c.lingering.Store(true)
	}
}

// dispatch works from the outside in: all that is in the header, then the body.
func (rq *request) dispatch() *web.Problem {
	p := rq.admit()
	if p == nil {
		p = rq.charge()
	}
	if p == nil {
		p = rq.checkBody()
	}
	if p == nil && !rq.route.alone && rq.route.scope != web.ScopeOpen {
		p = rq.findCore()
	}
	if p == nil {
		p = rq.route.handle(rq)
	}
	rq.audit(p)
	return p
}

// findCore asks the node for what it does in its cluster, once for the whole request.
func (rq *request) findCore() *web.Problem {
	core, err := rq.Engine.Core()
	if err != nil {
		return web.Fault(err)
	}
	rq.Core = core
	return nil
}

// admit finds out whether the request may be made: target, host, path, origin, token, method,
// topic, query, conditions.
func (rq *request) admit() *web.Problem {
	target := rq.Ctx.Request.Header.RequestURI()
	if len(target) > rq.Limits.TargetBytes {
		return web.Fail(414, web.TooLarge, "the request target is too long")
	}
	if p := rq.checkHost(target); p != nil {
		return p
	}
	path, rawQuery, ok := http1.SplitTarget(target)
	if !ok {
		if string(target) == "*" {
			return &web.Problem{Status: 405, Code: "method_not_allowed", Detail: "no method goes with *", Allow: "GET, HEAD, POST, PUT, PATCH, DELETE"}
		}
		return web.Bad(web.BadRequest, "the request target is not a path")
	}
	var fault *http1.Fault
	if rq.segments, rq.pathBuf, fault = http1.SplitPath(path, rq.pathBuf, rq.segments, maxSegments); fault != nil {
		if p := nameFault(rq.s.router.next(rq.segments)); p != nil && fault == http1.NoName {
			return p
		}
		return framingFault(fault)
	}
	pat := rq.s.router.find(rq.segments)
	if pat == nil {
		pat = rq.page()
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
	slash := ""
	if last := len(rq.segments) - 1; last > 0 && len(rq.segments[last]) == 0 {
		slash = "; it ends with a slash, which must go"
	}
	if pat == nil {
		return web.Fail(404, web.NotFound, "there is nothing at this path"+slash)
	}
	if rq.route = pat.method(rq.Ctx.Method()); rq.route == nil && slash != "" {
		return web.Fail(404, web.NotFound, "there is nothing at this path"+slash)
	} else if rq.route == nil {
		return &web.Problem{Status: 405, Code: "method_not_allowed", Detail: "this path takes " + pat.allow, Allow: pat.allow}
	}
	if c, ok := rq.Ctx.Conn().(*framedConn); ok && c.probing() {
		rq.Ctx.SetConnectionClose()
		if rq.route.scope != web.ScopeOpen {
			return web.Fail(503, "overloaded", "too many connections; this one may only ask for /healthz and /readyz")
		}
	}
	if p := rq.pathParams(pat); p != nil {
		if slash != "" {
			p.Detail += "; the path ends with a slash, which must go"
		}
		return p
	}
	if p := rq.authorise(); p != nil {
		return p
	}
	rq.Query = web.ParseQuery(rawQuery, rq.route.query)
	rq.DryRun = rq.Query.Boolean("dry_run", false)
	p := rq.Query.Problem()
	if rq.Unlogged = rq.DryRun; p != nil {
		return p
	}
	if rq.route.method != "GET" {
		if p = rq.condition(); p != nil {
			return p
		}
		if !rq.expected {
			rq.Trace = rq.readTrace()
			rq.beginSpan()
		}
		if rq.route.method == "POST" || rq.route.method == "PATCH" {
			if rq.OnceKey, p = rq.idempotencyKey(); p != nil {
				return p
			}
		}
	}
	return rq.mayAnswer()
}

// charge counts the request by the quotas of its token.
func (rq *request) charge() *web.Problem {
	switch {
	case rq.route.change:
		return rq.Charge(web.QuotaChanges)
	case rq.route.method == "GET" && rq.route.scope != web.ScopeOpen:
		return rq.Charge(web.QuotaReads)
	}
	return nil
}

func (rq *request) pathParams(pat *pattern) *web.Problem {
	if topic := pat.param("{topic}", rq.segments); topic != nil {
		if string(topic) != rq.topicBefore {
			rq.topicBefore = string(topic)
		}
		rq.Topic = rq.topicBefore
		if !web.ValidTopic(rq.Topic) {
			return nameFault("{topic}")
		}
	}
	if id := pat.param("{id}", rq.segments); id != nil {
		rq.ID = string(id)
		if !web.ValidID(rq.ID) {
			return nameFault("{id}")
		}
	}
	if node := pat.param("{name}", rq.segments); node != nil {
		rq.NodeName = string(node)
		if !web.ValidNode(rq.NodeName) {
			return nameFault("{name}")
		}
	}
	if n := pat.param("{n}", rq.segments); n != nil {
		var ok bool
		if rq.Shard, ok = parseShard(n); !ok {
			return web.Bad(web.BadRequest, "shard: must be a number, in digits only")
		}
	}
	return nil
}

// nameFault has the rule for the names that stand at a place of a path, nil where none does.
func nameFault(place string) *web.Problem {
	switch place {
	case "{topic}":
		return web.Bad(web.BadName, "topic: must be 1–128 of A-Z a-z 0-9 _ . -, starting with a letter or digit")
	case "{id}":
		return web.Bad(web.BadName, "id: "+timers.IDRule)
	case "{name}":
		return web.Bad(web.BadName, "name: must be 1–63 of A-Z a-z 0-9 _ . -, starting with a letter or digit")
	}
	return nil
}

// parseShard reads a shard's number; one that no cluster has (ok, but 0) is left to be not found.
func parseShard(s []byte) (id timer.ShardID, ok bool) {
	n, ok := strictjson.ParseInteger(s)
	if !ok || n < 0 {
		return 0, false
	}
	if n > 65535 {
		return 0, true
	}
	return timer.ShardID(n), true
}

// readTrace is the context that a request came with; nil when it has none, or none that can be
// read.
func (rq *request) readTrace() *timer.Trace {
	parents := rq.Optional("Traceparent")
	if len(parents) != 1 {
		return nil
	}
	parent := string(parents[0])
	var states []string
	for _, line := range rq.Optional("Tracestate") {
		states = append(states, string(line))
	}
	return timer.ParseTrace(parent, strings.Join(states, ","))
}
