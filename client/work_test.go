package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pullTopic is a cluster with one pull topic, in the clock of the test's bubble.
type pullTopic struct {
	mu     sync.Mutex
	ready  []string
	more   chan struct{}        // closed when ready grows
	leased map[string]time.Time // by receipt: when the lease ends
	lives  int                  // most leases at once
	said   []string             // "2s ack a", in the order of arrival
	start  time.Time
	fail   func(verb string) *http.Response // nil: as it should be
	hangs  map[string]bool                  // the next request of this verb is never answered
}

func newPullTopic(ids ...string) *pullTopic {
	return &pullTopic{ready: ids, more: make(chan struct{}), leased: map[string]time.Time{}, start: time.Now()}
}

func (p *pullTopic) add(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, ids...)
	close(p.more)
	p.more = make(chan struct{})
}

func (p *pullTopic) note(format string, args ...any) {
	p.said = append(p.said, fmt.Sprintf("%v ", time.Since(p.start))+fmt.Sprintf(format, args...))
}

// heard are the lines so far, sorted: lines of one time have no order.
func (p *pullTopic) heard() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(p.said)), "; ")
}

func jsonAnswer(status int, v any) *http.Response {
	b, _ := json.Marshal(v)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b))}
}

func refusal(status int, code Code) *http.Response {
	return jsonAnswer(status, Problem{Status: status, Code: code, Detail: "why"})
}

func (p *pullTopic) RoundTrip(req *http.Request) (*http.Response, error) {
	var body struct {
		Max      int          `json:"max"`
		Wait     wireDuration `json:"wait"`
		Lease    wireDuration `json:"lease"`
		Delay    *string      `json:"delay"`
		Reason   string       `json:"reason"`
		Receipts []string     `json:"receipts"`
	}
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		return nil, err
	}
	verb := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	if p.isHung(verb) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	if answer := p.failure(verb); answer != nil {
		return answer, nil
	}
	if verb == "pull" {
		return p.pull(req.Context(), body.Max, time.Duration(body.Wait), time.Duration(body.Lease))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var results []ReceiptResult
	for _, receipt := range body.Receipts {
		until, known := p.leased[receipt]
		if !known || time.Now().After(until) {
			results = append(results, ReceiptResult{Receipt: receipt, Status: 410, Code: ErrOver})
			continue
		}
		results = append(results, ReceiptResult{Receipt: receipt, Status: 200})
		switch verb {
		case "extend":
			p.leased[receipt] = time.Now().Add(time.Duration(body.Lease))
			p.note("extend %s", receipt)
			continue
		case "nack":
			delay := "backoff"
			if body.Delay != nil {
				delay = *body.Delay
			}
			p.note("nack %s %s %s", receipt, delay, body.Reason)
		default:
			p.note("%s %s", verb, receipt)
		}
		delete(p.leased, receipt)
	}
	return jsonAnswer(200, map[string]any{"results": results}), nil
}

func (p *pullTopic) isHung(verb string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	hung := p.hangs[verb]
	delete(p.hangs, verb)
	return hung
}

func (p *pullTopic) failure(verb string) *http.Response {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		return nil
	}
	return p.fail(verb)
}

