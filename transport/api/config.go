package api

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"time"

	"carillon/internal/audit"
	"carillon/internal/tracing"
	"carillon/transport/api/web"
	"carillon/transport/console"

	"github.com/valyala/fasthttp"
)

// Config is the configuration of a Server. Zero fields take the documented default.
type Config struct {
	web.Settings
	Version string // "dev"

	// Auth holds the tokens; nil leaves the API open.
	Auth *Auth
	// TLS encrypts the connections; nil leaves them as they are.
	TLS *TLS
	// Console is the page at / for people, and its files; nil: there is none.
	Console *console.Site
	// Metrics answers /metrics, or returns why it cannot, as an Engine does; nil makes it 404. all:
	// with the series that name topics or destinations.
	Metrics func(ctx *fasthttp.RequestCtx, all bool) error

	// Observe gets every request that was answered, by any goroutine: the number of its route
	// (see RouteNames), the status, and how long the answer took to make. It must not wait. nil:
	// nobody wants it.
	Observe func(route, status int, took time.Duration)

	// Tracer reports changes to a collector; nil: none.
	Tracer *tracing.Tracer

	// Hosts are names and addresses that the node goes by, perhaps with a port, besides the address
	// that a client has reached. See checkHost.
	Hosts []string

	// Origins are those of others whose pages may ask as if they were the node's own. See
	// CheckOrigin.
	Origins []string

	// Audit gets every change that was made, or may have been, by any goroutine, when it has
	// been answered, and of those that were refused the ones that refusals selects; it must not
	// wait. nil: there is no audit.
	Audit func(audit.Entry)
}

func (c Config) withDefaults() Config {
	c.Version = cmp.Or(c.Version, "dev")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.RefusedURL == nil {
		c.RefusedURL = func(string) error { return nil }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Now == nil {
		c.Now = c.Clock
	}
	if c.ClockFault == nil {
		c.ClockFault = func() string { return "" }
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	if c.Limits == (web.Limits{}) {
		c.Limits = web.DefaultLimits()
	}
	return c
}
