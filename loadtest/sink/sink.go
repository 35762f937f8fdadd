package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"carillon/loadtest/hist"
)

// Config is the configuration of a Sink. Zero values are the defaults named.
type Config struct {
	Listen   string        `help:"Address to receive callbacks on." default:"127.0.0.1:7780"`
	Status   int           `help:"Status to answer with." default:"200"`
	Latency  time.Duration `help:"How long to take for an answer." default:"0s"`
	FailRate float64       `help:"Share of the calls (0 to 1) to answer with 500." default:"0"`
	Secret   []string      `help:"whsec_… secret to check signatures with; repeat for a rotation." placeholder:"whsec_…"`
	Print    bool          `help:"Print a line for each callback (at most 100 a second)." default:"true" negatable:""`
	Seed     uint64        `help:"Seed of the choice of failing calls." default:"1"`

	// Out takes the lines and counts; nil = standard output.
	Out io.Writer `kong:"-" json:"-"`
}

const maxLatency = 15 * time.Minute // the longest callback time-out there is

// validate fills in the defaults and reports every fault at once.
func (c Config) validate() (Config, error) {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:7780")
	c.Status = cmp.Or(c.Status, 200)
	if c.Out == nil {
		c.Out = os.Stdout
	}
	var faults []error
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		faults = append(faults, fmt.Errorf("sink: listen: %q is not host:port", c.Listen))
	}
	if c.Status < 200 || c.Status > 599 {
		faults = append(faults, fmt.Errorf("sink: status %d is not within 200 to 599", c.Status))
	}
	if c.Latency < 0 || c.Latency > maxLatency {
		faults = append(faults, fmt.Errorf("sink: latency %v is not within 0 to %v", c.Latency, maxLatency))
	}
	if !(c.FailRate >= 0 && c.FailRate <= 1) {
		faults = append(faults, fmt.Errorf("sink: fail rate %v is not within 0 to 1", c.FailRate))
	}
	return c, errors.Join(faults...)
}

// Sink answers callbacks and checks them.
type Sink struct {
	config   Config
	server   *Server
	verify   *verifier // nil without secrets
	fences   *fences
	counters counters
	lateness *hist.Recorder
	printer  *printer
	calls    atomic.Uint64 // numbers the calls, for the seeded choice of failures
	many     sync.Pool     // of *[]Delivery, for receiveMany
	stopping chan struct{} // closed as Run winds up: ends waits for the latency
}

// New returns a sink that is neither bound nor running.
func New(config Config) (*Sink, error) {
	config, err := config.validate()
	if err != nil {
		return nil, err
	}
	s := &Sink{
		config: config, fences: newFences(), lateness: hist.NewRecorder(),
		printer: newPrinter(config.Out), stopping: make(chan struct{}),
	}
	s.many.New = func() any { return new([]Delivery) }
	if len(config.Secret) > 0 {
		if s.verify, err = newVerifier(config.Secret); err != nil {
			return nil, err
		}
	}
	s.server = NewServer(config.Listen, s.receive)
	return s, nil
}

// Listen binds and returns the address bound. Run does it if nobody did.
func (s *Sink) Listen() (string, error) { return s.server.Listen() }

// Counts has the counts so far.
func (s *Sink) Counts() Counts { return s.counters.snapshot() }

// Run receives until the context ends, prints the final counts and returns. It
// may be called once.
func (s *Sink) Run(ctx context.Context) error {
	if s.server.listener == nil {
		if _, err := s.Listen(); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.config.Out, "sink: receiving on http://%s\n", s.server.listener.Addr())
	total, interval := hist.New(), hist.New()
	drain := func() hist.Summary {
		interval.Reset()
		s.lateness.Drain(interval)
		total.Merge(interval)
		return interval.Summary()
	}
	printing, stopPrinting := context.WithCancel(context.WithoutCancel(ctx))
	printed := make(chan struct{})
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	go func() {
		defer close(printed)
		s.printer.run(printing, ticker.C, s.Counts, drain)
	}()
	release := context.AfterFunc(ctx, func() { close(s.stopping) })
	defer release()
	err := s.server.Run(ctx)
	stopPrinting()
	<-printed
	s.printer.flush()
	drain()
	fmt.Fprintf(s.config.Out, "sink: %s  %s\n", s.Counts(), latenessLine(total.Summary()))
	return err
}

// receive judges one call. It allocates nothing unless a line is printed, or the call is for many
// timers.
func (s *Sink) receive(d *Delivery) int {
	if len(d.Timer) == 0 && len(d.Topic) > 0 {
		return s.receiveMany(d)
	}
	s.counters.received.Add(1)
	if s.config.Latency > 0 {
		s.wait()
	}
	if s.verify != nil {
		d.problem = s.verify.problem(d)
	}
	return s.count(d)
}

// count judges one callback, whose signature was checked, and counts it.
func (s *Sink) count(d *Delivery) int {
	if d.Attempt > 1 {
		s.counters.retries.Add(1)
	}
	if d.Early() {
		s.counters.early.Add(1)
	}
	if d.DueMs >= 0 {
		s.lateness.Record(d.LatenessUs())
	}
	status, remark := s.judge(d)
	if status >= 200 && status < 300 {
		s.counters.succeeded.Add(1)
	} else {
		s.counters.failed.Add(1)
	}
	if s.config.Print || remark != "" {
		s.printer.offer(d, status, remark)
	}
	return status
}

// judge chooses the answer and names the fault of the callback. A falling fence is answered as
// usual: dropping an outdated call is a success.
func (s *Sink) judge(d *Delivery) (status int, remark string) {
	if d.problem != "" {
		s.counters.badSignature.Add(1)
		return 401, d.problem
	}
	if d.Fence >= 0 {
		switch s.fences.see(d.Topic, d.Timer, d.Fence) {
		case fenceRepeats:
			s.counters.repeated.Add(1)
			remark = "this fence came before"
		case fenceFalls:
			s.counters.staleFence.Add(1)
			remark = "fence is lower than one seen before"
		}
	}
	if d.Early() {
		remark = "early"
	}
	if s.config.FailRate > 0 && s.fails() {
		return 500, remark
	}
	return s.config.Status, remark
}

// fails draws from a stream that the seed determines.
func (s *Sink) fails() bool {
	return rand.New(rand.NewPCG(s.config.Seed, s.calls.Add(1))).Float64() < s.config.FailRate
}

// wait takes the configured latency, less if the sink is stopping.
func (s *Sink) wait() {
	timer := time.NewTimer(s.config.Latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stopping:
	}
}
