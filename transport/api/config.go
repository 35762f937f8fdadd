package api

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/valyala/fasthttp"

	"carillon/transport/console"
)

// Config is the configuration of a Server. Zero fields take the documented default.
type Config struct {
	Engine  Engine // required
	Version string // "dev"
	Logger  *slog.Logger

	// Auth holds the tokens; nil leaves the API open.
	Auth *Auth
	// TLS encrypts the connections; nil leaves them as they are.
	TLS *TLS
	// CheckURL says why a callback may not go to this URL, which is well-formed. Only an address
	// can be judged here: names are judged when they are dialled. Good ones are remembered until
	// Server.ForgetURLs. nil refuses nothing.
	CheckURL func(url string) error
	// ClusterError names an error of Cluster as this package does; nil: they are named so.
	ClusterError func(error) error
	// Digest is a number that stands for a secret where the content of adds is compared, so that
	// nobody can try which secret it was. Its error is the engine's. nil: the secret is hashed like
	// any text.
	Digest func(text string) (uint64, error)
	// Console is the page at / for people, and its files; nil: there is none.
	Console *console.Site
	// Metrics answers /metrics, or says as an Engine does why it cannot; nil makes it 404. all: with
	// the series that name topics or destinations.
	Metrics func(ctx *fasthttp.RequestCtx, all bool) error

	// Observe is told of every request that was answered, by any goroutine: the number of its route
	// (see RouteNames), the status, and how long the answer took to make. It must not wait. nil:
	// nobody is told.
	Observe func(route, status int, took time.Duration)

	// Hosts are names and addresses that the node goes by, perhaps with a port, beside the address
	// that a client has reached. See checkHost.
	Hosts []string

	// Origins are those of others whose pages may ask as if they were the node's own. See
	// CheckOrigin.
	Origins []string

	// Audit is told of every change that was made, or may have been, by any goroutine, when it has
	// been answered, and of those that were refused as refusals says; it must not wait. nil: nobody
	// is.
	Audit func(Change)

	// KnownTopicsOnly: an add to, or a pull from, a topic that is not there does not make it but is
	// 404.
	KnownTopicsOnly bool

	Limits Limits

	Clock func() time.Time // time.Now
	// ClockFault says why Clock cannot be believed now: then no time is reckoned from it. "": it
	// can; nil: always.
	ClockFault func() string
	Rand       func() uint64 // 64 random bits for ids and uids; any goroutine; math/rand/v2
}

// Limits bound how much a client can make the server hold, and how long it waits. Zero fields take
// the defaults of API.md section 1.
type Limits struct {
	PayloadBytes int // 256 KiB, as delivered
	BodyBytes    int // 1 MiB
	BatchBytes   int // 8 MiB
	// 256 MiB: all bodies of over 16 KiB together, as far as they have arrived, of requests that
	// have not been answered.
	BodiesBytes   int
	AnswersBytes  int // 256 MiB: all answers of over 16 KiB together, that have not been written
	BatchOps      int // 1,000; also the ids of one redrive or purge
	HeaderBytes   int // 16 KiB, request line included
	TargetBytes   int // 8 KiB: path and query
	Connections   int // 8,192
	BatchAnswer   int // 8 MiB: results of a batch beyond it carry no timer
	ResponseBytes int // 4 MiB: a page of a listing ends early rather than grow past it

	HeaderTimeout time.Duration // 10s from the first byte
	BodyTimeout   time.Duration // 30s from the end of the header
	IdleTimeout   time.Duration // 2m between requests
	WriteTimeout  time.Duration // 30s
	Grace         time.Duration // 30s for requests in flight when Serve's context ends
	Unfinished    time.Duration // 1s for requests that have not wholly arrived by then

	SweepTime time.Duration // 10m for one bulk change

	Horizon time.Duration // 10 years
}

const (
	day            = 24 * time.Hour
	defaultHorizon = 3653 * day // ten years, leap days included
)

func (l Limits) withDefaults() Limits {
	size := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	span := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	size(&l.PayloadBytes, 256<<10)
	size(&l.BodyBytes, 1<<20)
	size(&l.BatchBytes, 8<<20)
	size(&l.BodiesBytes, 256<<20)
	size(&l.AnswersBytes, 256<<20)
	size(&l.BatchAnswer, 8<<20)
	size(&l.BatchOps, 1000)
	size(&l.HeaderBytes, 16<<10)
	size(&l.TargetBytes, 8<<10)
	size(&l.Connections, 8192)
	size(&l.ResponseBytes, 4<<20)
	span(&l.HeaderTimeout, 10*time.Second)
	span(&l.BodyTimeout, 30*time.Second)
	span(&l.IdleTimeout, 2*time.Minute)
	span(&l.WriteTimeout, 30*time.Second)
	span(&l.Grace, 30*time.Second)
	span(&l.Unfinished, time.Second)
	span(&l.SweepTime, 10*time.Minute)
	span(&l.Horizon, defaultHorizon)
	return l
}

func (c Config) withDefaults() Config {
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.CheckURL == nil {
		c.CheckURL = func(string) error { return nil }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.ClockFault == nil {
		c.ClockFault = func() string { return "" }
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

// validate reports all that is wrong, at once.
func (c Config) validate() error {
	var errs []error
	if c.Engine == nil {
		errs = append(errs, errors.New("api: no engine"))
	}
	l := c.Limits
	for _, n := range []int{l.PayloadBytes, l.BodyBytes, l.BatchBytes, l.BodiesBytes, l.AnswersBytes, l.BatchAnswer, l.BatchOps, l.HeaderBytes, l.TargetBytes, l.Connections, l.ResponseBytes} {
		if n < 0 {
			errs = append(errs, errors.New("api: a limit is negative"))
			break
		}
	}
	for _, d := range []time.Duration{l.HeaderTimeout, l.BodyTimeout, l.IdleTimeout, l.WriteTimeout, l.Grace, l.Unfinished, l.SweepTime, l.Horizon} {
		if d < 0 {
			errs = append(errs, errors.New("api: a time limit is negative"))
			break
		}
	}
	return errors.Join(errs...)
}
