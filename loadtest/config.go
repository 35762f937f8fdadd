package loadtest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Mode is the kind of a run.
type Mode string

// The modes; see the package comment.
const (
	ModeAdd   Mode = "add"
	ModeFire  Mode = "fire"
	ModeMixed Mode = "mixed"
	ModeChurn Mode = "churn"
)

// Config is the configuration of a run. Zero values are the defaults named in the tags or chosen by
// the mode.
type Config struct {
	Mode        Mode     `kong:"-" json:"mode"`
	URL         []string `name:"url" help:"Server to load; repeat for several." default:"http://127.0.0.1:7700" json:"url"`
	Credentials `embed:""`
	AnyNode     bool          `help:"Spread requests evenly over the servers. Otherwise one about a single timer goes to the server that leads its shard, as answers name it." json:"any_node"`
	Connections int           `short:"c" help:"Requests in flight, each on a connection of its own." default:"64" json:"connections"`
	Threads     int           `short:"t" help:"Processors to use (default: add one for each 128 connections, otherwise all)." placeholder:"N" json:"threads"`
	Duration    time.Duration `short:"d" help:"How long to send (default 10s, no limit when -n is given)." placeholder:"10s" json:"duration_ns"`
	Rate        float64       `short:"R" help:"Open loop: operations per second. 0 = closed loop." placeholder:"N" json:"rate"`
	Timers      int64         `short:"n" help:"Timers to add at most (fire: 10000 unless -d is given)." placeholder:"N" json:"timers"`
	Batch       int           `help:"Operations per request (default 1; fire without a rate: 100)." placeholder:"N" json:"batch"`
	Payload     int           `help:"Payload bytes." default:"200" json:"payload"`
	Keys        int           `help:"Spread the timers over this many keys. 0 = no keys." placeholder:"N" json:"keys"`
	Topics      int           `help:"Spread the timers over this many topics." default:"1" json:"topics"`
	Topic       string        `help:"Topic, or what the topics' names start with." default:"loadtest" json:"topic"`
	Delay       string        `help:"From send to due: 5s, uniform:1s-10s or exp:5s (default by mode)." placeholder:"SPREAD" json:"delay"`
	SameInstant bool          `help:"All timers fall due at one instant, --delay after the start." json:"same_instant"`
	Mix         string        `help:"Shares of a mixed run." default:"add=50,patch=15,cancel=20,get=15" json:"mix"`
	CancelShare float64       `help:"Share of the timers that churn cancels." default:"0.9" json:"cancel_share"`
	Sink        string        `help:"URL of an external receiver; the built-in one is used otherwise." placeholder:"URL" json:"sink"`
	SinkListen  string        `help:"Address of the built-in receiver." default:"127.0.0.1:0" json:"sink_listen"`
	Receivers   int           `help:"Spread the timers of one instant over this many receivers, at addresses 127.16.0.0 and up, while another topic fires 100 a second. 0 = one." placeholder:"N" json:"receivers"`
	ReceiversDo string        `help:"What they do: answer, refuse, hang, slow, or half (every second one answers)." default:"answer" placeholder:"WHAT" json:"receivers_do"`
	Warmup      time.Duration `help:"Load before the measured time." placeholder:"5s" json:"warmup_ns"`
	Timeout     time.Duration `help:"Give up on an answer after this." default:"10s" json:"timeout_ns"`
	Drain       time.Duration `help:"Wait for timers due at most this long after the load; later ones are cancelled." default:"60s" json:"drain_ns"`
	Keep        bool          `help:"Leave timers that are not waited for where they are, instead of cancelling each to see that it is there." json:"keep"`
	Grace       time.Duration `help:"A timer is lost when it is this late and nothing else has arrived for as long." default:"10s" json:"grace_ns"`
	Seed        uint64        `help:"Seed of all choices." default:"1" json:"seed"`
	Output      `embed:""`

	// EachSecond gets what the progress line shows, and is waited for. nil: nobody wants it.
	EachSecond func(Progress) `kong:"-" json:"-"`
}

