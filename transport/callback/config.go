package callback

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"time"

	"carillon/transport/callback/address"
)

// Config sets up a Pool. A zero field takes the default named next to it.
type Config struct {
	MaxDestinations int    // destinations kept at once: 10,000
	MaxCalls        int    // permits out at once on this node: 2048
	MaxIdleConns    int    // idle connections kept on this node: 4096
	UserAgent       string // "Carillon"

	Policy address.Policy // which addresses may be dialled, until SetPolicy; zero = public ones only

	ConnIdle time.Duration // an idle connection is closed after this: 4s, at most 4s
	Drain    time.Duration // how long Run waits for calls in flight at its end: 30s

	RootCAs  *x509.CertPool // nil = the system's
	Resolver *net.Resolver  // nil = net.DefaultResolver

	// Dial replaces the TCP dialer, for simulated networks. Only literal
	// addresses are held against Policy then. nil = TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Logger *slog.Logger // nil = nothing is logged

	// Now is the clock of deadlines: time.Now. The breakers and the connections'
	// own deadlines run on the runtime's clock.
	Now func() time.Time
	// Wall is the clock of timestamps; it may step: Now.
	Wall func() time.Time
	// Lease is the clock of Request.Deadline. It counts the time in which the machine
	// slept or was stopped, which the runtime's clock does not: since New, by Now.
	Lease func() time.Duration
	// TestClock is a clock that stands still while a call runs; nil: none. Breakers open and close
	// by it, calls and failures have its time, and each call carries it. Signatures have Wall's.
	TestClock func() time.Time
}

// timers is the clock of breakers.
func (c *Config) timers() time.Time {
	if c.TestClock != nil {
		return c.TestClock()
	}
	return time.Now()
}

// shown is the clock of what people see.
func (c *Config) shown() time.Time {
	if c.TestClock != nil {
		return c.TestClock()
	}
	return c.Wall()
}

const (
	// maxConnIdle is below the keep-alive time-out of the common servers (5 s and
	// more), so that a connection is rarely closed under a request.
	maxConnIdle     = 4 * time.Second
	connMaxAge      = 5 * time.Minute  // a connection is not used again after this
	destinationIdle = 10 * time.Minute // a destination without calls is forgotten after this
)

func (c Config) withDefaults() Config {
	c.MaxDestinations = cmp.Or(c.MaxDestinations, 10_000)
	c.MaxCalls = cmp.Or(c.MaxCalls, 2048)
	c.MaxIdleConns = cmp.Or(c.MaxIdleConns, 4096)
	c.ConnIdle = cmp.Or(c.ConnIdle, maxConnIdle)
	c.Drain = cmp.Or(c.Drain, 30*time.Second)
	c.UserAgent = cmp.Or(c.UserAgent, "Carillon")
	c.Resolver = cmp.Or(c.Resolver, net.DefaultResolver)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Wall == nil {
		c.Wall = c.Now
	}
	if c.Lease == nil {
		begun, now := c.Now(), c.Now
		c.Lease = func() time.Duration { return now().Sub(begun) }
	}
	return c
}
