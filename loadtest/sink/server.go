package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Bounds of a Server. They are well above the sizes that Carillon sends by default (256 KiB
// payload, 32 headers of 4 KiB).
const (
	maxBodyBytes    = 8 << 20
	maxHeaderBytes  = 144 << 10
	maxConnections  = 4096
	requestTimeout  = 30 * time.Second // reading one request, writing one answer
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
	silentLook      = 50 * time.Millisecond
)

// Handler judges one delivery and returns the HTTP status to answer with. It
// is called from many goroutines.
type Handler func(*Delivery) int

// Server receives callbacks.
type Server struct {
	address  string
	handle   Handler
	http     fasthttp.Server
	listener net.Listener
	views    sync.Pool // of *Delivery
	running  atomic.Int64

	mu   sync.Mutex
	open map[net.Conn]struct{} // bound: maxConnections
}

// NewServer returns a server for the address ("127.0.0.1:7780", port 0 for any
// free one). It binds nothing yet.
func NewServer(address string, handle Handler) *Server {
	s := &Server{address: address, handle: handle, open: map[net.Conn]struct{}{}}
	s.views.New = func() any { return new(Delivery) }
	s.http = fasthttp.Server{
		Handler:                      s.serve,
		Concurrency:                  maxConnections,
		ReadBufferSize:               maxHeaderBytes,
		MaxRequestBodySize:           maxBodyBytes,
		ReadTimeout:                  requestTimeout,
		WriteTimeout:                 requestTimeout,
		IdleTimeout:                  idleTimeout,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		Logger:                       quiet{},
		ConnState:                    s.track,
	}
	return s
}

// Listen binds and returns the address bound. Run does it if nobody did.
func (s *Server) Listen() (string, error) {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return "", fmt.Errorf("sink: listen on %s: %w", s.address, err)
	}
	s.listener = listener
	return listener.Addr().String(), nil
}

// Expect has the server keep so many connections at once, most of them idle, for little memory:
// then headers are at most 16 KiB. 0: as it is.
func (s *Server) Expect(connections int) {
	if connections > 0 {
		s.http.Concurrency, s.http.ReduceMemoryUsage, s.http.ReadBufferSize = connections, true, 16<<10
	}
}

// Use takes a listener that is bound already, instead of Listen.
func (s *Server) Use(listener net.Listener) { s.listener = listener }

// Run serves until the context ends, then lets running calls finish for at
// most five seconds.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if _, err := s.Listen(); err != nil {
			return err
		}
	}
	served := make(chan struct{})
	var failure error
	go func() {
		defer close(served)
		failure = s.http.Serve(s.listener)
	}()
	select {
	case <-served:
		return fmt.Errorf("sink: serve: %w", failure)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	go s.closeSilent(last)
	err := s.http.ShutdownWithContext(last)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("sink: shut down: %w", err)
	}
	// Fasthttp may not know the listener yet: then its shutdown closed nothing.
	_ = s.listener.Close()
	<-served
	return nil
}

// track knows the open connections.
func (s *Server) track(conn net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		s.mu.Lock()
		s.open[conn] = struct{}{}
		s.mu.Unlock()
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
	}
}

// closeSilent closes the connections that are still open once no call has been running for two
// looks in a row: the library's shutdown would wait for connections that never carried a request
// until the time is over.
func (s *Server) closeSilent(ctx context.Context) {
	ticker := time.NewTicker(silentLook)
	defer ticker.Stop()
	for silent := 0; silent < 2; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if silent++; s.running.Load() > 0 {
			silent = 0
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		conn.Close()
	}
}

func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	s.running.Add(1)
	defer s.running.Add(-1)
	d := s.views.Get().(*Delivery)
	header := &ctx.Request.Header
	*d = Delivery{
		Topic:     header.Peek("Carillon-Topic"),
		Timer:     header.Peek("Carillon-Timer"),
		WebhookID: header.Peek("Webhook-Id"),
		Timestamp: header.Peek("Webhook-Timestamp"),
		Signature: header.Peek("Webhook-Signature"),
		Body:      ctx.Request.Body(),
		DueMs:     Decimal(header.Peek("Carillon-Due")),
		AskedMs:   Decimal(header.Peek("Carillon-Asked")),
		Attempt:   Decimal(header.Peek("Carillon-Attempt")),
		Fence:     Decimal(header.Peek("Carillon-Fence")),
		ArrivedUs: time.Now().UnixMicro(),
		ClockUs:   testClock(header.Peek("Carillon-Test-Clock")),
		header:    header,
	}
	ctx.SetStatusCode(s.handle(d))
	if d.Answer != nil {
		ctx.SetContentType("application/json")
		ctx.SetBody(d.Answer)
	}
	*d = Delivery{}
	s.views.Put(d)
}

// quiet drops the library's lines about connections that broke: the sender
// sees them as failed attempts, and the sink's own counts are the report.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// testClock is the time of a node's test clock in Unix µs; 0: it has none.
func testClock(header []byte) int64 {
	if len(header) == 0 {
		return 0
	}
	at, _ := time.Parse(time.RFC3339, string(header))
	return max(0, at.UnixMicro())
}
