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

	"github.com/valyala/fasthttp"
)

// Server answers the HTTP API of a node.
type Server struct {
	cfg        Config
	router     *router
	urls       urlCache
	bodyBudget budget
	answers    budget
	hosts      []ownHost       // of Config.Hosts
	origins    map[string]bool // of Config.Origins
	salt       uint64          // see shardAt
	http       *fasthttp.Server

	listening atomic.Pointer[listener] // Serve's

	// base is the context of every call into the engine. It outlives Serve's: requests in flight
	// may finish.
	base context.Context
	stop context.CancelFunc
	// ending ends with Serve's context: operations that would take longer than the grace stop then.
	ending context.Context
	end    context.CancelFunc

	sweeps, streams, polls *places
	beat                   time.Duration // of streams

	refusals refusals
	backups  chan struct{} // as many as are being taken
}

// New makes a server. It starts nothing.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, router: newRouter(routes), salt: cfg.Rand(), beat: streamBeat}
	var err error
	if s.hosts, err = parseHosts(cfg.Hosts); err != nil {
		return nil, fmt.Errorf("api: hosts: %w", err)
	}
	if s.origins, err = parseOrigins(cfg.Origins); err != nil {
		return nil, fmt.Errorf("api: origins: %w", err)
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.ending, s.end = context.WithCancel(s.base)
	s.sweeps, s.streams = newPlaces("bulk changes under way", sweepsAtOnce), newPlaces("streams of events open", streamsAtOnce)
	s.polls = newPlaces("pulls that wait", s.cfg.Limits.Connections/2)
	s.refusals.record, s.refusals.now = cfg.Audit, cfg.Clock
	s.backups = make(chan struct{}, 1)
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
	// fasthttp leaves connections alone that have not said anything yet.
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
	if h.ContentLength() > smallBody {
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
	writeProblem(ctx, p)
	noSniff(ctx)
	s.observe(nil, p.status, time.Time{})
}

func faultOf(err error) *problem {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		return fail(431, tooLarge, "the request header is too large")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return fail(413, tooLarge, "the request body is too large")
	}
	return bad(badRequest, "not a well-formed HTTP request")
}

// rawProblem is a whole response, for a connection that fasthttp never sees.
func rawProblem(p *problem) []byte {
	body := appendProblem(nil, p)
	b := []byte("HTTP/1.1 " + strconv.Itoa(p.status) + " " + fasthttp.StatusMessage(p.status) + "\r\n")
	b = append(b, "Content-Type: application/problem+json\r\nX-Content-Type-Options: nosniff\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	return append(append(b, "\r\n\r\n"...), body...)
}

// now is the server's clock in Unix ms, rounded up.
func (s *Server) nowMs() int64 { return ceilMs(s.cfg.Clock()) }

// reckons refuses to say when it is so long from now while this node does not know the time.
// Another node may.
func (s *Server) reckons() *problem {
	why := s.cfg.ClockFault()
	if why == "" {
		return nil
	}
	return fail(503, unavailable, "this node cannot say when that is: "+why+"; nothing was changed. Give an instant (at, at_ms), or ask another node")
}

// sleep waits, or ends early with false when the server stops.
func (s *Server) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.base.Done():
		return false
	}
}

// fasthttpLog brings fasthttp's own messages into our log.
type fasthttpLog struct{ to *slog.Logger }

func (l fasthttpLog) Printf(format string, args ...any) {
	l.to.Debug("http: " + fmt.Sprintf(format, args...))
}