func (p *pullTopic) pull(ctx context.Context, most int, wait, lease time.Duration) (*http.Response, error) {
	over := time.After(wait)
	for {
		p.mu.Lock()
		more, leases := p.more, []map[string]any{}
		for ; len(p.ready) > 0 && len(leases) < most; p.ready = p.ready[1:] {
			id := p.ready[0]
			p.leased[id] = time.Now().Add(lease)
			leases = append(leases, map[string]any{"topic": "jobs", "id": id, "receipt": id})
		}
		p.lives = max(p.lives, len(p.leased))
		p.mu.Unlock()
		if len(leases) > 0 {
			return jsonAnswer(200, map[string]any{"timers": leases}), nil
		}
		select {
		case <-more:
		case <-over:
			return jsonAnswer(200, map[string]any{"timers": leases}), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// consuming runs Work in the background, until stop.
type consuming struct {
	stop   context.CancelFunc
	done   chan error
	mu     sync.Mutex
	errors []error
}

func consume(t *testing.T, p *pullTopic, o WorkOptions, handle func(context.Context, *Lease) error) *consuming {
	t.Helper()
	c, err := New([]string{"http://node"}, Options{HTTP: &http.Client{Transport: p}, Retries: -1})
	must(t, err)
	s := &consuming{done: make(chan error, 1)}
	o.OnError = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errors = append(s.errors, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.done <- c.Work(ctx, "jobs", o, handle) }()
	return s
}

// end stops it, and checks how it ends.
func (c *consuming) end(t *testing.T, faults int) {
	t.Helper()
	c.stop()
	if err := <-c.done; err != nil {
		t.Errorf("ended with %v", err)
	}
	if len(c.errors) != faults {
		t.Errorf("%d faults, want %d: %v", len(c.errors), faults, c.errors)
	}
}

// A worker pulls no more than it can handle at once, and all in the end.
func TestWorkHandlesAllAtItsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a", "b", "c", "d", "e")
		s := consume(t, p, WorkOptions{Concurrency: 2}, func(context.Context, *Lease) error {
			time.Sleep(time.Second)
			return nil
		})
		time.Sleep(25 * time.Second) // a poll ends without any
		p.add("f")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := p.heard(); got != "1s ack a; 1s ack b; 26s ack f; 2s ack c; 2s ack d; 3s ack e" || p.lives != 2 {
			t.Errorf("%s, %d at once", got, p.lives)
		}
		s.end(t, 0)
	})
}

// Leases are extended as long as their handlers run, and no longer.
func TestWorkExtendsWhileItHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a", "b")
		s := consume(t, p, WorkOptions{Concurrency: 3, Lease: 9 * time.Second}, func(ctx context.Context, l *Lease) error {
			time.Sleep(map[string]time.Duration{"a": 10 * time.Second, "b": 4 * time.Second}[l.ID])
			return ctx.Err()
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := p.heard(); got != "10s ack a; 3s extend a; 3s extend b; 4s ack b; 6s extend a; 9s extend a" {
			t.Error(got)
		}
		s.end(t, 0)
	})
}

// A handler learns that its lease is over, whether the cluster says so or cannot be asked.
func TestWorkEndsHandlersWhoseLeaseIsOver(t *testing.T) {
	for name, lose := range map[string]func(p *pullTopic){
		"told": func(p *pullTopic) { p.mu.Lock(); defer p.mu.Unlock(); delete(p.leased, "a") },
		"unheard": func(p *pullTopic) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.fail = func(string) *http.Response { return refusal(503, ErrNoLeader) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPullTopic("a")
				var cause error
				var after time.Duration
				s := consume(t, p, WorkOptions{Lease: 9 * time.Second}, func(ctx context.Context, _ *Lease) error {
					<-ctx.Done()
					cause, after = context.Cause(ctx), time.Since(p.start)
					return nil
				})
				synctest.Wait()
				lose(p)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if !errors.Is(cause, ErrOver) || after > 9*time.Second || p.heard() != "" {
					t.Errorf("%v after %v: %s", cause, after, p.heard())
				}
				s.stop()
				if err := <-s.done; err != nil || len(s.errors) == 0 {
					t.Errorf("%v, faults %v", err, s.errors)
				}
			})
		})
	}
}

func TestWorkReportsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a", "b", "c")
		s := consume(t, p, WorkOptions{}, func(_ context.Context, l *Lease) error {
			switch l.ID {
			case "a":
				return errors.New("no stock")
			case "b":
				return fmt.Errorf("b: %w", RetryAfter(90*time.Second, errors.New("not yet")))
			}
			return errors.New(strings.Repeat("x", maxReason-1) + "€")
		})
		synctest.Wait()
		if got := p.heard(); got != "0s nack a backoff no stock; 0s nack b 1m30s b: not yet; 0s nack c backoff "+strings.Repeat("x", maxReason-1) {
			t.Error(got)
		}
		s.end(t, 0)
	})
}