// Credentials are those of a run to its servers.
type Credentials struct {
	Token      string `help:"Bearer token." placeholder:"TOKEN" env:"CARILLON_TOKEN" json:"-"`
	CA         string `name:"ca" help:"Authorities to trust for https, besides the system's (PEM)." placeholder:"FILE" env:"CARILLON_CA" json:"-"`
	ClientCert string `help:"Certificate and its private key, where nodes ask for one (PEM)." placeholder:"FILE" env:"CARILLON_CLIENT_CERT" json:"-"`
}

// Output is where the report goes, besides standard output.
type Output struct {
	JSON  string `name:"json" help:"Write the report as JSON to this file (- = standard output)." placeholder:"FILE" json:"-"`
	HTML  string `name:"html" help:"Write the report as one HTML page to this file." placeholder:"FILE" json:"-"`
	Quiet bool   `short:"q" help:"No progress line." json:"-"`
}

// Bounds of a Config.
const (
	maxConnections = 10_000
	maxThreads     = 1024
	maxBatch       = 1000 // the server's own limit
	// Operations per second. At a lower rate the intended times exceed the range of a Duration.
	minRate         = 0.001
	maxRate         = 1e9
	minPayloadBytes = 80 // the part that names the timer has to fit
	maxPayloadBytes = 256 << 10
	maxBatchBytes   = 8 << 20
)

// ErrConfig marks an error of Run that is a fault of its configuration.
var ErrConfig = errors.New("bad configuration")

