package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"carillon/transport/api/bulkrun"
	"carillon/transport/api/events"
	"carillon/transport/api/internal/http1"
	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// Server answers the HTTP API of a node.
type Server struct {
	cfg        Config
	router     *router
	node       web.Node
	bodyBudget budget
	answers    budget
	hosts      []ownHost       // of Config.Hosts
	origins    map[string]bool // of Config.Origins
	http       *fasthttp.Server

	listening atomic.Pointer[listener] // Serve's

	stop, end context.CancelFunc // of the node's base and ending

	bulks, streams, polls *places

	refusals refusals
}

// New makes a server. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg = cfg.withDefaults(); cfg.Engine == nil {
		return nil, errors.New("api: no engine")
	}
	s := &Server{cfg: cfg, router: newRouter(routes)}
	var err error
	if s.hosts, err = parseHosts(cfg.Hosts); err != nil {
		return nil, fmt.Errorf("api: hosts: %w", err)
	}
	if s.origins, err = parseOrigins(cfg.Origins); err != nil {
		return nil, fmt.Errorf("api: origins: %w", err)
	}
	s.bulks, s.streams = newPlaces("bulk changes under way", bulkrun.AtOnce), newPlaces("streams of events open", events.StreamsAtOnce)
	s.polls = newPlaces("pulls that wait", cfg.Limits.Connections/2)
	s.node = web.Node{Settings: cfg.Settings, Salt: cfg.Rand(), Audits: cfg.Audit != nil, Principal: cfg.Auth.principal,
		Answers: &s.answers, Bulks: s.bulks, Streams: s.streams, Polls: s.polls, Backups: make(chan struct{}, 1), Beat: events.StreamBeat}
	s.node.Base, s.stop = context.WithCancel(context.Background())
	s.node.Ending, s.end = context.WithCancel(s.node.Base)
	s.refusals.record, s.refusals.now = cfg.Audit, cfg.Now
	l := &s.cfg.Limits
	s.bodyBudget.limit, s.answers.limit = int64(l.BodiesBytes), int64(l.AnswersBytes)
	// The process's, and without a limit: each connection would keep its largest.
	fasthttp.SetBodySizePoolLimit(keptBody, keptBody)
	s.http = &fasthttp.Server{
		Handler:        s.serve,
		ErrorHandler:   s.answerFault,
		HeaderReceived: s.headerReceived,
		ExpectHandler:  s.expect,
		Logger:         fasthttpLog{cfg.Logger},

		Concurrency:        l.Connections + probeRoom + 1, // ours is the limit that is met first
		ReadBufferSize:     l.HeaderBytes + 512,
		StreamRequestBody:  true, // see receive
		MaxRequestBodySize: max(l.BodyBytes, l.BatchBytes),
		ReadTimeout:        l.HeaderTimeout,
		IdleTimeout:        l.IdleTimeout,
		WriteTimeout:       l.WriteTimeout,

		DisablePreParseMultipartForm: true,
		SecureErrorLogMessage:        true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
	}
	return s, nil
}

// Serve answers requests on ln until ctx ends; then it takes no more, closes idle connections, lets
// requests in flight finish within the grace, and gives those that are still arriving a moment. It
// closes ln. A Server serves once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	framed := newListener(ln, &s.cfg.Limits, &s.answers, s.cfg.TLS, s.cfg.Logger)
	defer s.stop()
	s.listening.Store(framed)
	defer framed.release()
	counting, stopCounting := context.WithCancel(context.Background())
	var counter sync.WaitGroup
	counter.Go(func() { s.refusals.run(counting) })
	defer func() { // when nothing is answered any more
		stopCounting()
		counter.Wait()
	}()
	served := make(chan struct{})
	var failure error
	go func() {
		defer close(served)
		failure = s.http.Serve(framed)
	}()
	select {
	case <-served:
		framed.closeWhere(func(*framedConn) bool { return true })
		if failure == nil {
			failure = errors.New("the listener was closed")
		}
		return fmt.Errorf("api: serve: %w", failure)
	case <-ctx.Done():
	}
	s.end()
	grace, cancel := context.WithTimeout(context.Background(), s.cfg.Limits.Grace)
	defer cancel()
	// fasthttp leaves connections alone that have not sent anything yet.
	framed.closeWhere(func(c *framedConn) bool { return !c.begun.Load() })
	// A client that sends half a request and then nothing would hold the whole grace.
	unfinished := time.AfterFunc(s.cfg.Limits.Unfinished, framed.endReading)
	defer unfinished.Stop()
	err := s.http.ShutdownWithContext(grace)
	s.stop()
	framed.closeWhere(func(*framedConn) bool { return true })
	_ = framed.Close() // fasthttp may not know the listener yet: then its shutdown closed nothing
	<-served
	if err != nil {
		return fmt.Errorf("api: requests were still in flight when the grace of %v was over: %w", s.cfg.Limits.Grace, err)
	}
	return nil
}

// headerReceived sets the time for the body, now that the header is in. Of a large one fasthttp
// need not read more than it must before it calls the handler, which may refuse it.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	c := fasthttp.RequestConfig{ReadTimeout: s.cfg.Limits.BodyTimeout}
	if h.ContentLength() > web.SmallBody {
		c.MaxRequestBodySize = 1
	}
	return c
}

// answerFault answers an error below the handlers; fasthttp closes the connection after it.
func (s *Server) answerFault(ctx *fasthttp.RequestCtx, err error) {
	p := faultOf(err)
	if c, ok := ctx.Conn().(*framedConn); ok {
		c.lingering.Store(true)
		// fasthttp does not always pass on the connection's error.
		switch {
		case c.fault != nil:
			p = framingFault(c.fault)
		case c.timedOut:
			p = tooSlow()
		}
	}
	ctx.Response.Reset()
	ctx.SetConnectionClose()
	web.WriteProblem(ctx, p)
	noSniff(ctx)
	s.observe(nil, p.Status, time.Time{})
}

func faultOf(err error) *web.Problem {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		return web.Fail(431, web.TooLarge, "the request header is too large")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return web.Fail(413, web.TooLarge, "the request body is too large")
	}
	return web.Bad(web.BadRequest, "not a well-formed HTTP request")
}

// rawProblem is a whole response, for a connection that fasthttp never sees.
func rawProblem(p *web.Problem) []byte {
	body := web.AppendProblem(nil, p)
	b := []byte("HTTP/1.1 " + strconv.Itoa(p.Status) + " " + fasthttp.StatusMessage(p.Status) + "\r\n")
	if seconds := p.RetrySeconds(); seconds > 0 {
		b = append(b, "Retry-After: "+strconv.Itoa(seconds)+"\r\n"...)
	}
	b = append(b, "Content-Type: application/problem+json\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	return append(append(b, "\r\n\r\n"...), body...)
}

// fasthttpLog brings fasthttp's own messages into our log.
type fasthttpLog struct{ to *slog.Logger }

func (l fasthttpLog) Printf(format string, args ...any) {
	l.to.Debug("http: " + fmt.Sprintf(format, args...))
}

// framingFault is the answer to a request that was stopped before it was whole, or whose target is
// none.
func framingFault(f *http1.Fault) *web.Problem {
	if f.Status == 400 {
		return web.Bad(web.BadRequest, f.Detail)
	}
	return web.Fail(f.Status, web.TooLarge, f.Detail)
}

// ForgetURLs is to be called when RefusedURL may answer otherwise than before.
func (s *Server) ForgetURLs() { s.node.URLs.Forget() }
