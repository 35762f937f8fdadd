package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// WorkOptions are the settings of Work. The zero value handles one timer at a time.
type WorkOptions struct {
	Concurrency int           // timers at once, 1–1000; 0 is 1
	Lease       time.Duration // of a timer; extended as long as its handler runs; 0 is 30 s
	Wait        time.Duration // of one long poll, up to a minute; 0 is 20 s
	Grace       time.Duration // that handlers have when ctx has ended; 0 is 30 s

	// OnError hears of errors that Work gets over by itself: a pull that is tried again, and a
	// report that did not arrive, or came too late, so that the timer comes again. It is called by
	// several goroutines. nil: nobody hears.
	OnError func(error)
}

// Bounds of a consumer.
const (
	maxConcurrency = 1000        // receipts in one extension
	maxReason      = 1024        // bytes
	pullSilence    = time.Minute // after its wait a pull is given up
)

// Work is a worker of a pull topic: it pulls as many timers as it can handle at once, calls
// handle for each on a goroutine of its own, extends the leases of those that run, and reports the
// end: an Ack for nil, a Nack for an error, with the delay of RetryAfter or else the topic's
// backoff. While no node takes a report it is made again, until the lease is over.
//
// The context of a handler ends when its lease is over, because the cluster has ended it or cannot
// be asked: somebody else may have the timer by then, and context.Cause is ErrOver. Timers come at
// least once; Lease.Fence is higher for a later lease.
//
// When ctx ends, Work pulls no more, lets running handlers continue for the Grace, ends their
// contexts then, and returns nil when all of them have returned. It returns an error, in the same
// way, when the cluster refuses a pull for good (ErrWrongDelivery, ErrForbidden, …).
func (c *Client) Work(
	ctx context.Context, topic string, o WorkOptions, handle func(ctx context.Context, l *Lease) error,
) error {
	w := &consumer{client: c, topic: topic, options: o.withDefaults(), handle: handle, held: map[string]*hold{}}
	if w.options.Concurrency > maxConcurrency {
		return fmt.Errorf("client: a concurrency of %d is more than %d", w.options.Concurrency, maxConcurrency)
	}
	w.free = make(chan struct{}, w.options.Concurrency)
	w.release(w.options.Concurrency)
	beyond := context.WithoutCancel(ctx)
	work, endWork := context.WithCancelCause(beyond)
	defer endWork(nil)

	extending, stopExtending := context.WithCancel(beyond)
	var extender, handlers sync.WaitGroup
	extender.Go(func() { w.extend(extending) })
	err := w.pull(ctx, func(l *Lease) { handlers.Go(func() { w.run(work, l) }) })

	grace := time.AfterFunc(w.options.Grace, func() { endWork(errStopped) })
	handlers.Wait()
	grace.Stop()
	stopExtending()
	extender.Wait()
	return err
}

var errStopped = errors.New("client: the consumer has been stopped")