// A report is made again until the lease is over, however long that is after the client's own
// repetitions: a node that starts again takes some seconds.
func TestWorkReportsUntilTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a", "b")
		p.fail = func(verb string) *http.Response {
			if verb != "pull" && time.Since(p.start) < 8*time.Second {
				return refusal(503, ErrUnavailable)
			}
			return nil
		}
		s := consume(t, p, WorkOptions{Concurrency: 2, Lease: 30 * time.Second}, func(_ context.Context, l *Lease) error {
			if l.ID == "a" {
				return nil
			}
			return RetryAfter(time.Hour, errors.New("later"))
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := p.heard(); !strings.Contains(got, "ack a") || !strings.Contains(got, "nack b 1h0m0s later") {
			t.Errorf("%q", got)
		}
		s.end(t, 0)

		p = newPullTopic("a")
		p.fail = func(verb string) *http.Response {
			if verb == "ack" {
				return refusal(503, ErrUnavailable)
			}
			return nil
		}
		s = consume(t, p, WorkOptions{Lease: 30 * time.Second}, func(context.Context, *Lease) error { return nil })
		synctest.Wait()
		s.end(t, 1)
		if late := time.Since(p.start); late > 30*time.Second {
			t.Errorf("the report is given up after %v", late)
		}
	})
}

// A node that takes a request and is silent, as one whose disk or machine stands still, is left: a
// pull a minute after its wait, and a report while the lease is good.
func TestWorkLeavesASilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a")
		p.hangs = map[string]bool{"pull": true, "ack": true}
		s := consume(t, p, WorkOptions{Wait: 5 * time.Second, Lease: 30 * time.Second}, func(context.Context, *Lease) error { return nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got, acked := p.heard(), time.Duration(0)
		if at, ok := strings.CutSuffix(got, " ack a"); ok {
			acked, _ = time.ParseDuration(at)
		}
		if acked < 65*time.Second || acked > 65*time.Second+15*time.Second {
			t.Errorf("%q", got)
		}
		s.end(t, 1)
	})
}

// When the grace period has ended a report that fails is not made again, however long the lease lasts.
func TestWorkStopsThoughReportsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a")
		p.fail = func(verb string) *http.Response {
			if verb == "ack" {
				return refusal(503, ErrUnavailable)
			}
			return nil
		}
		s := consume(t, p, WorkOptions{Lease: time.Hour, Grace: 30 * time.Second}, func(context.Context, *Lease) error { return nil })
		synctest.Wait()
		s.end(t, 1)
		if late := time.Since(p.start); late < 25*time.Second || late > time.Minute {
			t.Errorf("it stops after %v", late)
		}
	})
}

// A worker that is stopped pulls no more and finishes the timers that it has. When the grace period
// ends, handlers that still run have their context cancelled and are waited for.
func TestWorkStopsGracefully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a", "b")
		s := consume(t, p, WorkOptions{Concurrency: 3, Lease: 9 * time.Second, Grace: 5 * time.Second}, func(ctx context.Context, l *Lease) error {
			if l.ID == "a" {
				time.Sleep(4 * time.Second)
				return ctx.Err()
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			return context.Cause(ctx)
		})
		time.Sleep(time.Second)
		s.stop()
		synctest.Wait() // the poll for a third one is given up
		p.add("c")
		s.end(t, 0)
		const want = "3s extend a; 3s extend b; 4s ack a; 6s extend b; 7s nack b backoff client: the consumer has been stopped"
		if got := p.heard(); got != want || time.Since(p.start) != 7*time.Second || len(p.ready) != 1 {
			t.Errorf("%s after %v", got, time.Since(p.start))
		}
	})
}

// A pull that fails is tried again after a pause, unless the cluster refuses it for good.
func TestWorkOutlastsFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPullTopic("a")
		pulls := 0
		p.fail = func(verb string) *http.Response {
			if verb != "pull" {
				return nil
			}
			if pulls++; pulls <= 3 {
				return refusal(503, ErrNoLeader)
			}
			return nil
		}
		s := consume(t, p, WorkOptions{}, func(context.Context, *Lease) error { return nil })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(p.heard()) == 0 {
			t.Error("nothing was handled")
		}
		s.end(t, 3)

		p.fail = func(string) *http.Response { return refusal(409, ErrWrongDelivery) }
		s = consume(t, p, WorkOptions{}, nil)
		if err := <-s.done; !errors.Is(err, ErrWrongDelivery) || len(s.errors) != 0 {
			t.Errorf("%v, %v", err, s.errors)
		}
		c, _ := New([]string{"http://node"}, Options{})
		if err := c.Work(t.Context(), "jobs", WorkOptions{Concurrency: 1001}, nil); err == nil {
			t.Error("a concurrency of 1001 is taken")
		}
	})
}