var topicName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,117}$`)

// withDefaults fills in the fields that were left zero.
func (c Config) withDefaults() Config {
	c.Token = strings.TrimSpace(c.Token) // of a file that ends with a line feed
	c.Topic = cmp.Or(c.Topic, "loadtest")
	c.Mix = cmp.Or(c.Mix, "add=50,patch=15,cancel=20,get=15")
	c.SinkListen = cmp.Or(c.SinkListen, "127.0.0.1:0")
	c.ReceiversDo = cmp.Or(c.ReceiversDo, doAnswer)
	c.Connections = cmp.Or(c.Connections, 64)
	c.Payload = cmp.Or(c.Payload, 200)
	c.Topics = cmp.Or(c.Topics, 1)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Drain = cmp.Or(c.Drain, time.Minute)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	if len(c.URL) == 0 {
		c.URL = []string{"http://127.0.0.1:7700"}
	}
	c.CancelShare = cmp.Or(c.CancelShare, 0.9)
	c.Seed = cmp.Or(c.Seed, 1)
	if c.Mode == ModeFire && c.Timers == 0 && c.Duration == 0 {
		c.Timers = 10_000
		if c.Receivers > 0 {
			c.Timers = int64(c.Receivers)
		}
	}
	if c.Receivers > 0 && c.SinkListen == "127.0.0.1:0" {
		c.SinkListen = "0.0.0.0:0"
	}
	if c.Timers == 0 {
		c.Duration = cmp.Or(c.Duration, 10*time.Second)
	}
	if c.Batch == 0 && c.Mode == ModeFire && c.Rate == 0 {
		c.Batch = 100
	}
	c.Batch = cmp.Or(c.Batch, 1)
	c.Delay = cmp.Or(c.Delay, c.defaultDelay())
	return c
}

// connectionsPerThread are no burden to one processor: it sends some 60,000 requests a second.
const connectionsPerThread = 128

// Processors is how many the tester should use: no more than it needs, since the server may be on
// the same machine and since code on one processor need not agree with another. A run that receives
// callbacks gets all.
func (c Config) Processors() int {
	if c.Threads > 0 {
		return min(c.Threads, maxThreads)
	}
	all := runtime.NumCPU()
	if c.Mode != ModeAdd {
		return all
	}
	return min(1+(c.Connections-1)/connectionsPerThread, all)
}

// defaultDelay keeps add from firing, and gives a same-instant run the time to
// load at 10,000 timers a second.
func (c Config) defaultDelay() string {
	switch {
	case c.SameInstant && c.Receivers > 0: // in peace before the instant
		return (6*time.Second + time.Duration(c.Timers)*100*time.Microsecond).String()
	case c.SameInstant:
		return (3*time.Second + time.Duration(c.Timers)*100*time.Microsecond).String()
	case c.Mode == ModeAdd:
		return "1h"
	case c.Mode == ModeChurn:
		return "5s"
	}
	return "uniform:1s-10s"
}

// validate reports every fault at once.
func (c Config) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("loadtest: "+format, args...))
		}
	}
	switch c.Mode {
	case ModeAdd, ModeFire, ModeMixed, ModeChurn:
	default:
		check(false, "mode %q is none of add, fire, mixed, churn", c.Mode)
	}
	check(!strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }), "the token has a space, a control character or another one that no token has")
	for _, text := range c.URL {
		if _, err := parseTarget(text); err != nil {
			faults = append(faults, err)
		}
	}
	if c.Sink != "" {
		u, err := url.Parse(c.Sink)
		check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "sink %q is not an http or https URL", c.Sink)
	}
	check(c.Connections >= 1 && c.Connections <= maxConnections, "%d connections are not within 1 to %d", c.Connections, maxConnections)
	check(c.Threads >= 0 && c.Threads <= maxThreads, "%d threads are not within 1 to %d", c.Threads, maxThreads)
	check(c.Duration >= 0 && c.Warmup >= 0, "a duration is negative")
	check(c.Timeout > 0 && c.Drain > 0 && c.Grace > 0, "timeout, drain and grace must be above 0")
	check(c.Rate == 0 || (c.Rate >= minRate && c.Rate <= maxRate), "rate %v is not within %v to %v", c.Rate, minRate, maxRate)
	check(c.Timers >= 0 && c.Timers <= maxTimers, "%d timers are not within 0 to %d", c.Timers, int64(maxTimers))
	check(c.Batch >= 1 && c.Batch <= maxBatch, "batch %d is not within 1 to %d", c.Batch, maxBatch)
	check(c.Payload >= minPayloadBytes && c.Payload <= maxPayloadBytes, "payload of %d bytes is not within %d to %d", c.Payload, minPayloadBytes, maxPayloadBytes)
	check(c.Batch*(c.Payload+300) <= maxBatchBytes, "batch of %d with %d bytes each is above %d bytes", c.Batch, c.Payload, maxBatchBytes)
	check(c.Keys >= 0, "%d keys are negative", c.Keys)
	check(c.Topics >= 1 && c.Topics <= 1_000_000, "%d topics are not within 1 to 1000000", c.Topics)
	check(topicName.MatchString(c.Topic), "topic %q is not a valid name", c.Topic)
	c.checkReceivers(check)
	check(c.CancelShare > 0 && c.CancelShare <= 1, "cancel share %v is not within 0 to 1", c.CancelShare)
	if d, err := parseDelay(c.Delay); err != nil {
		faults = append(faults, err)
	} else {
		check(!c.SameInstant || d.shape == delayFixed, "delay %q is not one instant", c.Delay)
	}
	if host, _, err := net.SplitHostPort(c.SinkListen); err != nil {
		faults = append(faults, fmt.Errorf("loadtest: address %q to receive at is not of the form host:port", c.SinkListen))
	} else {
		ip := net.ParseIP(host)
		check(c.Receivers > 0 || c.Sink != "" || (host != "" && !ip.IsUnspecified()), "address %q to receive at does not say where nodes reach it", c.SinkListen)
	}
	if _, err := parseMix(c.Mix); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// target is where one of the URLs leads.
type target struct {
	tls     bool
	address string // host:port to dial
	host    string // Host header
}

func parseTarget(text string) (target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery+u.Fragment+strings.Trim(u.Path, "/") != "" {
		return target{}, fmt.Errorf("loadtest: %q is not of the form http://host:port", text)
	}
	t := target{tls: u.Scheme == "https", address: u.Host, host: u.Host}
	if u.Port() == "" {
		port := ":80"
		if t.tls {
			port = ":443"
		}
		t.address = u.Host + port
	}
	return t, nil
}