func (o WorkOptions) withDefaults() WorkOptions {
	if o.Concurrency <= 0 {
		o.Concurrency = 1
	}
	if o.Lease <= 0 {
		o.Lease = 30 * time.Second
	}
	if o.Wait <= 0 {
		o.Wait = 20 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 30 * time.Second
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return o
}

// consumer is one run of Work.
type consumer struct {
	client  *Client
	topic   string
	options WorkOptions
	handle  func(ctx context.Context, l *Lease) error
	free    chan struct{} // a token for each handler that could run with the others

	mu   sync.Mutex
	held map[string]*hold // by receipt: leases whose handler runs; at most Concurrency
}

// hold is a lease whose handler runs.
type hold struct {
	until time.Time // by this process's clock: the lease is good until then without another word
	lose  context.CancelCauseFunc
}

// pull starts a handler for all that it gets, until ctx ends or the cluster refuses for good.
func (c *consumer) pull(ctx context.Context, start func(*Lease)) error {
	for failed := 0; ; {
		n := c.reserve(ctx)
		if n == 0 {
			return nil
		}
		o := PullOptions{Max: n, Wait: c.options.Wait, Lease: c.options.Lease}
		within, cancel := context.WithTimeout(ctx, o.Wait+pullSilence)
		leases, err := c.client.Pull(within, c.topic, o)
		cancel()
		c.release(n - len(leases))
		for i := range leases {
			start(&leases[i])
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failed = 0
			continue
		case refusedForGood(err):
			return err
		}
		c.options.OnError(err)
		if c.client.sleep(ctx, c.client.pause(err, failed)) != nil {
			return nil
		}
		failed++
	}
}

// reserve waits until a handler is free and takes all that are. It takes 0 when ctx has ended.
func (c *consumer) reserve(ctx context.Context) (n int) {
	select {
	case <-c.free:
	case <-ctx.Done():
		return 0
	}
	for n = 1; ; n++ {
		select {
		case <-c.free:
		default:
			return n
		}
	}
}

func (c *consumer) release(n int) {
	for range n {
		c.free <- struct{}{}
	}
}

// refusedForGood reports that asking again does not help.
func refusedForGood(err error) bool {
	p := asProblem(err)
	return p != nil && (p.Status/100 == 3 || p.Status/100 == 4) && p.Status != http.StatusTooManyRequests && p.Status != http.StatusRequestTimeout
}

// run handles a timer and reports how that ended.
func (c *consumer) run(work context.Context, l *Lease) {
	defer c.release(1)
	ctx, lose := context.WithCancelCause(work)
	defer lose(nil)
	c.mu.Lock()
	c.held[l.Receipt] = &hold{until: now().Add(c.options.Lease), lose: lose}
	c.mu.Unlock()

	failure := c.handle(ctx, l)

	c.mu.Lock()
	delete(c.held, l.Receipt)
	c.mu.Unlock()
	if err := c.reportInTime(work, l.Receipt, failure); err != nil {
		c.options.OnError(fmt.Errorf("client: report of %s/%s: %w", l.Topic, l.ID, err))
	}
}

// reportInTime reports until that succeeds, and once though everything is stopped. When the lease
// is over it is of no use. A node that is silent leaves time for another.
func (c *consumer) reportInTime(work context.Context, receipt string, failure error) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(work), c.options.Lease)
	defer cancel()
	for failed := 0; ; failed++ {
		try, cancel := context.WithTimeout(within, c.options.Lease/3)
		err := c.report(try, receipt, failure)
		cancel()
		if err == nil || refusedForGood(err) || work.Err() != nil || c.client.sleep(within, c.client.pause(err, failed)) != nil {
			return err
		}
	}
}

// report sends how the handler of a lease ended.
func (c *consumer) report(ctx context.Context, receipt string, failure error) error {
	var err error
	if failure == nil {
		_, err = c.client.Ack(ctx, receipt)
	} else {
		delay := Backoff
		if later, ok := errors.AsType[*retryAfter](failure); ok {
			delay = max(later.delay, 0)
		}
		_, err = c.client.Nack(ctx, delay, reasonOf(failure), receipt)
	}
	return err
}

// reasonOf is an error as short as a reason may be.
func reasonOf(err error) string {
	text := strings.ToValidUTF8(err.Error(), "�")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}

// extend holds the leases whose handlers run, all in one call, three times in the life of a lease.
func (c *consumer) extend(ctx context.Context) {
	every := c.options.Lease / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		receipts := c.loseExpired(now())
		if len(receipts) == 0 {
			continue
		}
		asked := now()
		within, cancel := context.WithTimeout(ctx, every)
		results, err := c.client.Extend(within, c.options.Lease, receipts...)
		cancel()
		if err != nil && !errors.Is(err, ErrOver) && ctx.Err() == nil {
			c.options.OnError(err)
		}
		c.book(results, asked.Add(c.options.Lease))
	}
}

// loseExpired gives up the leases that are over by now, and returns the receipts of the others.
func (c *consumer) loseExpired(now time.Time) (receipts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for receipt, h := range c.held {
		if now.Before(h.until) {
			receipts = append(receipts, receipt)
		} else {
			h.lose(ErrOver)
		}
	}
	return receipts
}

// book enters the answers to an extension.
func (c *consumer) book(results []ReceiptResult, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range results {
		h, running := c.held[results[i].Receipt]
		switch {
		case !running: // it has ended meanwhile
		case results[i].Err() != nil:
			h.until = until.Add(-c.options.Lease) // not asked for again
			h.lose(ErrOver)
		default:
			h.until = until
		}
	}
}

// Stop is an error of Receiver.Handle's function: no attempt will succeed: it answers
// 410, and the timer is a dead letter at once, stopped (unless Policy.StopOn has been given without
// 410). A worker's timer has no such end: for Work it is an error as any other.
func Stop(err error) error { return &stop{err} }

type stop struct{ err error }

func (s *stop) Error() string { return s.err.Error() }
func (s *stop) Unwrap() error { return s.err }

// RetryAfter is an error of a handler, of Work or Receiver.Handle, that sets when the timer
// comes again: after that long instead of the topic's backoff. Calls come again after 1 s to 1 h.
func RetryAfter(delay time.Duration, err error) error { return &retryAfter{delay, err} }

type retryAfter struct {
	delay time.Duration
	err   error
}

func (r *retryAfter) Error() string { return r.err.Error() }
func (r *retryAfter) Unwrap() error { return r.err }
